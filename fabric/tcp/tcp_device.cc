#include "fabric/tcp/tcp_device.h"

#include "fabric/tcp/internal/multiplexer_set.h"
#include "fabric/tcp/internal/socket_batch.h"
#include "fabric/tcp/internal/tcp_device.h"

namespace pmstore::fabric {

Result<std::unique_ptr<Device>> open_tcp_device(base::Executor& executor) {
  return tcp::TcpDevice::open(executor);
}

bool tcp_sockets_share_calls(const base::Executor& executor) {
  return executor.options().io_uring && tcp::SocketBatch::open() != nullptr;
}

size_t most_tcp_clients() { return tcp::MultiplexerSet::most_served(); }

}  // namespace pmstore::fabric
