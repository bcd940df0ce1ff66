#include "fabric/internal/rpc_space.h"

#include <bit>

namespace pmstore::fabric::internal {

void RpcSpace::reset(uint32_t bytes, uint32_t max_pieces) {
  PMSTORE_CHECK(bytes % kRpcUnit == 0, "rings are made of whole units");
  total_units_ = bytes / kRpcUnit;
  next_unit_ = used_units_ = 0;
  first_ = count_ = 0;
  pieces_.assign(std::bit_ceil(max_pieces), Taken{0, true});
}

}  // namespace pmstore::fabric::internal
