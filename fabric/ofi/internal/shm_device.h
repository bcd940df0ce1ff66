// ShmDevice: the device for shm://NAME, over libfabric's shm provider. See fabric/device.h.
//
// Peers run on this host as the same user and trust each other: libfabric's queues live in memory
// that both write.
#pragma once

#include "fabric/internal/handshake_listener.h"
#include "fabric/ofi/internal/ofi_device.h"
#include "fabric/ofi/internal/shm_connection.h"

namespace pmstore::fabric::ofi {

class ShmDevice final : public OfiDevice {
 public:
  static Result<std::unique_ptr<Device>> open(base::Executor& executor);

  Result<std::unique_ptr<Listener>> listen(const Uri& uri, Acceptor& acceptor) override;

  // ---- for connections ----
  ShmLockBreaker& lock_breaker() { return lock_breaker_; }

 protected:
  Result<std::unique_ptr<internal::PolledConnection>> dial(
      const Uri& uri, const ConnectionOptions& options) override;

 private:
  ShmDevice(base::Executor& executor, std::unique_ptr<Provider> provider);
  ShmLockBreaker lock_breaker_;
};

class ShmListener final : public internal::HandshakeListener {
 public:
  // Io when a live server has the name.
  static Result<std::unique_ptr<Listener>> open(ShmDevice& device, const Uri& uri,
                                                Acceptor& acceptor);

 protected:
  void accept_new() override;

 private:
  ShmListener(ShmDevice& device, const Uri& uri, Acceptor& acceptor, ShmSocket socket);
  ShmDevice& shm_;
  ShmSocket socket_;
};

}  // namespace pmstore::fabric::ofi
