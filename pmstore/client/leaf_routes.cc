#include "pmstore/client/leaf_routes.h"

#include <iterator>

#include "base/check.h"
#include "pmstore/layout/bucket_layout.h"
#include "pmstore/shard/ordered_index.h"

namespace pmstore::internal {
namespace {

uint64_t chunk_name(TableId table, NodeId leaf) {
  return static_cast<uint64_t>(raw(table)) << 32 | leaf / OrderedIndex::kChunkNodes;
}

}  // namespace

void LeafRoutes::learn(const LeafRoute& route, std::string_view low, std::string_view high) {
  const auto table = static_cast<TableId>(route.unit >> 32 & 0xffff);
  const auto leaf = static_cast<NodeId>(route.unit);
  const bool in_order = high.empty() || low < high;
  if (route.unit != leaf_unit(table, leaf) || leaf == kNoNode || !in_order) return;
  if (low.size() > kMaxKeyBytes || high.size() > kMaxKeyBytes) return;
  const uint64_t chunk = chunk_name(table, leaf);
  if (chunks_.size() < kMostChunks) chunks_.try_emplace(chunk, route.chunk);
  if (address_of(table, leaf)) learn(table, leaf, {low, high});
}

void LeafRoutes::learn(TableId table, NodeId leaf, TreeNode::Fences fences) {
  const auto [at, is_new] = routes_.try_emplace(Low(table, fences.low));
  for (auto next = std::next(at); next != routes_.end() && next->first.first == table;) {
    if (!fences.high.empty() && next->first.second >= fences.high) break;
    next = remove(next);  // it was merged into this one
  }
  Route& route = at->second;
  route.leaf = leaf;
  route.high = fences.high;
  if (!is_new) return;
  used_.push_front(at);
  route.used = used_.begin();
  if (routes_.size() <= kMostRoutes) return;
  routes_.erase(used_.back());
  used_.pop_back();
  PMSTORE_CHECK(used_.size() == routes_.size(), "each route is used once");
}

LeafRoutes::Found LeafRoutes::use(Routes::iterator route) {
  used_.splice(used_.begin(), used_, route->second.used);
  return {route->second.leaf, route->first.second};
}

std::optional<LeafRoutes::Found> LeafRoutes::leaf_of(TableId table, std::string_view key) {
  const auto behind = routes_.upper_bound(Low(table, key));
  if (behind == routes_.begin()) return std::nullopt;
  const auto route = std::prev(behind);
  if (route->first.first != table) return std::nullopt;
  if (!route->second.high.empty() && key >= route->second.high) return std::nullopt;
  return use(route);
}

std::optional<LeafRoutes::Found> LeafRoutes::leaf_before(TableId table, std::string_view to) {
  const Low end(table, to.empty() ? std::string(kMaxKeyBytes + 1, '\xff') : std::string(to));
  const auto behind = routes_.lower_bound(end);
  if (behind == routes_.begin()) return std::nullopt;
  const auto route = std::prev(behind);
  if (route->first.first != table) return std::nullopt;
  const std::string& high = route->second.high;
  if (!high.empty() && (to.empty() || high < to)) return std::nullopt;
  return use(route);
}

void LeafRoutes::forget(TableId table, std::string_view low) {
  const auto route = routes_.find(Low(table, low));
  if (route != routes_.end()) remove(route);
}

LeafRoutes::Routes::iterator LeafRoutes::remove(Routes::iterator route) {
  used_.erase(route->second.used);
  return routes_.erase(route);
}

std::optional<fabric::RemoteAddress> LeafRoutes::address_of(TableId table, NodeId leaf) const {
  const auto chunk = chunks_.find(chunk_name(table, leaf));
  if (chunk == chunks_.end()) return std::nullopt;
  const uint64_t offset = leaf % OrderedIndex::kChunkNodes * kNodeBytes;
  if (offset + kNodeBytes > chunk->second.bytes) return std::nullopt;
  return chunk->second.at(offset);
}

}  // namespace pmstore::internal
