#include "fabric/tcp/tcp_device.h"

#include "fabric/tcp/internal/tcp_device.h"

namespace pmstore::fabric {

Result<std::unique_ptr<Device>> open_tcp_device(base::Executor& executor) {
  return tcp::TcpDevice::open(executor);
}

}  // namespace pmstore::fabric
