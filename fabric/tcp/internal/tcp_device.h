// TcpDevice: the device for tcp://HOST:PORT. See fabric/device.h.
//
// Connections of this device to one server share a wire. One or two wires are read at every poll:
// that costs no more than asking whether there is something. With more, an epoll set says which to
// read.
#pragma once

#include <unordered_map>
#include <vector>

#include "fabric/internal/polled_device.h"
#include "fabric/tcp/internal/tcp_connection.h"

namespace pmstore::fabric::tcp {

class TcpDevice;

class TcpRegion final : public MemoryRegion {
 public:
  TcpRegion(TcpDevice& device, std::span<std::byte> memory, Access access, uint64_t key);
  ~TcpRegion() override;

  // Where these bytes are; null when they are not all in the region, or the right is not granted.
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

  // InvalidArgument when the memory is empty. Access::kRemoteAtomic is taken and has no effect:
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
  void watch(int fd, Wire& wire);
  void forget(int fd, Wire& wire);
  void add_dirty(Wire& wire) { dirty_.push_back(&wire); }
  // A client's socket. One too many that has no connections is closed at once.
  void adopt(Socket socket, TcpListener& listener);
  void forget_listener(const TcpListener& listener);
  // Closes sockets of clients that have had no connection for a while.
  void close_idle_wires(uint64_t now_ns);

 protected:
  Result<std::unique_ptr<internal::PolledConnection>> dial(
      const Uri& uri, const internal::ConnectionOptions& options) override;
  size_t poll_queues() override;

 private:
  // Above this many connections one more system call is cheaper than one for each.
  static constexpr size_t kReadAll = 2;
  static constexpr int kMaxReady = 64;

  static constexpr size_t kMaxWires = 1024;  // of clients
  static constexpr uint64_t kIdleNs = 5'000'000'000;

  explicit TcpDevice(base::Executor& executor);
  void flush_dirty();
  size_t read_all();
  size_t read_ready();
  void reap();

  int epoll_fd_ = -1;
  std::unordered_map<uint64_t, const TcpRegion*> regions_;
  std::vector<std::unique_ptr<Wire>> wires_;
  std::vector<Wire*> watched_;  // can be read
  std::vector<Wire*> dirty_;    // have something to send
};

}  // namespace pmstore::fabric::tcp
