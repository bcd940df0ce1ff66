#include "pmstore/server/lock_lists.h"

#include <gtest/gtest.h>

#include <cstring>

namespace pmstore::internal {
namespace {

class LockListsTest : public ::testing::Test {
 protected:
  void put(uint64_t list, uint64_t place, uint64_t entry) {
    std::memcpy(&lists_->bytes()[list * kLockListBytes + place * 8], &entry, sizeof(entry));
  }
  std::unique_ptr<LockLists> lists_ = std::move(*LockLists::create());
};

TEST_F(LockListsTest, NobodyHasLockedAnythingAtFirst) { EXPECT_TRUE(lists_->slots().empty()); }

TEST_F(LockListsTest, EveryListEndsAtItsFirstEmptyPlace) {
  put(0, 0, lock_list_entry(SlotOffset{0}));
  put(0, 1, lock_list_entry(SlotOffset{128}));
  put(0, 3, lock_list_entry(SlotOffset{64}));  // of an earlier, longer list
  put(kLockLists - 1, 0, lock_list_entry(SlotOffset{256}));
  const std::vector<SlotOffset> expected{SlotOffset{0}, SlotOffset{128}, SlotOffset{256}};
  EXPECT_EQ(lists_->slots(), expected);
}

TEST_F(LockListsTest, FullListEndsWhereTheNextOneBegins) {
  for (uint64_t i = 0; i < kLocksPerList; ++i) put(5, i, lock_list_entry(SlotOffset{i * 64}));
  EXPECT_EQ(lists_->slots().size(), kLocksPerList);
}

}  // namespace
}  // namespace pmstore::internal
