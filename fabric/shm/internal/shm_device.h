// ShmDevice: the device for shm://NAME. See fabric/device.h and docs/fabric-shm.md.
#pragma once

#include <memory>

#include "fabric/internal/framed_device.h"
#include "fabric/shm/internal/shm_connection.h"

namespace pmstore::fabric::shm {

class ShmDevice final : public internal::FramedDevice {
 public:
  explicit ShmDevice(base::Executor& executor) : FramedDevice(executor, Scheme::kShm) {}

  Result<std::unique_ptr<Listener>> listen(const Uri& uri, Acceptor& acceptor) override;
  bool notices_dead_peers() const override { return true; }

  bool arm() override;
  void disarm() override;

  // How often this device has woken a peer: its system calls on the data path.
  uint64_t rings() const { return rings_; }

  // ---- for connections ----
  void count_ring() { ++rings_; }

 protected:
  Result<std::unique_ptr<internal::PolledConnection>> dial(
      const Uri& uri, const internal::ConnectionOptions& options) override;
  void withdraw_from_connections(const MemoryRegion& region) override;

 private:
  uint64_t rings_ = 0;
};

}  // namespace pmstore::fabric::shm
