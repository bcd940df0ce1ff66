// TcpDevice: the device for tcp://HOST:PORT. See fabric/device.h.
//
// Its connections belong to the multiplexers of its executor; the MultiplexerSet polls them.
#pragma once

#include <memory>
#include <unordered_map>

#include "fabric/internal/polled_device.h"
#include "fabric/tcp/internal/multiplexer_set.h"
#include "fabric/tcp/internal/tcp_connection.h"

namespace pmstore::fabric::tcp {

class TcpDevice;

class TcpRegion final : public MemoryRegion {
 public:
  TcpRegion(TcpDevice& device, std::span<std::byte> memory, Access access, uint64_t key);
  ~TcpRegion() override;

  // The memory of these bytes; null if some are outside the region or the right is not granted.
  std::byte* grant(uint64_t address, uint32_t bytes, Access right) const {
    const uint64_t offset = address - remote_.address;
    const bool inside = offset <= remote_.bytes && bytes <= remote_.bytes - offset;
    return inside && has(access_, right) ? memory_.data() + offset : nullptr;
  }

 private:
  TcpDevice& device_;
};

class TcpDevice final : public internal::PolledDevice {
 public:
  static Result<std::unique_ptr<Device>> open(base::Executor& executor);
  ~TcpDevice() override;

  // InvalidArgument when the memory is empty. Access::kRemoteAtomic is accepted without effect:
  // Capabilities::atomics is kNone.
  Result<std::unique_ptr<MemoryRegion>> register_memory(std::span<std::byte> memory,
                                                        Access access) override;
  Result<std::unique_ptr<Listener>> listen(const Uri& uri, Acceptor& acceptor) override;

  // ---- for regions and connections ----
  const TcpRegion* find(uint64_t key) const {
    const auto found = regions_.find(key);
    return found == regions_.end() ? nullptr : found->second;
  }
  void withdraw(const TcpRegion& region);
  MultiplexerSet& multiplexers() { return *multiplexers_; }

 protected:
  Result<std::unique_ptr<internal::PolledConnection>> dial(
      const Uri& uri, const internal::ConnectionOptions& options) override;
  size_t poll_queues() override { return 0; }

 private:
  TcpDevice(base::Executor& executor, std::shared_ptr<MultiplexerSet> multiplexers);

  std::shared_ptr<MultiplexerSet> multiplexers_;
  std::unordered_map<uint64_t, const TcpRegion*> regions_;
};

}  // namespace pmstore::fabric::tcp
