// LeafRoutes: where the leaves of ordered tables lie in a server's memory, as far as a session has
// seen.
//
// A route is only a hint: leaves split and merge, so the reader compares what it has READ, and
// forgets a route that proves wrong. The memory that a route names can be READ as long as the
// session lives, whatever it is used for.
// Bounded: kMostRoutes leaves, those that were used last; of kMostChunks chunks of memory, those
// that came first. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "fabric/memory_region.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/shard/tree_node.h"
#include "pmstore/types.h"

namespace pmstore::internal {

class LeafRoutes {
 public:
  static constexpr size_t kMostRoutes = 4096;
  static constexpr size_t kMostChunks = 4096;

  // As the server has answered. What is malformed is not learned.
  void learn(const LeafRoute& route, std::string_view low, std::string_view high);
  // As the leaf itself says.
  void learn(TableId table, NodeId leaf, TreeNode::Fences fences);
  struct Found {
    NodeId leaf;
    std::string low;
  };
  // The leaf that covers `key`, and the one that covers the keys just before `to` (empty: the last
  // one).
  std::optional<Found> leaf_of(TableId table, std::string_view key);
  std::optional<Found> leaf_before(TableId table, std::string_view to);
  // Of the leaf with this fence.
  void forget(TableId table, std::string_view low);
  // nullopt: its chunk is not known.
  std::optional<fabric::RemoteAddress> address_of(TableId table, NodeId leaf) const;
  size_t size() const { return routes_.size(); }

 private:
  using Low = std::pair<TableId, std::string>;
  struct Route;
  using Routes = std::map<Low, Route>;
  struct Route {
    NodeId leaf;
    std::string high;
    std::list<Routes::const_iterator>::iterator used;  // in used_
  };

  Found use(Routes::iterator route);
  // Gives the next one.
  Routes::iterator remove(Routes::iterator route);

  Routes routes_;
  std::list<Routes::const_iterator> used_;                     // the last one first
  std::unordered_map<uint64_t, fabric::RemoteRegion> chunks_;  // by table and number
};

}  // namespace pmstore::internal
