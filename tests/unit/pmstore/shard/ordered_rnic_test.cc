// Ordered tables under lock discipline rnic: what a reservation does to its leaf, what a
// transaction's own ones are, and clients that do what they may not.
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/executor.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

constexpr uint16_t kMine = 3;
constexpr uint16_t kTheirs = 4;
constexpr uint64_t kOneOfMine = 11;  // transactions
constexpr uint64_t kAnotherOne = 12;

class AtOnce final : public WordChanger {
 public:
  explicit AtOnce(Store& store) : store_(store) {}
  base::Task<Result<bool>> compare_swap(SlotOffset slot, LockWord expected,
                                        LockWord desired) override {
    if (!(store_.words().load(slot) == expected)) co_return false;
    store_.words().store(slot, desired);
    co_return true;
  }
  base::Task<void> pause() override { co_return; }

 private:
  Store& store_;
};

struct RedoWrite {
  SlotOffset slot;
  uint64_t version;
  std::string_view key;
  std::optional<std::string_view> value;  // none: a tombstone
};

class OrderedRnic : public ::testing::Test {
 protected:
  OrderedRnic() { table_ = *s_.store().create_table("ordered", TableKind::kOrdered); }

  template <typename T>
  T run(base::Task<T> task) {
    return executor_.run(std::move(task));
  }
  Result<ReserveReply> reserve(std::string_view key, uint16_t owner = kMine,
                               ReserveFor transaction = {kOneOfMine}, bool move = false,
                               uint32_t bytes = 10) {
    return run(s_.store().reserve(words_, owner, table_, key, bytes, move, transaction));
  }
  Status release(const ReserveReply& reserved, uint16_t owner = kMine) {
    return run(s_.store().release(words_, owner, SlotOffset{reserved.slot}));
  }
  Status apply(const std::vector<RedoWrite>& writes, uint16_t owner = kMine) {
    ShardRedoBuilder builder(room_, StoreInRegion::kClient, s_.store().catalog().header().epoch);
    for (const RedoWrite& write : writes) {
      builder.add(write.slot, table_, write.version,
                  write.value ? RecordState::kLive : RecordState::kTombstone, write.key,
                  write.value.value_or(""));
    }
    return run(s_.store().apply(words_, owner, builder.finish()));
  }
  Status insert(std::string_view key, std::string_view value, uint16_t owner = kMine) {
    const auto slot = reserve(key, owner, {kAnotherOne});
    if (!slot) return slot.error();
    return apply({{SlotOffset{slot->slot}, slot->version + 1, key, value}}, owner);
  }
  // As a client locks a record.
  RedoWrite lock(std::string_view key, uint16_t owner = kMine) {
    const auto found = get_from(s_.store(), table_, key);
    const SlotOffset slot{found->reply.slot};
    s_.store().words().store(slot, LockWord::locked(found->reply.version, owner));
    return {slot, found->reply.version + 1, key, std::nullopt};
  }
  Result<std::vector<std::string>> keys() {
    std::vector<std::byte> room(64 << 10);
    const RangeScanRequest request{UINT32_MAX, UINT32_MAX, raw(table_), 0, 0, 0, {}};
    PMSTORE_TRY(const size_t bytes, s_.store().range_scan(request, {}, room));
    MessageReader reader(std::span<const std::byte>(room).first(bytes));
    const auto reply = reader.get<RangeScanReply>();
    leaves_.clear();
    for (uint32_t i = 0; i < reply.leaves; ++i) leaves_.push_back(reader.get<LeafSeen>());
    std::vector<std::string> found;
    for (uint32_t i = 0; i < reply.records; ++i) {
      const auto item = reader.get<RangeItem>();
      found.emplace_back(reader.get_bytes(item.key_bytes));
      reader.get_bytes(item.value_bytes);
    }
    return found;
  }
  // Whether the leaves of the last keys() are as they were, but for the transaction's own inserts.
  Status validate(uint64_t sequence = kOneOfMine, uint16_t owner = kMine) {
    const CommitView request{
        StoreInRegion::kClient, sequence, {}, std::as_bytes(std::span(leaves_)), {}, 0};
    return s_.store().validate(owner, request);
  }

  base::VirtualClock clock_;
  Executor executor_{clock_};
  StoreInRegion s_{4 << 20};
  AtOnce words_{s_.store()};
  TableId table_{};
  std::vector<LeafSeen> leaves_;
  std::vector<std::byte> room_ = std::vector<std::byte>(64 << 10);
};

