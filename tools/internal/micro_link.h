// One connection of a MicroClient, with what belongs to it.
#pragma once

#include <memory>

#include "tools/micro_message.h"
#include "tools/micro_workload.h"

namespace pmstore::tools {

struct MicroClient::Link {
  Link(const MicroPoint& point, uint64_t stream, uint64_t streams, uint32_t index)
      : number(index), addresses(point, stream, streams) {}

  const uint32_t number;  // within its client
  MicroAddresses addresses;
  MicroAnswer answer{};
  // An RpcClient outlives its connection, a RemoteWriter does not.
  std::unique_ptr<fabric::RpcClient> rpc;
  std::unique_ptr<fabric::Connection> connection;
  std::unique_ptr<persist::RemoteWriter> writer;
};

}  // namespace pmstore::tools
