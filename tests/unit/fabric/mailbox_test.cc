// Two mailboxes; the test is the wire between them.
#include "fabric/ofi/internal/mailbox.h"

#include <gtest/gtest.h>

#include <cstring>

namespace pmstore::fabric::ofi {
namespace {

class OfiMailbox : public testing::Test {
 protected:
  void SetUp() override {
    auto provider = Provider::open(Scheme::kTcp);
    ASSERT_TRUE(provider) << provider.error().to_string();
    provider_ = std::move(*provider);
    for (auto* mailbox : {&sender_, &receiver_}) {
      auto created = Mailbox::create(*provider_);
      ASSERT_TRUE(created) << created.error().to_string();
      *mailbox = std::move(*created);
    }
    ASSERT_TRUE(sender_->set_peer(receiver_->name()));
    ASSERT_TRUE(receiver_->set_peer(sender_->name()));
  }

  // The first `bytes` of a piece arrive.
  static void deliver(const Mailbox::Piece& piece, Mailbox& to, size_t bytes = 8) {
    ASSERT_LE(piece.offset + bytes, to.memory().size());
    std::memcpy(to.memory().data() + piece.offset, piece.local.iov_base, bytes);
  }
  void send(uint32_t immediate) {
    ASSERT_TRUE(sender_->has_room());
    deliver(sender_->entry(immediate), *receiver_);
    sender_->count_sent();
  }
  // True if one was due.
  bool send_credit() {
    const auto credit = receiver_->credit_due();
    if (!credit) return false;
    deliver(*credit, *sender_);
    receiver_->count_credited();
    return true;
  }

  std::unique_ptr<Provider> provider_;
  std::unique_ptr<Mailbox> sender_;
  std::unique_ptr<Mailbox> receiver_;
};

TEST_F(OfiMailbox, GivesEveryImmediateOnceAndInOrderThroughManyLaps) {
  for (uint32_t i = 0; i < 10 * Mailbox::kEntries; ++i) {
    EXPECT_FALSE(receiver_->take());
    send(~i);
    EXPECT_EQ(receiver_->take(), ~i);
    send_credit();
  }
  EXPECT_FALSE(receiver_->take());
}

TEST_F(OfiMailbox, IsFullUntilThePeerSaysHowManyItHasTaken) {
  for (uint32_t i = 0; i < Mailbox::kEntries; ++i) send(i);
  EXPECT_FALSE(sender_->has_room());
  EXPECT_FALSE(send_credit()) << "nothing was taken";
  uint32_t taken = 0;
  while (!receiver_->credit_due()) {
    ASSERT_EQ(receiver_->take(), taken);
    ++taken;
  }
  EXPECT_FALSE(sender_->has_room()) << "it has not been told";
  EXPECT_TRUE(send_credit());
  for (uint32_t i = 0; i < taken; ++i) send(Mailbox::kEntries + i);
  EXPECT_FALSE(sender_->has_room());
  for (; taken < 2 * Mailbox::kEntries && receiver_->take() == taken; ++taken) {
  }
  EXPECT_EQ(taken, Mailbox::kEntries + Mailbox::kEntries / 4);
}

TEST_F(OfiMailbox, AnEntryThatHasArrivedInPartIsNotTakenOrIsRightAlready) {
  for (uint32_t i = 0; i < 3 * Mailbox::kEntries; ++i) {
    const uint32_t immediate = i * 2'654'435'761u;
    const Mailbox::Piece entry = sender_->entry(immediate);
    bool taken = false;
    for (size_t bytes = 0; bytes <= 8 && !taken; ++bytes) {
      deliver(entry, *receiver_, bytes);
      if (const auto got = receiver_->take()) {
        EXPECT_EQ(*got, immediate) << i << " after " << bytes << " bytes";
        EXPECT_GT(bytes, 4u) << "the sequence comes last";
        taken = true;
      }
    }
    ASSERT_TRUE(taken);
    sender_->count_sent();
    send_credit();
  }
}

TEST_F(OfiMailbox, ACreditThatHasArrivedInPartMakesNoRoomThatIsNotThere) {
  for (uint32_t i = 0; i < Mailbox::kEntries; ++i) send(i);
  uint32_t next = 0;
  for (int round = 0; round < 50; ++round) {
    constexpr uint32_t kTaken = 300;  // its sums differ in every bit of the lowest byte
    for (uint32_t i = 0; i < kTaken; ++i) ASSERT_EQ(receiver_->take(), next++);
    const auto credit = receiver_->credit_due();
    ASSERT_TRUE(credit);
    uint32_t room = 0;
    for (size_t bytes = 0; bytes <= 8; ++bytes) {
      deliver(*credit, *sender_, bytes);
      for (; sender_->has_room(); ++room) send(Mailbox::kEntries + next - kTaken + room);
      ASSERT_LE(room, kTaken) << "what was not taken is overwritten";
    }
    EXPECT_EQ(room, kTaken);
    receiver_->count_credited();
  }
}

TEST_F(OfiMailbox, RefusesANameThatIsNoKey) {
  EXPECT_EQ(sender_->set_peer("").code(), ErrorCode::kProtocol);
  EXPECT_EQ(sender_->set_peer("123456789").code(), ErrorCode::kProtocol);
}

TEST_F(OfiMailbox, HasNoRoomBeforeItKnowsThePeer) {
  auto lone = Mailbox::create(*provider_);
  ASSERT_TRUE(lone);
  EXPECT_FALSE((*lone)->has_room());
}

}  // namespace
}  // namespace pmstore::fabric::ofi
