#include "pmstore/client/leaf_routes.h"

#include <gtest/gtest.h>

#include <string>

#include "pmstore/layout/bucket_layout.h"
#include "pmstore/shard/ordered_index.h"

namespace pmstore::internal {
namespace {

constexpr TableId kTable = table_id(3, TableKind::kOrdered);
constexpr TableId kNextTable = table_id(4, TableKind::kOrdered);
constexpr uint64_t kChunkBytes = OrderedIndex::kChunkBytes;

LeafRoute route(TableId table, NodeId leaf, uint64_t bytes = kChunkBytes) {
  return {leaf_unit(table, leaf), {0x1000, bytes, 77}, 0, 0, {}};
}

TEST(LeafRoutes, FindTheLeafThatCoversAKey) {
  LeafRoutes routes;
  routes.learn(route(kTable, 1), "", "f");
  routes.learn(route(kTable, 2), "m", "");
  EXPECT_EQ(routes.leaf_of(kTable, "")->leaf, 1u);
  EXPECT_EQ(routes.leaf_of(kTable, "eee")->leaf, 1u);
  EXPECT_FALSE(routes.leaf_of(kTable, "f")) << "not known";
  EXPECT_EQ(routes.leaf_of(kTable, "m")->low, "m");
  EXPECT_EQ(routes.leaf_of(kTable, "zzz")->leaf, 2u);
  EXPECT_FALSE(routes.leaf_of(kNextTable, "zzz"));
}

TEST(LeafRoutes, FindTheLeafBeforeTheEndOfARange) {
  LeafRoutes routes;
  routes.learn(route(kTable, 1), "", "f");
  routes.learn(route(kTable, 2), "f", "m");
  EXPECT_EQ(routes.leaf_before(kTable, "f")->leaf, 1u);
  EXPECT_EQ(routes.leaf_before(kTable, "fa")->leaf, 2u);
  EXPECT_EQ(routes.leaf_before(kTable, "m")->leaf, 2u);
  EXPECT_FALSE(routes.leaf_before(kTable, "ma"));
  EXPECT_FALSE(routes.leaf_before(kTable, "")) << "the last leaf is not known";
  routes.learn(route(kNextTable, 1), "", "");
  EXPECT_FALSE(routes.leaf_before(kTable, ""));
  routes.learn(route(kTable, 3), "m", "");
  EXPECT_EQ(routes.leaf_before(kTable, "")->leaf, 3u);
}

TEST(LeafRoutes, ForgetWhatProvesWrong) {
  LeafRoutes routes;
  routes.learn(route(kTable, 1), "", "f");
  routes.forget(kTable, "f");
  EXPECT_EQ(routes.size(), 1u);
  routes.forget(kTable, "");
  EXPECT_FALSE(routes.leaf_of(kTable, "a"));
  EXPECT_EQ(routes.size(), 0u);
}

TEST(LeafRoutes, ALeafThatWasSplitIsLearnedAnew) {
  LeafRoutes routes;
  routes.learn(route(kTable, 1), "", "");
  routes.learn(kTable, 1, {"", "m"});
  EXPECT_FALSE(routes.leaf_of(kTable, "z"));
  EXPECT_EQ(routes.leaf_of(kTable, "a")->leaf, 1u);
  EXPECT_EQ(routes.size(), 1u);
}

TEST(LeafRoutes, ALeafThatWasMergedTakesTheRoutesOfItsNeighbours) {
  LeafRoutes routes;
  routes.learn(route(kTable, 1), "a", "f");
  routes.learn(route(kTable, 2), "f", "m");
  routes.learn(route(kTable, 3), "m", "");
  routes.learn(route(kTable, 1), "a", "m");
  EXPECT_EQ(routes.size(), 2u);
  EXPECT_EQ(routes.leaf_of(kTable, "g")->leaf, 1u);
  EXPECT_EQ(routes.leaf_of(kTable, "m")->leaf, 3u);
  routes.learn(route(kNextTable, 1), "x", "");
  routes.learn(route(kTable, 1), "a", "");
  EXPECT_EQ(routes.leaf_of(kTable, "z")->leaf, 1u);
  EXPECT_TRUE(routes.leaf_of(kNextTable, "x"));
  EXPECT_EQ(routes.size(), 2u);
}

TEST(LeafRoutes, AddressIsInTheChunk) {
  LeafRoutes routes;
  const NodeId second = OrderedIndex::kChunkNodes;
  routes.learn(route(kTable, second + 2, 3 * kNodeBytes), "", "m");
  const auto address = routes.address_of(kTable, second + 2);
  ASSERT_TRUE(address);
  EXPECT_EQ(address->address, 0x1000 + 2 * kNodeBytes);
  EXPECT_EQ(address->key, 77u);
  EXPECT_TRUE(routes.address_of(kTable, second)) << "another leaf of a known chunk";
  EXPECT_FALSE(routes.address_of(kTable, second + 3)) << "beyond the chunk's end";
  EXPECT_FALSE(routes.address_of(kTable, 2));
  EXPECT_FALSE(routes.address_of(kNextTable, second));
}

TEST(LeafRoutes, WhatIsMalformedIsNotLearned) {
  LeafRoutes routes;
  LeafRoute bucket = route(kTable, 1);
  bucket.unit &= ~kLeafUnit;
  routes.learn(bucket, "", "");
  routes.learn(route(kTable, kNoNode), "", "");
  routes.learn(route(kTable, 1), "b", "b");
  routes.learn(route(kTable, 1), "", std::string(kMaxKeyBytes + 1, 'x'));
  routes.learn(route(kTable, 5, 5 * kNodeBytes), "", "");
  EXPECT_EQ(routes.size(), 0u);
}

TEST(LeafRoutes, TheOneThatWasUsedLeastRecentlyMakesRoom) {
  LeafRoutes routes;
  const auto key = [](size_t i) { return std::to_string(100'000 + i); };
  for (size_t i = 0; i < LeafRoutes::kMostRoutes; ++i) {
    routes.learn(route(kTable, 1), key(i), key(i + 1));
  }
  EXPECT_TRUE(routes.leaf_of(kTable, key(0)));
  routes.learn(route(kTable, 1), "a", "b");
  EXPECT_EQ(routes.size(), LeafRoutes::kMostRoutes);
  EXPECT_TRUE(routes.leaf_of(kTable, key(0)));
  EXPECT_FALSE(routes.leaf_of(kTable, key(1)));
  EXPECT_TRUE(routes.leaf_of(kTable, key(2)));
}

}  // namespace
}  // namespace pmstore::internal
