#include "pmstore/client/location_cache.h"

#include <gtest/gtest.h>

#include <string>

namespace pmstore::internal {
namespace {

KeyHash hash_of(int key) { return hash_key(TableId{1}, "key" + std::to_string(key)); }

TEST(LocationCache, FindsWhatWasPut) {
  LocationCache cache(64);
  EXPECT_FALSE(cache.find(hash_of(1)).used());
  cache.put(hash_of(1), 5, SlotOffset{6400});
  const BucketEntry found = cache.find(hash_of(1));
  ASSERT_TRUE(found.used());
  EXPECT_EQ(found.slot(), SlotOffset{6400});
  EXPECT_EQ(found.size_class(), 5);
  EXPECT_FALSE(cache.find(hash_of(2)).used());
}

TEST(LocationCache, SlotZeroOfClassZeroIsAnEntry) {
  LocationCache cache(64);
  cache.put(KeyHash{0}, 0, SlotOffset{0});
  ASSERT_TRUE(cache.find(KeyHash{0}).used());
  EXPECT_EQ(cache.find(KeyHash{0}).slot(), SlotOffset{0});
}

TEST(LocationCache, PutOfAKnownKeyReplacesIt) {
  LocationCache cache(64);
  cache.put(hash_of(1), 5, SlotOffset{6400});
  cache.put(hash_of(1), 6, SlotOffset{64});
  EXPECT_EQ(cache.find(hash_of(1)).slot(), SlotOffset{64});
  cache.remove(hash_of(1));
  EXPECT_FALSE(cache.find(hash_of(1)).used()) << "no second entry of the same key";
}

TEST(LocationCache, OldestOfAFullSetMakesRoom) {
  LocationCache cache(4);  // one set
  for (int i = 0; i < 5; ++i) cache.put(hash_of(i), 0, SlotOffset{64u * static_cast<unsigned>(i)});
  EXPECT_FALSE(cache.find(hash_of(0)).used());
  for (int i = 1; i < 5; ++i) EXPECT_TRUE(cache.find(hash_of(i)).used()) << i;
}

TEST(LocationCache, RemoveLeavesTheOthers) {
  LocationCache cache(4);
  for (int i = 0; i < 4; ++i) cache.put(hash_of(i), 0, SlotOffset{64u * static_cast<unsigned>(i)});
  cache.remove(hash_of(2));
  cache.put(hash_of(9), 1, SlotOffset{64 * 9});
  EXPECT_FALSE(cache.find(hash_of(2)).used());
  EXPECT_TRUE(cache.find(hash_of(9)).used());
}

TEST(LocationCache, WithoutEntriesItRemembersNothing) {
  LocationCache cache(0);
  cache.put(hash_of(1), 5, SlotOffset{6400});
  EXPECT_FALSE(cache.find(hash_of(1)).used());
  cache.remove(hash_of(1));
}

TEST(LocationCache, ManyKeysMostlyStay) {
  LocationCache cache(4096);
  for (int i = 0; i < 1024; ++i)
    cache.put(hash_of(i), 0, SlotOffset{64u * static_cast<unsigned>(i)});
  int found = 0;
  for (int i = 0; i < 1024; ++i) {
    const BucketEntry entry = cache.find(hash_of(i));
    if (!entry.used()) continue;
    ++found;
    EXPECT_EQ(entry.slot(), SlotOffset{64u * static_cast<unsigned>(i)});
  }
  EXPECT_GT(found, 1000) << "a quarter full, four ways";
}

}  // namespace
}  // namespace pmstore::internal
