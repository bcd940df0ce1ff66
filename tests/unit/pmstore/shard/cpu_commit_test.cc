// Transactions of lock discipline cpu that are prepared at the same time, or in a group, and the
// checks that stop a server whose state is not what the headers promise.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

class CpuCommitTest : public ::testing::Test {
 protected:
  // The request is gone when this returns: a prepared transaction does not need it.
  Result<CpuCommit::Prepared> prepare(const TransactionMessage& transaction) {
    std::vector<std::byte> bytes = transaction.message();
    auto prepared = s_.store().cpu().prepare(*decode_commit(StoreInRegion::kClient, bytes));
    std::fill(bytes.begin(), bytes.end(), std::byte{0xee});
    return prepared;
  }
  Status join(const TransactionMessage& transaction) {
    std::vector<std::byte> bytes = transaction.message();
    Status joined = s_.store().join_group(*decode_commit(StoreInRegion::kClient, bytes));
    std::fill(bytes.begin(), bytes.end(), std::byte{0xee});
    return joined;
  }
  TransactionMessage put(std::string_view key, std::string_view value) {
    return s_.transaction().write(WriteKind::kPut, s_.table(), key, value);
  }
  TransactionMessage erase(std::string_view key) {
    return s_.transaction().write(WriteKind::kErase, s_.table(), key, {});
  }
  std::string value_of(std::string_view key) { return s_.get(key)->value; }

  StoreInRegion s_{4 << 20, {2, 256 << 10}};
};

TEST_F(CpuCommitTest, TwoPreparedTransactionsBothCommitInEitherOrder) {
  ASSERT_TRUE(s_.put("alice", "0"));
  ASSERT_TRUE(s_.put("bob", "0"));
  auto first = prepare(put("alice", "1").write(WriteKind::kPut, s_.table(), "carol", "1"));
  auto second = prepare(put("bob", "2").write(WriteKind::kInsert, s_.table(), "dave", "2"));
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(s_.get("carol") && s_.get("carol")->found());
  ASSERT_TRUE(second->commit());
  EXPECT_EQ(value_of("bob"), "2");
  EXPECT_EQ(s_.get("alice").code(), ErrorCode::kConflict) << "it is still locked";
  ASSERT_TRUE(first->commit());
  for (const bool restarted : {false, true}) {
    if (restarted) s_.reopen();
    EXPECT_EQ(value_of("alice"), "1");
    EXPECT_EQ(value_of("bob"), "2");
    EXPECT_EQ(value_of("carol"), "1");
    EXPECT_EQ(value_of("dave"), "2");
    EXPECT_EQ(s_.store().live_records(), 4u);
  }
}

TEST_F(CpuCommitTest, OneOfTwoPreparedTransactionsIsGivenUpAndLeavesNoTrace) {
  ASSERT_TRUE(s_.put("alice", "0"));
  ASSERT_TRUE(s_.put("bob", "0"));
  const Got absent = *s_.get("carol");
  const uint64_t used = s_.store().arena().used_slots();
  auto first = prepare(put("alice", "1"));
  {
    const std::string large(1000, 'x');  // moves
    auto second = prepare(erase("bob").write(WriteKind::kInsert, s_.table(), "carol", large));
    ASSERT_TRUE(first && second);
    EXPECT_GT(s_.store().arena().used_slots(), used);
  }
  EXPECT_EQ(s_.store().arena().used_slots(), used);
  EXPECT_EQ(value_of("bob"), "0");
  EXPECT_FALSE(s_.get("carol")->found());
  EXPECT_GT(s_.get("carol")->reply.bucket_version, absent.reply.bucket_version);
  ASSERT_TRUE(first->commit());
  EXPECT_EQ(value_of("alice"), "1");
  ASSERT_TRUE(s_.put("carol", "3"));
  ASSERT_TRUE(s_.erase("bob"));
}

