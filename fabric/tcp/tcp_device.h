// tcp://HOST:PORT: RDMA's requests over a TCP socket. See fabric/device.h for the contract, and
// docs/fabric-tcp.md for the protocol.
#pragma once

#include <memory>

#include "fabric/device.h"

namespace pmstore::fabric {

Result<std::unique_ptr<Device>> open_tcp_device(base::Executor& executor);

// Whether several sockets of `executor` share a system call: it may use io_uring, and the kernel
// has it. Else each socket has its own calls.
bool tcp_sockets_share_calls(const base::Executor& executor);

// How many sockets with clients this process can have within its present limit of open files.
size_t most_tcp_clients();

}  // namespace pmstore::fabric
