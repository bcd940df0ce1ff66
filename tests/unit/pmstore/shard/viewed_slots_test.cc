// Which slots are viewed, and when they are freed.
#include "pmstore/shard/viewed_slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/random.h"

namespace pmstore::internal {
namespace {

class ViewedSlotsTest : public ::testing::Test {
 protected:
  static SlotOffset slot(uint64_t number) { return SlotOffset{number * 64}; }

  std::vector<uint64_t> freed_;
  ViewedSlots viewed_{[this](SlotOffset freed) { freed_.push_back(raw(freed) / 64); }};
};

TEST_F(ViewedSlotsTest, ASlotWithoutViewsIsFreedInTheCall) {
  viewed_.free_slot(slot(1));
  EXPECT_EQ(freed_, std::vector<uint64_t>{1});
  EXPECT_EQ(viewed_.kept(), 0u);
}

TEST_F(ViewedSlotsTest, AViewedSlotIsFreedWhenItsLastViewEnds) {
  ASSERT_TRUE(viewed_.begin_view(slot(1)));
  ASSERT_TRUE(viewed_.begin_view(slot(1)));
  EXPECT_TRUE(viewed_.is_viewed(slot(1)));
  EXPECT_FALSE(viewed_.is_viewed(slot(2)));
  viewed_.free_slot(slot(1));
  EXPECT_EQ(viewed_.kept(), 1u);
  viewed_.end_view(slot(1));
  EXPECT_TRUE(freed_.empty());
  viewed_.end_view(slot(1));
  EXPECT_EQ(freed_, std::vector<uint64_t>{1});
  EXPECT_FALSE(viewed_.is_viewed(slot(1)));
  EXPECT_EQ(viewed_.views() + viewed_.kept(), 0u);
}

TEST_F(ViewedSlotsTest, ASlotThatKeepsItsRecordIsNotFreed) {
  ASSERT_TRUE(viewed_.begin_view(slot(1)));
  viewed_.end_view(slot(1));
  EXPECT_TRUE(freed_.empty());
}

TEST_F(ViewedSlotsTest, SlotZeroIsASlot) {
  EXPECT_FALSE(viewed_.is_viewed(slot(0)));
  ASSERT_TRUE(viewed_.begin_view(slot(0)));
  EXPECT_TRUE(viewed_.is_viewed(slot(0)));
  viewed_.free_slot(slot(0));
  viewed_.end_view(slot(0));
  EXPECT_EQ(freed_, std::vector<uint64_t>{0});
}

TEST_F(ViewedSlotsTest, ThereAreSoManyViewsAndNotOneMore) {
  for (uint64_t i = 0; i < ViewedSlots::kMost; ++i) {
    ASSERT_TRUE(viewed_.begin_view(slot(i / 2)));
  }
  const Status refused = viewed_.begin_view(slot(0));
  EXPECT_EQ(refused.code(), ErrorCode::kBackPressure);
  EXPECT_NE(refused.error().message.find("65536"), std::string::npos);
  EXPECT_FALSE(viewed_.is_viewed(slot(ViewedSlots::kMost)));
  viewed_.end_view(slot(7));
  EXPECT_TRUE(viewed_.begin_view(slot(ViewedSlots::kMost)));
  EXPECT_EQ(viewed_.views(), ViewedSlots::kMost);
}

TEST_F(ViewedSlotsTest, KeptOnesAreFreedBeforeTheStoreCloses) {
  for (const uint64_t each : {1, 2, 2, 3}) ASSERT_TRUE(viewed_.begin_view(slot(each)));
  viewed_.free_slot(slot(2));
  viewed_.free_slot(slot(3));
  viewed_.free_kept();
  std::sort(freed_.begin(), freed_.end());
  EXPECT_EQ(freed_, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(viewed_.kept(), 0u);
  for (const uint64_t each : {1, 2, 2, 3}) viewed_.end_view(slot(each));
  EXPECT_EQ(freed_.size(), 2u) << "once";
  EXPECT_EQ(viewed_.views(), 0u);
}

TEST_F(ViewedSlotsTest, ViewsBehindTheEndOfTheStoreFreeNothing) {
  ASSERT_TRUE(viewed_.begin_view(slot(1)));
  viewed_.free_slot(slot(1));
  viewed_.end_of_store();
  viewed_.end_view(slot(1));
  EXPECT_TRUE(freed_.empty());
}

TEST_F(ViewedSlotsTest, EndsOnceAndIsFreedOnce) {
  EXPECT_DEATH(viewed_.end_view(slot(1)), "a view ends once");
  ASSERT_TRUE(viewed_.begin_view(slot(1)));
  viewed_.free_slot(slot(1));
  EXPECT_DEATH(viewed_.free_slot(slot(1)), "a slot is freed once");
  EXPECT_DEATH(static_cast<void>(viewed_.begin_view(slot(1))), "is not viewed again");
}

// Any order of views, ends and frees, beside a map.
TEST_F(ViewedSlotsTest, AgreesWithAMap) {
  struct Expected {
    unsigned views = 0;
    bool kept = false;
  };
  Random random(1);
  std::map<uint64_t, Expected> expected;
  std::vector<uint64_t> freed;
  for (int step = 0; step < 200'000; ++step) {
    // Slots of the same slab, as neighbours in the table, and some that lie far apart.
    const uint64_t spread = random.below(2) == 0 ? 1 : uint64_t{1} << 20;
    const uint64_t number = random.below(400) * spread;
    Expected& one = expected[number];
    ASSERT_EQ(viewed_.is_viewed(slot(number)), one.views > 0);
    // As many begin as end; but now and then many more.
    const uint64_t most = step / 20'000 % 2 == 0 ? 6 : 3;
    const uint64_t action = random.below(most);
    if (action == 1 && one.views > 0) {
      viewed_.end_view(slot(number));
      if (--one.views == 0 && one.kept) freed.push_back(number);
      if (one.views == 0) one.kept = false;
    } else if (action == 2 && !one.kept) {
      viewed_.free_slot(slot(number));
      one.kept = one.views > 0;
      if (!one.kept) freed.push_back(number);
    } else if (action != 1 && !one.kept) {
      ASSERT_TRUE(viewed_.begin_view(slot(number)));
      ++one.views;
    }
    ASSERT_EQ(freed_.size(), freed.size());
  }
  EXPECT_EQ(freed_, freed);
}

}  // namespace
}  // namespace pmstore::internal