TEST_F(CpuCommitTest, WhatAPreparedTransactionWritesIsAConflictForOthers) {
  ASSERT_TRUE(s_.put("alice", "0"));
  ASSERT_TRUE(s_.put("bob", "0"));
  const Got alice = *s_.get("alice");
  const Got carol = *s_.get("carol");
  auto first = prepare(put("alice", "1").write(WriteKind::kInsert, s_.table(), "carol", "1"));
  ASSERT_TRUE(first);
  EXPECT_EQ(s_.put("alice", "2").code(), ErrorCode::kConflict);
  EXPECT_EQ(s_.erase("alice").code(), ErrorCode::kConflict);
  EXPECT_EQ(s_.put("carol", "2").code(), ErrorCode::kConflict) << "two inserts of one key";
  EXPECT_EQ(s_.commit(put("bob", "2").read(alice.reply.slot, alice.reply.version)).code(),
            ErrorCode::kConflict);
  EXPECT_EQ(
      s_.commit(put("bob", "2").absent(carol.reply.bucket, carol.reply.bucket_version)).code(),
      ErrorCode::kConflict);
  EXPECT_EQ(value_of("bob"), "0");
  ASSERT_TRUE(first->commit());
  EXPECT_TRUE(s_.put("carol", "2"));
  EXPECT_EQ(value_of("carol"), "2");
}

TEST_F(CpuCommitTest, TwoPreparedTransactionsMayChangeTheSameBucket) {
  // Keys until two share a bucket.
  std::vector<std::string> keys;
  const uint64_t bucket = s_.get("0")->reply.bucket;
  for (int i = 0; keys.size() < 2; ++i) {
    if (s_.get(std::to_string(i))->reply.bucket == bucket) keys.push_back(std::to_string(i));
  }
  auto first = prepare(put(keys[0], "1"));
  {
    auto second = prepare(put(keys[1], "2"));
    ASSERT_TRUE(first && second);
    ASSERT_TRUE(second->commit());
  }
  EXPECT_EQ(s_.get(keys[0]).code(), ErrorCode::kConflict) << "the bucket is still changing";
  ASSERT_TRUE(first->commit());
  EXPECT_EQ(value_of(keys[0]), "1");
  EXPECT_EQ(value_of(keys[1]), "2");
}

TEST_F(CpuCommitTest, TooManyPreparedTransactionsAreBackPressure) {
  std::vector<CpuCommit::Prepared> prepared;
  for (size_t i = 0; i < CpuCommit::kMostPrepared; ++i) {
    auto one = prepare(put(std::to_string(i), "1"));
    ASSERT_TRUE(one);
    prepared.push_back(std::move(*one));
  }
  EXPECT_EQ(prepare(put("more", "1")).code(), ErrorCode::kBackPressure);
  EXPECT_EQ(s_.put("more", "1").code(), ErrorCode::kBackPressure);
  ASSERT_TRUE(prepared.back().commit());
  EXPECT_TRUE(s_.put("more", "1"));
}

TEST_F(CpuCommitTest, SlotsOfADroppedTableAreFreedOnlyBehindItsPreparedTransactions) {
  ASSERT_TRUE(s_.put("alice", "0"));
  const uint64_t used = s_.store().arena().used_slots();
  auto prepared = prepare(put("bob", "1"));
  ASSERT_TRUE(prepared);
  ASSERT_TRUE(s_.store().drop_table(s_.table()));
  base::VirtualClock clock;
  Executor executor(clock);
  TableDrop::Cursor cursor;
  const auto free_slots = [&] {
    return executor.run(s_.store().free_dropped(nullptr, s_.table(), cursor));
  };
  ASSERT_TRUE(free_slots());
  EXPECT_FALSE(cursor.done);
  EXPECT_EQ(s_.store().arena().used_slots(), used + 1);
  ASSERT_TRUE(prepared->commit());
  ASSERT_TRUE(free_slots());
  EXPECT_TRUE(cursor.done);
  EXPECT_EQ(s_.store().arena().used_slots(), used - 1);
}

