// TcpDevice: the device for tcp://HOST:PORT. See fabric/device.h.
//
// Its connections belong to the multiplexers of its executor; the MultiplexerSet polls them.
#pragma once

#include <memory>

#include "fabric/internal/framed_device.h"
#include "fabric/tcp/internal/multiplexer_set.h"
#include "fabric/tcp/internal/tcp_connection.h"

namespace pmstore::fabric::tcp {

class TcpDevice final : public internal::FramedDevice {
 public:
  static Result<std::unique_ptr<Device>> open(base::Executor& executor);
  Result<std::unique_ptr<Listener>> listen(const Uri& uri, Acceptor& acceptor) override;
  // By the end of the stream; a machine that is gone by keepalive (fabric/tcp/internal/socket.h).
  bool notices_dead_peers() const override { return true; }

  // ---- for connections and listeners ----
  MultiplexerSet& multiplexers() { return *multiplexers_; }

 protected:
  Result<std::unique_ptr<internal::PolledConnection>> dial(
      const Uri& uri, const internal::ConnectionOptions& options) override;
  size_t poll_queues() override { return 0; }

 private:
  TcpDevice(base::Executor& executor, std::shared_ptr<MultiplexerSet> multiplexers);

  std::shared_ptr<MultiplexerSet> multiplexers_;
};

}  // namespace pmstore::fabric::tcp
