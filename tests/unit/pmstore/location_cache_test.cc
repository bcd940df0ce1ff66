#include "pmstore/client/location_cache.h"

#include <gtest/gtest.h>

#include <string>

namespace pmstore::internal {
namespace {

constexpr ShardId kShard{3, 1};

KeyHash hash_of(int key) { return hash_key(TableId{1}, "key" + std::to_string(key)); }

TEST(LocationCache, FindsWhatWasPut) {
  LocationCache cache(64);
  EXPECT_FALSE(cache.find(hash_of(1), kShard).used());
  cache.put(hash_of(1), kShard, 5, SlotOffset{6400});
  const BucketEntry found = cache.find(hash_of(1), kShard);
  ASSERT_TRUE(found.used());
  EXPECT_EQ(found.slot(), SlotOffset{6400});
  EXPECT_EQ(found.size_class(), 5);
  EXPECT_FALSE(cache.find(hash_of(2), kShard).used());
}

TEST(LocationCache, SlotZeroOfClassZeroIsAnEntry) {
  LocationCache cache(64);
  cache.put(KeyHash{0}, kShard, 0, SlotOffset{0});
  ASSERT_TRUE(cache.find(KeyHash{0}, kShard).used());
  EXPECT_EQ(cache.find(KeyHash{0}, kShard).slot(), SlotOffset{0});
}

TEST(LocationCache, PutOfAKnownKeyReplacesIt) {
  LocationCache cache(64);
  cache.put(hash_of(1), kShard, 5, SlotOffset{6400});
  cache.put(hash_of(1), kShard, 6, SlotOffset{64});
  EXPECT_EQ(cache.find(hash_of(1), kShard).slot(), SlotOffset{64});
  cache.remove(hash_of(1));
  EXPECT_FALSE(cache.find(hash_of(1), kShard).used()) << "no second entry of the same key";
}

TEST(LocationCache, OldestOfAFullSetMakesRoom) {
  LocationCache cache(4);  // one set
  for (int i = 0; i < 5; ++i)
    cache.put(hash_of(i), kShard, 0, SlotOffset{64u * static_cast<unsigned>(i)});
  EXPECT_FALSE(cache.find(hash_of(0), kShard).used());
  for (int i = 1; i < 5; ++i) EXPECT_TRUE(cache.find(hash_of(i), kShard).used()) << i;
}

TEST(LocationCache, RemoveLeavesTheOthers) {
  LocationCache cache(4);
  for (int i = 0; i < 4; ++i)
    cache.put(hash_of(i), kShard, 0, SlotOffset{64u * static_cast<unsigned>(i)});
  cache.remove(hash_of(2));
  cache.put(hash_of(9), kShard, 1, SlotOffset{64 * 9});
  EXPECT_FALSE(cache.find(hash_of(2), kShard).used());
  EXPECT_TRUE(cache.find(hash_of(9), kShard).used());
}

TEST(LocationCache, WithoutEntriesItRemembersNothing) {
  LocationCache cache(0);
  cache.put(hash_of(1), kShard, 5, SlotOffset{6400});
  EXPECT_FALSE(cache.find(hash_of(1), kShard).used());
  cache.remove(hash_of(1));
}

TEST(LocationCache, KeyThatWasSeenInAnotherShardIsNotFound) {
  LocationCache cache(64);
  cache.put(hash_of(1), kShard, 5, SlotOffset{6400});
  for (const ShardId& other : {ShardId{3, 0}, ShardId{4, 1}, ShardId{}}) {
    EXPECT_FALSE(cache.find(hash_of(1), other).used());
  }
  cache.put(hash_of(1), {4, 1}, 5, SlotOffset{64});
  EXPECT_FALSE(cache.find(hash_of(1), kShard).used());
  EXPECT_EQ(cache.find(hash_of(1), {4, 1}).slot(), SlotOffset{64});
  EXPECT_EQ(cache.find(hash_of(1), {4, 1}).tag(), hash_of(1).tag());
}

TEST(LocationCache, RemembersSoManyShardsOnly) {
  LocationCache cache(64);
  cache.put(hash_of(1), kShard, 0, SlotOffset{0});
  for (uint32_t i = 1; i < LocationCache::kMostShards; ++i) {
    cache.put(hash_of(2), {i, 7}, 0, SlotOffset{0});
  }
  EXPECT_TRUE(cache.find(hash_of(2), {LocationCache::kMostShards - 1, 7}).used());
  cache.put(hash_of(2), {LocationCache::kMostShards, 7}, 0, SlotOffset{0});
  EXPECT_FALSE(cache.find(hash_of(2), {LocationCache::kMostShards, 7}).used());
  EXPECT_FALSE(cache.find(hash_of(2), {LocationCache::kMostShards - 1, 7}).used());
  EXPECT_TRUE(cache.find(hash_of(1), kShard).used());
}

TEST(LocationCache, ManyKeysMostlyStay) {
  LocationCache cache(4096);
  for (int i = 0; i < 1024; ++i)
    cache.put(hash_of(i), kShard, 0, SlotOffset{64u * static_cast<unsigned>(i)});
  int found = 0;
  for (int i = 0; i < 1024; ++i) {
    const BucketEntry entry = cache.find(hash_of(i), kShard);
    if (!entry.used()) continue;
    ++found;
    EXPECT_EQ(entry.slot(), SlotOffset{64u * static_cast<unsigned>(i)});
  }
  EXPECT_GT(found, 1000) << "a quarter full, four ways";
}

}  // namespace
}  // namespace pmstore::internal
