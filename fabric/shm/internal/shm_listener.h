// ShmListener: a listening Unix socket. See fabric/device.h.
#pragma once

#include "base/sleeper.h"
#include "fabric/internal/handshake_listener.h"
#include "fabric/shm/internal/shm_socket.h"

namespace pmstore::fabric::shm {

class ShmDevice;

class ShmListener final : public internal::HandshakeListener, public base::Watched {
 public:
  // Io when a live server has the name.
  static Result<std::unique_ptr<Listener>> open(ShmDevice& device, const Uri& uri,
                                                Acceptor& acceptor);
  ~ShmListener() override;

  uint64_t next_tick_ns(uint64_t now_ns) const override;
  void on_ready(uint32_t) override {
    clients_wait_ = true;
    device_.tick_soon();
  }

 protected:
  void accept_new() override;

 private:
  // While a client cannot be taken, accepting is tried again after so long.
  static constexpr uint64_t kRetryNs = 100'000'000;

  ShmListener(ShmDevice& device, const Uri& uri, Acceptor& acceptor, ShmSocket socket);
  // The socket stays readable: watched, it would keep the executor from blocking.
  void retry_later();

  ShmDevice& shm_;
  ShmSocket socket_;
  bool watched_ = false;
  bool clients_wait_ = true;
  uint64_t retry_at_ns_ = 0;  // 0: accepting has not failed; else the socket is not watched
};

}  // namespace pmstore::fabric::shm