TEST(CpuCommit, PutOfAnySizeIsOneMsync) {
  StoreInRegion s(4 << 20, {2, 256 << 10}, persist::Domain::kNone);
  const auto msyncs = [&] { return s.pool().memory().stats().msyncs; };
  for (const size_t bytes : {1u, 100u, 300u, 5000u, 20'000u}) {
    const std::string key = std::to_string(bytes);
    ASSERT_TRUE(s.put(key, std::string(bytes, 'a')));  // may claim a slab, with an msync of its own
    for (const char value : {'b', 'c', 'd'}) {
      const uint64_t before = msyncs();
      ASSERT_TRUE(s.put(key, std::string(bytes, value)));
      EXPECT_EQ(msyncs() - before, 1u) << bytes;
    }
  }
  s.reopen();
  EXPECT_EQ(s.get("20000")->value, std::string(20'000, 'd'));
}

// ---- groups ----

TEST_F(CpuCommitTest, TransactionsOfAGroupShareOneDrainAndAppearTogether) {
  ASSERT_TRUE(s_.put("alice", "0"));
  ASSERT_TRUE(s_.put("bob", "0"));
  const auto drains = [&] { return s_.pool().memory().stats().drains; };
  const uint64_t before = drains();
  ASSERT_TRUE(join(put("alice", "1").write(WriteKind::kInsert, s_.table(), "carol", "1")));
  ASSERT_TRUE(join(put("alice2", "2")));
  ASSERT_TRUE(join(erase("bob")));
  EXPECT_EQ(drains(), before);
  EXPECT_EQ(s_.store().cpu().group_size(), 3u);
  for (const char* key : {"alice", "bob", "carol", "alice2"}) {
    EXPECT_EQ(s_.get(key).code(), ErrorCode::kConflict) << key;
  }
  EXPECT_EQ(prepare(put("alice", "3")).code(), ErrorCode::kConflict);
  EXPECT_EQ(prepare(put("carol", "3")).code(), ErrorCode::kConflict);
  EXPECT_EQ(s_.store().cpu().group_size(), 3u);
  EXPECT_TRUE(s_.store().cpu().has_prepared_in(s_.table()));
  ASSERT_TRUE(s_.store().finish_group());
  EXPECT_EQ(drains(), before + 1);
  EXPECT_FALSE(s_.store().cpu().has_prepared_in(s_.table()));
  for (const bool restarted : {false, true}) {
    if (restarted) s_.reopen();
    EXPECT_EQ(value_of("alice"), "1");
    EXPECT_EQ(value_of("alice2"), "2");
    EXPECT_EQ(value_of("carol"), "1");
    EXPECT_FALSE(s_.get("bob")->found());
  }
  EXPECT_TRUE(s_.put("alice", "4"));
}

// ---- writes that build on those of their group ----

TEST_F(CpuCommitTest, LaterTransactionsOfAGroupBuildOnItsWrites) {
  ASSERT_TRUE(s_.put("alice", "0"));
  const uint64_t version = s_.get("alice")->reply.version;
  const uint64_t before = s_.pool().memory().stats().drains;
  for (int i = 1; i <= 5; ++i) {
    ASSERT_TRUE(join(put("alice", std::to_string(i)))) << i;
    ASSERT_TRUE(join(put("new", std::to_string(i)))) << i;
  }
  EXPECT_EQ(s_.get("alice").code(), ErrorCode::kConflict) << "nothing is visible before the drain";
  ASSERT_TRUE(s_.store().finish_group());
  EXPECT_EQ(s_.pool().memory().stats().drains, before + 1);
  EXPECT_EQ(s_.get("alice")->reply.version, version + 5);
  for (const bool restarted : {false, true}) {
    if (restarted) s_.reopen();
    EXPECT_EQ(value_of("alice"), "5");
    EXPECT_EQ(value_of("new"), "5");
  }
  EXPECT_TRUE(s_.put("alice", "6"));
}

TEST_F(CpuCommitTest, WhoReadBeforeThePlannedWriteIsAConflict) {
  ASSERT_TRUE(s_.put("alice", "0"));
  const GetReply seen = s_.get("alice")->reply;
  ASSERT_TRUE(join(put("alice", "1")));
  EXPECT_EQ(join(s_.transaction().write(WriteKind::kPut, s_.table(), "alice", "2", seen.slot,
                                        seen.version))
                .code(),
            ErrorCode::kConflict);
  ASSERT_TRUE(s_.store().finish_group());
  EXPECT_EQ(value_of("alice"), "1");
}

TEST_F(CpuCommitTest, AnswersThatFollowFromPlannedWritesComeBehindTheGroup) {
  ASSERT_TRUE(s_.put("alice", "0"));
  const auto insert = [&](const char* key) {
    return join(s_.transaction().write(WriteKind::kInsert, s_.table(), key, "9"));
  };
  ASSERT_TRUE(insert("bob"));
  EXPECT_EQ(insert("bob").code(), ErrorCode::kConflict) << "else it were AlreadyExists";
  ASSERT_TRUE(join(erase("alice")));
  EXPECT_EQ(join(erase("alice")).code(), ErrorCode::kConflict) << "else it were NotFound";
  EXPECT_EQ(join(put("alice", "1")).code(), ErrorCode::kConflict);
  EXPECT_EQ(insert("alice").code(), ErrorCode::kConflict);
  ASSERT_TRUE(s_.store().finish_group());
  EXPECT_EQ(insert("bob").code(), ErrorCode::kAlreadyExists);
  EXPECT_EQ(join(erase("alice")).code(), ErrorCode::kNotFound);
}

TEST_F(CpuCommitTest, IndexEntryOfAKeyChangesOnceInAGroup) {
  for (const TableKind kind : {TableKind::kHash, TableKind::kOrdered}) {
    const TableId table = *s_.store().create_table(kind == TableKind::kHash ? "h" : "o", kind);
    const auto write = [&](WriteKind how, const char* key, const std::string& value) {
      return join(s_.transaction().write(how, table, key, value));
    };
    const std::string large(300, 'l'), larger(3000, 'm');
    ASSERT_TRUE(s_.commit(s_.transaction().write(WriteKind::kPut, table, "moves", "0")));
    ASSERT_TRUE(s_.commit(s_.transaction().write(WriteKind::kPut, table, "goes", "0")));
    ASSERT_TRUE(write(WriteKind::kPut, "moves", "1"));
    ASSERT_TRUE(write(WriteKind::kPut, "moves", large)) << "to a slot of its own";
    ASSERT_TRUE(write(WriteKind::kPut, "moves", large + "2")) << "where it stays";
    EXPECT_EQ(write(WriteKind::kPut, "moves", larger).code(), ErrorCode::kConflict);
    EXPECT_EQ(write(WriteKind::kErase, "moves", "").code(), ErrorCode::kConflict);
    ASSERT_TRUE(write(WriteKind::kPut, "goes", "1"));
    ASSERT_TRUE(write(WriteKind::kErase, "goes", ""));
    ASSERT_TRUE(write(WriteKind::kInsert, "new", "1"));
    ASSERT_TRUE(write(WriteKind::kPut, "new", "2"));
    EXPECT_EQ(write(WriteKind::kErase, "new", "").code(), ErrorCode::kConflict);
    ASSERT_TRUE(s_.store().finish_group());
    EXPECT_EQ(s_.store().read(table, "moves")->value, large + "2");
    EXPECT_EQ(s_.store().read(table, "new")->value, "2");
    EXPECT_EQ(s_.store().read(table, "goes")->reply.found, FoundRecord::kNo);
    ASSERT_TRUE(write(WriteKind::kPut, "moves", larger));
    ASSERT_TRUE(s_.store().finish_group());
    EXPECT_EQ(s_.store().read(table, "moves")->value, larger);
  }
  s_.reopen();
}

TEST_F(CpuCommitTest, OneThatBuildsOnTheGroupMayBeGivenUpAlone) {
  ASSERT_TRUE(s_.put("alice", "0"));
  ASSERT_TRUE(s_.put("bob", "0"));
  ASSERT_TRUE(join(put("alice", "1")));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(join(put("alice", "2").write(WriteKind::kInsert, s_.table(), "bob", "2")).code(),
              ErrorCode::kAlreadyExists);
  }
  ASSERT_TRUE(join(put("alice", "3")));
  ASSERT_TRUE(s_.store().finish_group());
  EXPECT_EQ(value_of("alice"), "3");
  EXPECT_EQ(value_of("bob"), "0");
  EXPECT_TRUE(s_.put("alice", "4"));
}

TEST_F(CpuCommitTest, NothingBuildsOnWhatIsOnlyPrepared) {
  ASSERT_TRUE(s_.put("alice", "0"));
  {
    auto prepared = prepare(put("alice", "1"));
    ASSERT_TRUE(prepared);
    EXPECT_EQ(join(put("alice", "2")).code(), ErrorCode::kConflict);
  }
  ASSERT_TRUE(join(put("alice", "3")));
  EXPECT_EQ(prepare(put("alice", "4")).code(), ErrorCode::kConflict) << "it may commit by itself";
  ASSERT_TRUE(s_.store().finish_group());
  EXPECT_EQ(value_of("alice"), "3");
}

TEST_F(CpuCommitTest, WhoWouldSearchALargeGroupWaits) {
  ASSERT_TRUE(s_.put("alice", "0"));
  TransactionMessage many = put("alice", "1");
  for (int i = 0; i < 300; ++i) many.write(WriteKind::kPut, s_.table(), std::to_string(i), "1");
  ASSERT_TRUE(join(many));
  EXPECT_EQ(join(put("alice", "2")).code(), ErrorCode::kConflict);
  ASSERT_TRUE(s_.store().finish_group());
  ASSERT_TRUE(join(put("alice", "3")));
  ASSERT_TRUE(join(put("alice", "4"))) << "the next group is small again";
  ASSERT_TRUE(s_.store().finish_group());
  EXPECT_EQ(value_of("alice"), "4");
}

TEST_F(CpuCommitTest, FullRingHasRoomBehindItsGroupOnly) {
  const std::string large(16 << 10, 'x');
  int joined = 0;
  Status last;
  while ((last = join(put(std::to_string(joined), large)))) ++joined;
  EXPECT_EQ(last.code(), ErrorCode::kBackPressure);
  EXPECT_GT(joined, 3);
  EXPECT_EQ(s_.store().cpu().group_size(), static_cast<size_t>(joined));
  ASSERT_TRUE(s_.store().finish_group());
  ASSERT_TRUE(join(put("more", large)));
  ASSERT_TRUE(s_.store().finish_group());
  s_.reopen();
  EXPECT_EQ(value_of("0"), large);
  EXPECT_EQ(value_of("more"), large);
}

TEST_F(CpuCommitTest, GroupOfAProcessThatDiesIsWhatItsRingSays) {
  ASSERT_TRUE(s_.put("alice", "0"));
  ASSERT_TRUE(join(put("alice", "1")));
  s_.reopen();
  EXPECT_EQ(value_of("alice"), "1") << "the power has not failed: the entry is there";
}

TEST_F(CpuCommitTest, AGroupThatCannotBeMadeDurableIsGivenUpForGood) {
  StoreInRegion s(4 << 20, {2, 256 << 10}, persist::Domain::kNone);
  ASSERT_TRUE(s.put("alice", "0"));
  const auto join_there = [&](const char* key) {
    const auto message = s.transaction().write(WriteKind::kPut, s.table(), key, "1").message();
    return s.store().join_group(*decode_commit(StoreInRegion::kClient, message));
  };
  ASSERT_TRUE(join_there("alice"));
  ASSERT_TRUE(join_there("bob"));
  ASSERT_TRUE(join_there("alice"));
  ASSERT_TRUE(join_there("bob"));
  // msync of a hole in the address space is ENOMEM.
  const auto mapping = s.pool().memory().mapping();
  std::byte* const lost = mapping.data() + mapping.size() - 4096;
  s.pool().memory().flush(lost, 1);
  ASSERT_EQ(munmap(lost, 4096), 0);
  const uint64_t before = s.pool().memory().stats().msyncs;
  EXPECT_EQ(s.store().finish_group().code(), ErrorCode::kCommitUnknown);
  const uint64_t tried = s.pool().memory().stats().msyncs;
  EXPECT_GT(tried, before);
  EXPECT_EQ(s.get("alice")->value, "0") << "nothing of it is visible";
  EXPECT_FALSE(s.get("bob")->found());
  EXPECT_TRUE(s.store().failed());
  EXPECT_EQ(join_there("carol").code(), ErrorCode::kIo);
  EXPECT_EQ(s.put("alice", "2").code(), ErrorCode::kIo);
  EXPECT_EQ(s.store().log().truncate_through(UINT64_MAX).code(), ErrorCode::kIo);
  EXPECT_EQ(s.store().take_ring(0, 5, 0, 0).code(), ErrorCode::kIo);
  EXPECT_EQ(s.store().close().code(), ErrorCode::kIo);
  EXPECT_EQ(s.pool().memory().stats().msyncs, tried) << "a failed msync is not repeated";
  ASSERT_NE(
      mmap(lost, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
      MAP_FAILED);
}

using CpuCommitDeathTest = CpuCommitTest;

TEST_F(CpuCommitDeathTest, WhatNeedsEveryEntryInPlaceComesAfterTheGroup) {
  ASSERT_TRUE(join(put("alice", "1")));
  EXPECT_DEATH((void)s_.store().log().truncate_through(UINT64_MAX), "writes are in place");
  EXPECT_DEATH((void)s_.store().outcome({StoreInRegion::kClient, 1}, true, 0), "called committed");
  EXPECT_DEATH((void)s_.store().close(), "answered before the end");
  EXPECT_DEATH((void)s_.put("bob", "1"), "owner finishes it");
  ASSERT_TRUE(s_.store().finish_group());
  EXPECT_DEATH((void)s_.store().finish_group(), "is for a transaction");
}

TEST_F(CpuCommitDeathTest, PreparedTransactionIsCommittedOnce) {
  auto prepared = prepare(put("alice", "1"));
  ASSERT_TRUE(prepared);
  ASSERT_TRUE(prepared->commit());
  EXPECT_DEATH((void)prepared->commit(), "committed once");
}

TEST_F(CpuCommitDeathTest, LockOfAPreparedTransactionIsNotTakenAway) {
  ASSERT_TRUE(s_.put("alice", "0"));
  const Got alice = *s_.get("alice");
  std::optional<CpuCommit::Prepared> prepared = std::move(*prepare(put("alice", "1")));
  const SlotOffset slot{alice.reply.slot};
  EXPECT_DEATH(
      {
        s_.store().words().store(slot, LockWord::unlocked(alice.reply.version));
        prepared.reset();
      },
      "stays locked");
  ASSERT_TRUE(prepared->commit());
}

TEST_F(CpuCommitDeathTest, PreparedTransactionEndsBeforeTheStore) {
  auto prepared = prepare(put("alice", "1"));
  ASSERT_TRUE(prepared);
  EXPECT_DEATH(s_.reopen(), "prepared transaction ends");
}

TEST_F(CpuCommitDeathTest, IndexEntryChangesOnlyBetweenBeginAndEnd) {
  ASSERT_TRUE(s_.put("alice", "1"));
  const SlotOffset slot{s_.get("alice")->reply.slot};
  const IndexKey key = IndexKey::of(s_.table(), "alice");
  KeyIndex& index = s_.store().index();
  EXPECT_DEATH(index.remove(key, slot), "between begin and end");
  EXPECT_DEATH(index.insert(key, 0, slot), "between begin and end");
  EXPECT_DEATH(index.end_change(key), "follows begin_change");
  EXPECT_DEATH(index.remove_alone(key, SlotOffset{raw(slot) + 64}), "is in the index");
}

TEST(CommitRequest, WithAKeyThatIsTooLongIsNotDecoded) {
  StoreInRegion s(2 << 20);
  for (const size_t bytes : {1, 255, 256, 511, 512, 513, 4000}) {
    const std::string key(bytes, 'k');
    const auto message =
        TransactionMessage(5).write(WriteKind::kPut, s.table(), key, "v").message();
    const auto view = decode_commit(1, message);
    ASSERT_EQ(view.has_value(), bytes <= 512) << bytes;
    if (!view) continue;
    ASSERT_TRUE(s.store().commit(*view)) << bytes;
    EXPECT_EQ(s.get(key)->value, "v") << bytes;
  }
  s.reopen();
  EXPECT_EQ(s.get(std::string(512, 'k'))->value, "v");
  EXPECT_EQ(s.store().live_records(), 5u);
}

TEST(CommitRequest, PaddingIsZero) {
  StoreInRegion s(16 << 20);
  auto message = TransactionMessage(5).write(WriteKind::kPut, s.table(), "key", "v").message();
  EXPECT_TRUE(decode_commit(1, message));
  message[offsetof(::pmstore::CommitRequest, padding)] = std::byte{1};
  EXPECT_FALSE(decode_commit(1, message));
}

}  // namespace
}  // namespace pmstore::internal
