// LogStore: exclusive producers, and what a hostile one can do.
#include <gtest/gtest.h>

#include "log/log_layout.h"
#include "tests/unit/log/log_pool.h"

namespace pmstore::log {
namespace {

// Writes as a client does: one-sided, past the server.
class Producer {
 public:
  Producer(LogPool& pool, uint64_t id, const LogStore::Grant& grant)
      : pool_(pool), id_(id), position_(grant.position), index_(grant.next_index), grant_(grant) {}
  void land(const std::string& payload, uint64_t durable_lsn) {
    const LogEntryPrefix prefix{durable_lsn};
    const uint64_t bytes = sizeof prefix + payload.size();
    const PlannedEntry plan = plan_entry(position_, bytes, true).value();
    std::vector<std::byte> buffer(entry_room(bytes));
    std::memcpy(buffer.data() + sizeof(EntryHeader), &prefix, sizeof prefix);
    std::memcpy(buffer.data() + sizeof(EntryHeader) + sizeof prefix, payload.data(),
                payload.size());
    if (plan.pad_bytes > 0) {
      std::byte pad[kMaxPadWriteBytes];
      const uint64_t count = seal_pad(pad, plan, position_);
      std::memcpy(pool_.data_of(id_, plan.pad_lsn), pad, count);
    }
    seal_entry(buffer, plan, position_, bytes, index_++);
    std::memcpy(pool_.data_of(id_, plan.lsn), buffer.data(), plan.bytes);
    position_.tail_lsn = plan.next_lsn();
  }
  void publish() { *grant_.tail_word = position_.tail_lsn; }
  RingPosition& position() { return position_; }

