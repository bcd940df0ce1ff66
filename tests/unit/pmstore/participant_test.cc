#include "pmstore/client/participant.h"

#include <gtest/gtest.h>

namespace pmstore::internal {
namespace {

TEST(Participants, AreInTheOrderOfTheFirstAccesses) {
  Participants participants;
  EXPECT_TRUE(participants.empty());
  EXPECT_EQ(participants.find({}), nullptr);
  Participant& first = participants.add({2, 1}, {});
  EXPECT_EQ(&participants.only(), &first);
  for (uint16_t shard = 0; shard < 10; ++shard) participants.add({7, shard}, {});
  EXPECT_EQ(participants.size(), 11u);
  EXPECT_EQ(&participants[0], &first) << "references hold while others come";
  for (uint16_t shard = 0; shard < 10; ++shard) {
    Participant* const found = participants.find({7, shard});
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->number, shard + 1);
    EXPECT_EQ(found, &participants[found->number]);
  }
  EXPECT_EQ(participants.find({2, 0}), nullptr);
}

TEST(Participants, AreForgottenAndTheirMemoryIsKept) {
  Participants participants;
  participants.add({2, 1}, {}).redo.resize(1000);
  participants.add({2, 2}, {}).locks_attempted = true;
  participants.clear();
  EXPECT_TRUE(participants.empty());
  EXPECT_GE(participants.capacity_bytes(), 1000u);
  const Participant& again = participants.add({2, 2}, {});
  EXPECT_EQ(again.number, 0u);
  EXPECT_FALSE(again.locks_attempted);
}

TEST(Participants, OneShardDecidesAloneOnly) {
  Participants participants;
  participants.add({2, 1}, {});
  participants.add({2, 2}, {});
  EXPECT_DEATH(static_cast<void>(participants.only()), "concerns no other");
  EXPECT_DEATH(participants.add({2, 1}, {}), "a shard is there once");
}

}  // namespace
}  // namespace pmstore::internal