TEST_F(OrderedRnic, ScanWaitsWhileAKeyIsReserved) {
  ASSERT_TRUE(insert("a", "1"));
  const auto released = reserve("b");
  ASSERT_TRUE(released);
  EXPECT_EQ(keys().code(), ErrorCode::kConflict);
  ASSERT_TRUE(release(*released));
  EXPECT_EQ(*keys(), (std::vector<std::string>{"a"}));
  const auto applied = reserve("b");
  ASSERT_TRUE(apply({{SlotOffset{applied->slot}, applied->version + 1, "b", "2"}}));
  EXPECT_EQ(*keys(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(s_.store().live_records(), 2u);
}

TEST_F(OrderedRnic, AbsentKeyBesideAReservedOneIsFoundAbsentButNotValidated) {
  ASSERT_TRUE(reserve("b"));
  const auto absent = get_from(s_.store(), table_, "a");
  ASSERT_TRUE(absent) << absent.error().to_string();
  EXPECT_FALSE(absent->found());
  EXPECT_EQ(get_from(s_.store(), table_, "b").code(), ErrorCode::kConflict);
  leaves_ = {{absent->reply.bucket, absent->reply.bucket_version}};
  EXPECT_EQ(validate().code(), ErrorCode::kConflict);
}

TEST_F(OrderedRnic, OnlyTheTransactionsOwnReservationsAreNoChanges) {
  ASSERT_TRUE(insert("a", "1"));
  ASSERT_TRUE(keys());
  ASSERT_TRUE(reserve("b"));
  ASSERT_TRUE(reserve("c"));
  EXPECT_TRUE(validate());
  EXPECT_EQ(validate(kAnotherOne).code(), ErrorCode::kConflict) << "of the same client";
  EXPECT_EQ(validate(kOneOfMine, kTheirs).code(), ErrorCode::kConflict)
      << "another client's number";
  const auto theirs = reserve("d", kTheirs, {kOneOfMine});
  EXPECT_EQ(validate().code(), ErrorCode::kConflict);
  EXPECT_TRUE(release(*theirs, kTheirs));
}

TEST_F(OrderedRnic, ChangeThatEndsAmidOwnOnesIsSeen) {
  ASSERT_TRUE(insert("a", "1"));
  ASSERT_TRUE(keys());
  const auto theirs = reserve("b", kTheirs, {kAnotherOne});
  ASSERT_TRUE(reserve("c"));
  ASSERT_TRUE(apply({{SlotOffset{theirs->slot}, theirs->version + 1, "b", "2"}}, kTheirs));
  EXPECT_EQ(validate().code(), ErrorCode::kConflict) << "b is a phantom";
}

TEST_F(OrderedRnic, SplitAmidOwnChangesIsSeen) {
  ASSERT_TRUE(insert("m", "1"));
  ASSERT_TRUE(keys());
  const auto mine = reserve("z");
  ASSERT_TRUE(mine);
  // What is behind the split is no longer this leaf's to tell.
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(reserve("key" + std::to_string(1000 + i)));
  EXPECT_EQ(validate().code(), ErrorCode::kConflict);
}

TEST_F(OrderedRnic, WhoHasScannedDoesNotInsertBesideOthers) {
  ASSERT_TRUE(insert("a", "1"));
  const auto first = reserve("b", kMine, {kOneOfMine, true});
  ASSERT_TRUE(first);
  EXPECT_TRUE(reserve("c", kMine, {kOneOfMine, true})) << "its own";
  EXPECT_EQ(reserve("d", kTheirs, {kAnotherOne, true}).code(), ErrorCode::kConflict);
  EXPECT_EQ(reserve("d", kMine, {kAnotherOne, true}).code(), ErrorCode::kConflict);
  EXPECT_TRUE(reserve("d", kTheirs, {kAnotherOne, false}));
}

TEST_F(OrderedRnic, MovedRecordHasOneEntryWhicheverWriteComesFirst) {
  ASSERT_TRUE(insert("a", "small"));
  const std::string large(1000, 'l');
  for (const bool tombstone_first : {false, true}) {
    const RedoWrite old = lock("a");
    const auto to = reserve("a", kMine, {kOneOfMine}, true, 2000);
    ASSERT_TRUE(to);
    std::vector<RedoWrite> writes = {{SlotOffset{to->slot}, to->version + 1, "a", large}, old};
    if (tombstone_first) std::swap(writes[0], writes[1]);
    ASSERT_TRUE(apply(writes));
    EXPECT_EQ(get_from(s_.store(), table_, "a")->value, large);
    EXPECT_EQ(*keys(), (std::vector<std::string>{"a"}));
    EXPECT_EQ(s_.store().live_records(), 1u);
    EXPECT_FALSE(s_.store().words().load(old.slot).is_locked());
  }
}

TEST_F(OrderedRnic, ErasedRecordIsGone) {
  ASSERT_TRUE(insert("a", "1"));
  ASSERT_TRUE(insert("b", "1"));
  ASSERT_TRUE(keys());
  ASSERT_TRUE(apply({lock("a")}));
  EXPECT_EQ(validate().code(), ErrorCode::kConflict);
  EXPECT_EQ(*keys(), (std::vector<std::string>{"b"}));
  EXPECT_FALSE(get_from(s_.store(), table_, "a")->found());
}

TEST_F(OrderedRnic, WhatIsAppliedTwiceChangesNothingTheSecondTime) {
  const auto a = reserve("a");
  const RedoWrite write{SlotOffset{a->slot}, a->version + 1, "a", "1"};
  ASSERT_TRUE(apply({write}));
  ASSERT_TRUE(keys());
  ASSERT_TRUE(apply({write}));
  EXPECT_TRUE(validate());
}

TEST_F(OrderedRnic, MoveOfAKeyThatAnotherInsertsIsNotPutInPlace) {
  const auto mine = reserve("k", kMine, {kOneOfMine}, true);
  ASSERT_TRUE(mine);
  const auto theirs = reserve("k", kTheirs, {kAnotherOne});
  ASSERT_TRUE(theirs) << "a move that nobody has started to log hides nothing";
  ASSERT_TRUE(apply({{SlotOffset{mine->slot}, mine->version + 1, "k", "mine"}}));
  ASSERT_TRUE(apply({{SlotOffset{theirs->slot}, theirs->version + 1, "k", "theirs"}}, kTheirs));
  EXPECT_EQ(get_from(s_.store(), table_, "k")->value, "theirs");
  // The same where the key has a record.
  const auto again = reserve("k", kMine, {kOneOfMine}, true);
  ASSERT_TRUE(apply({{SlotOffset{again->slot}, again->version + 1, "k", "mine"}}));
  EXPECT_EQ(get_from(s_.store(), table_, "k")->value, "theirs");
  EXPECT_EQ(*keys(), (std::vector<std::string>{"k"}));
}

TEST_F(OrderedRnic, RedoRecordThatSaysTheSameTwiceHarmsNobody) {
  const auto mine = reserve("k");
  const RedoWrite erase{SlotOffset{mine->slot}, mine->version + 1, "k", std::nullopt};
  const RedoWrite live{SlotOffset{mine->slot}, mine->version + 2, "k", "1"};
  ASSERT_TRUE(apply({erase, erase, live, live}));
  ASSERT_TRUE(keys());
  EXPECT_TRUE(keys()->empty());
  EXPECT_TRUE(insert("k", "2", kTheirs));
  const auto twice = reserve("l");
  const RedoWrite once{SlotOffset{twice->slot}, twice->version + 1, "l", "1"};
  ASSERT_TRUE(apply({once, once}));
  EXPECT_EQ(*keys(), (std::vector<std::string>{"k", "l"}));
}

TEST_F(OrderedRnic, TableWithoutMemoryForAnotherKeyRefusesIt) {
  // Long keys in descending order leave half of each leaf empty, and there is as much memory for
  // leaves as for records.
  Status full;
  int reserved = 0;
  for (; full && reserved < 100'000; ++reserved) {
    std::string key = std::to_string(1'000'000 - reserved);
    key.append(240, 'k');
    const auto made = reserve(key, kMine, {kOneOfMine}, false, 1);
    if (!made) full = made.error();
  }
  EXPECT_EQ(full.code(), ErrorCode::kFull);
  EXPECT_NE(full.error().message.find("index"), std::string::npos) << full.error().message;
  EXPECT_GT(reserved, 100);
  EXPECT_EQ(s_.store().live_records(), 0u) << "what was refused is neither shown nor reserved";
}

}  // namespace
}  // namespace pmstore::internal
