// tcp://HOST:PORT: RDMA's requests over a TCP socket. See fabric/device.h for the contract, and
// docs/fabric-tcp.md for the protocol.
#pragma once

#include <memory>

#include "fabric/device.h"

namespace pmstore::fabric {

Result<std::unique_ptr<Device>> open_tcp_device(base::Executor& executor);

}  // namespace pmstore::fabric
