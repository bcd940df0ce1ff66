#include "pmstore/server/leaf_regions.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace pmstore::internal {

const fabric::RemoteRegion* LeafRegions::region_of(TableId table, NodeId leaf) {
  const std::span<std::byte> chunk = index_.share_chunk_of(table, leaf);
  const auto [at, is_new] = chunks_.try_emplace(chunk.data());
  if (is_new) wanted_.push_back(chunk);
  return at->second != nullptr ? &at->second->remote() : nullptr;
}

size_t LeafRegions::add_routes(TableId table, std::span<std::byte> room, size_t reply_bytes) {
  RangeScanReply reply;
  PMSTORE_CHECK(reply_bytes >= sizeof(reply) && reply_bytes <= room.size(), "a whole reply");
  std::memcpy(&reply, room.data(), sizeof(reply));
  const OrderedIndex* const index = index_.ordered(table);
  PMSTORE_CHECK(index != nullptr, "the index has just been scanned");
  for (size_t i = 0; i < reply.leaves && reply.routes < kMostRoutes; ++i) {
    LeafSeen seen;
    std::memcpy(&seen, room.data() + sizeof(reply) + i * sizeof(seen), sizeof(seen));
    const auto leaf = static_cast<NodeId>(seen.unit);
    const fabric::RemoteRegion* const chunk = region_of(table, leaf);
    if (chunk == nullptr) continue;
    const TreeNode::Fences fences = index->fences(leaf);
    MessageWriter writer(room.subspan(reply_bytes));
    writer.put(LeafRoute{seen.unit,
                         *chunk,
                         static_cast<uint16_t>(fences.low.size()),
                         static_cast<uint16_t>(fences.high.size()),
                         {}});
    writer.put_bytes(fences.low);
    writer.put_bytes(fences.high);
    if (writer.overflowed()) break;
    reply_bytes += writer.bytes();
    ++reply.routes;
  }
  std::memcpy(room.data(), &reply, sizeof(reply));
  return reply_bytes;
}

base::Task<void> LeafRegions::work() {
  PMSTORE_CHECK(!working_, "one task registers");
  working_ = true;
  while (!wanted_.empty()) {
    co_await executor_.yield();  // answers go first
    const std::span<std::byte> chunk = wanted_.back();
    wanted_.pop_back();
    auto region = device_.register_memory(chunk, fabric::Access::kRemoteRead);
    if (region) {
      chunks_[chunk.data()] = std::move(*region);
      ++registered_;
    } else {
      ++refused_;
    }
  }
  working_ = false;
}

}  // namespace pmstore::internal