 private:
  LogPool& pool_;
  uint64_t id_;
  RingPosition position_;
  uint64_t index_;
  LogStore::Grant grant_;
};

TEST(LogStore, ProducersEntriesCountWhenItIsGone) {
  LogPool pool;
  const uint64_t id = pool.make("a");
  ASSERT_TRUE(pool.append(id, {"one"}));
  auto grant = pool.store().acquire(id, 1);
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->next_index, 2u);
  EXPECT_TRUE(pool.store().info(id)->exclusive);
  EXPECT_EQ(pool.append(id, {"no"}).code(), ErrorCode::kBusy);
  EXPECT_EQ(pool.store().seal(id).code(), ErrorCode::kBusy);
  EXPECT_EQ(pool.store().erase(id).code(), ErrorCode::kBusy);
  Producer producer(pool, id, *grant);
  producer.land("two", 64);
  producer.publish();
  EXPECT_EQ(pool.store().info(id)->next_index, 3u);
  producer.land("three", 128);
  EXPECT_EQ(pool.store().info(id)->next_index, 3u) << "not published yet";
  const uint32_t incarnation = pool.store().info(id)->incarnation;
  ASSERT_TRUE(pool.store().release(id));
  EXPECT_GT(pool.store().info(id)->incarnation, incarnation);
  EXPECT_EQ(pool.words_of(id).incarnation, pool.store().info(id)->incarnation);
  EXPECT_FALSE(pool.store().info(id)->exclusive);
  ASSERT_TRUE(pool.append(id, {"four"}));
  EXPECT_EQ(entries_of(pool.store(), "a"),
            (std::vector<TestEntry>{{1, "one"}, {2, "two"}, {3, "three"}, {4, "four"}}));
}

// The next one has the log, whose medium has been damaged since what it holds was read.
TEST(LogStore, WhatWasPublishedOfAReplicaStaysPublished) {
  LogPool pool(1u << 20);
  ReplicaPlace place;
  place.replicas = {"local:a"};
  const uint64_t id = pool.store().create("a", {.bytes = 800 * 1024}, place).value().id;
  auto grant = pool.store().acquire(id, 1);
  ASSERT_TRUE(grant);
  Producer producer(pool, id, *grant);
  for (int i = 0; i < 3; ++i) {
    producer.land("entry", 0);
    if (i == 1) producer.publish();
  }
  ASSERT_TRUE(pool.store().release(id));
  ASSERT_TRUE(pool.store().acquire(id, 1));
  const auto damage = [&] {
    for (const uint64_t lsn : {64, 128}) {
      pool.data_of(id, lsn)[sizeof(EntryHeader)] ^= std::byte{1};
    }
  };
  damage();
  EXPECT_EQ(pool.store().info(id)->tail_lsn, 128u);
  EXPECT_EQ(pool.store().info(id)->next_index, 3u);
  ASSERT_TRUE(pool.store().release(id));
  EXPECT_EQ(pool.words_of(id).tail_lsn, 128u);
  ASSERT_TRUE(pool.store().seal(id));
  damage();
  pool.reopen();
  EXPECT_EQ(entries_of(pool.store(), "a").size(), 2u);
}

TEST(LogStore, StolenFromProducerCannotAppendAnyMore) {
  LogPool pool;
  const uint64_t id = pool.make("a");
  auto first = pool.store().acquire(id, 1);
  Producer loser(pool, id, *first);
  loser.land("one", 0);
  auto second = pool.store().acquire(id, 1);
  ASSERT_TRUE(second);
  EXPECT_GT(second->position.incarnation, first->position.incarnation);
  EXPECT_EQ(second->next_index, 2u);
  loser.land("ghost", 0);  // as it would land if the queue pair were still there
  ASSERT_TRUE(pool.store().release(id));
  EXPECT_EQ(entries_of(pool.store(), "a"), (std::vector<TestEntry>{{1, "one"}}));
}

TEST(LogStore, MembershipMustBeTheLogs) {
  LogPool pool;
  const uint64_t id = pool.make("a");
  EXPECT_EQ(pool.store().acquire(id, 2).code(), ErrorCode::kConflict);
}

TEST(LogStore, ProducerGetsRoomBehindItsPublishedTail) {
  LogPool pool;
  const uint64_t id = pool.make("a", FullPolicy::kTrimOldest);
  auto grant = pool.store().acquire(id, 1);
  Producer producer(pool, id, *grant);
  for (int i = 0; i < 16; ++i) producer.land(text_of(i, 900), 0);
  producer.publish();
  const auto start = pool.store().make_room(id, 1024);
  ASSERT_TRUE(start) << start.error().to_string();
  EXPECT_EQ(*start, 2048u);
  EXPECT_EQ(pool.words_of(id).start_lsn, 2048u);
  producer.position().start_lsn = *start;
  producer.land(text_of(99, 900), 0);
  EXPECT_EQ(*pool.store().make_room(id, kTestLog), 16384u);
  EXPECT_EQ(pool.store().make_room(id, kTestLog + 1).code(), ErrorCode::kTooLarge);
  const uint64_t other = pool.make("b");
  auto second = pool.store().acquire(other, 1);
  Producer full(pool, other, *second);
  for (int i = 0; i < 16; ++i) full.land(text_of(i, 900), 0);
  full.publish();
  EXPECT_EQ(pool.store().make_room(other, 1024).code(), ErrorCode::kBackPressure);
}

// Whatever a producer writes into its word, the server believes what it finds.
TEST(LogStore, ForgedTailWordHarmsOnlyItsOwnLog) {
  for (const uint64_t lie :
       {uint64_t{5}, uint64_t{64}, uint64_t{4096}, uint64_t{1} << 40, UINT64_MAX}) {
    LogPool pool;
    const uint64_t id = pool.make("a");
    const uint64_t other = pool.make("b");
    ASSERT_TRUE(pool.append(other, {"safe"}));
    auto grant = pool.store().acquire(id, 1);
    Producer producer(pool, id, *grant);
    producer.land("one", 0);
    *grant->tail_word = lie;
    EXPECT_LE(pool.store().info(id)->tail_lsn, 64u);
    (void)pool.store().trim(id, lie);
    (void)pool.store().make_room(id, kTestLog);
    ASSERT_TRUE(pool.store().release(id));
    const auto info = pool.store().info(id);
    EXPECT_LE(info->tail_lsn, kTestLog);
    ASSERT_TRUE(pool.append(id, {"two"})) << lie;
    EXPECT_EQ(entries_of(pool.store(), "a").back().payload, "two");
    EXPECT_EQ(entries_of(pool.store(), "b"), (std::vector<TestEntry>{{1, "safe"}}));
    pool.reopen();
    EXPECT_EQ(entries_of(pool.store(), "a").back().payload, "two");
  }
}

TEST(LogStore, EntryForgedForTheNextIncarnationIsErased) {
  LogPool pool;
  const uint64_t id = pool.make("a");
  auto grant = pool.store().acquire(id, 1);
  Producer producer(pool, id, *grant);
  ++producer.position().incarnation;
  producer.land("forged", 0);
  ASSERT_TRUE(pool.store().release(id));
  pool.reopen();
  EXPECT_TRUE(entries_of(pool.store(), "a").empty());
  ASSERT_TRUE(pool.append(id, {"one"}));
  EXPECT_EQ(entries_of(pool.store(), "a"), (std::vector<TestEntry>{{1, "one"}}));
}

TEST(LogStore, ProducerThatCountsWronglyIsNotFollowed) {
  LogPool pool;
  const uint64_t id = pool.make("a");
  auto grant = pool.store().acquire(id, 1);
  LogStore::Grant wrong = *grant;
  wrong.next_index = 7;
  Producer producer(pool, id, wrong);
  producer.land("seven", 0);
  ASSERT_TRUE(pool.store().release(id));
  EXPECT_TRUE(entries_of(pool.store(), "a").empty());
  EXPECT_EQ(pool.store().info(id)->next_index, 1u);
}

}  // namespace
}  // namespace pmstore::log
