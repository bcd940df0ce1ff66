// One connection of a MicroClient, with what belongs to it; with rule H2, as many as the server has
// threads for its DIMMs.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "tools/bench/micro_message.h"
#include "tools/bench/micro_workload.h"

namespace pmstore::tools {

struct MicroClient::Link {
  // To one server thread.
  struct Route {
    MicroAnswer answer{};
    // An RpcClient outlives its connection, a RemoteWriter does not.
    std::unique_ptr<fabric::RpcClient> rpc;
    std::unique_ptr<fabric::Connection> connection;
    std::unique_ptr<persist::RemoteWriter> writer;
  };

  Link(const MicroPoint& point, uint64_t stream, uint64_t streams, uint32_t index)
      : number(index), addresses(point, stream, streams) {}

  Route& route(uint64_t offset) const {
    return *of_dimm[offset / kStripeBytes % kInterleavedDimms];
  }

  const uint32_t number;  // within its client
  MicroAddresses addresses;
  std::vector<std::unique_ptr<Route>> routes;
  std::array<Route*, kInterleavedDimms> of_dimm{};  // which of them takes a DIMM's requests
};

}  // namespace pmstore::tools
