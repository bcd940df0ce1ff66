// Ordered tables in a store, without connections: pages, restarts, drops.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "pmstore/check.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

struct PageSeen {
  std::vector<LeafSeen> leaves;
  std::vector<RangeItem> items;
  std::vector<std::string> keys;
  std::vector<std::string> values;
  bool more = false;
};

class OrderedTableTest : public ::testing::Test {
 protected:
  OrderedTableTest() { table_ = *s_.store().create_table("ordered", TableKind::kOrdered); }

  Status put(std::string_view key, std::string_view value) {
    return s_.commit(s_.transaction().write(WriteKind::kPut, table_, key, value));
  }
  Status erase(std::string_view key) {
    return s_.commit(s_.transaction().write(WriteKind::kErase, table_, key, {}));
  }
  Result<PageSeen> page(OrderedIndex::Range range, uint32_t most = UINT32_MAX,
                        size_t room_bytes = 64 << 10, bool backwards = false) {
    std::vector<std::byte> room(room_bytes);
    const RangeScanRequest request{most, UINT32_MAX, raw(table_), 0, 0, backwards, {}};
    PMSTORE_TRY(const size_t bytes, s_.store().range_scan(request, range, room));
    MessageReader reader(std::span<const std::byte>(room).first(bytes));
    const auto reply = reader.get<RangeScanReply>();
    PageSeen seen;
    seen.more = reply.more != 0;
    for (uint32_t i = 0; i < reply.leaves; ++i) seen.leaves.push_back(reader.get<LeafSeen>());
    for (uint32_t i = 0; i < reply.records; ++i) {
      seen.items.push_back(reader.get<RangeItem>());
      seen.keys.emplace_back(reader.get_bytes(seen.items.back().key_bytes));
      seen.values.emplace_back(reader.get_bytes(seen.items.back().value_bytes));
    }
    EXPECT_TRUE(reader.complete());
    return seen;
  }
  // As a commit that writes elsewhere and has read the page.
  Status commit_after(const PageSeen& seen) {
    TransactionMessage message = s_.transaction();
    for (const RangeItem& item : seen.items) message.read(item.slot, item.version);
    for (const LeafSeen& leaf : seen.leaves) message.absent(leaf.unit, leaf.version);
    return s_.commit(message.write(WriteKind::kPut, s_.table(), "elsewhere", "1"));
  }

  StoreInRegion s_{8 << 20};
  TableId table_{};
};

TEST_F(OrderedTableTest, PageHasItsRangeInOrder) {
  for (const char* key : {"c", "a", "d", "b"}) ASSERT_TRUE(put(key, key));
  EXPECT_EQ(page({})->keys, (std::vector<std::string>{"a", "b", "c", "d"}));
  EXPECT_EQ(page({"b", "d"})->values, (std::vector<std::string>{"b", "c"}));
  const auto first = page({}, 3);
  EXPECT_EQ(first->keys.back(), "c");
  EXPECT_TRUE(first->more);
  EXPECT_FALSE(page({}, 4)->more);
  EXPECT_EQ(page({}, 2, 64 << 10, true)->keys, (std::vector<std::string>{"d", "c"}));
}

TEST_F(OrderedTableTest, PageEndsWhereTheRoomDoes) {
  for (int i = 0; i < 50; ++i)
    ASSERT_TRUE(put("key" + std::to_string(100 + i), std::string(100, 'v')));
  for (size_t room = sizeof(RangeScanReply); room < 2000; room += 8) {
    const auto seen = page({}, UINT32_MAX, room);
    if (!seen) {
      EXPECT_EQ(seen.code(), ErrorCode::kTooLarge);
      EXPECT_LT(room, sizeof(RangeScanReply) + sizeof(LeafSeen) + sizeof(RangeItem) + 6 + 100);
      continue;
    }
    EXPECT_TRUE(seen->more);
    EXPECT_EQ(seen->keys.size(),
              (room - sizeof(RangeScanReply) - sizeof(LeafSeen)) / (sizeof(RangeItem) + 6 + 100));
  }
}

// A range may end in a leaf of which it has no key: then the page has a leaf behind its last
// record.
TEST_F(OrderedTableTest, PageHasRoomForTheLeafBehindItsLastRecord) {
  std::vector<std::string> keys;
  for (int i = 0; i < 400; ++i) {
    keys.push_back("key" + std::to_string(1000 + 10 * i));
    ASSERT_TRUE(put(keys.back(), "v"));
  }
  EXPECT_EQ(page({})->keys, keys);
  size_t ended_before_a_leaf = 0;
  for (size_t end = 20; end < keys.size(); ++end) {
    // Some leaves' least key is shorter than the first one that they have.
    const OrderedIndex::Range range{keys[end - 20], keys[end]};
    const auto whole = page(range);
    ASSERT_TRUE(whole);
    ASSERT_EQ(whole->keys.size(), 20u);
    const size_t bytes = sizeof(RangeScanReply) + whole->leaves.size() * sizeof(LeafSeen) +
                         20 * (sizeof(RangeItem) + keys[0].size() + 1);
    EXPECT_FALSE(page(range, UINT32_MAX, bytes)->more);
    const auto less = page(range, UINT32_MAX, bytes - 1);
    ASSERT_TRUE(less && less->more);
    ended_before_a_leaf += less->keys.size() == 20;
  }
  EXPECT_GE(ended_before_a_leaf, 2u);
}

TEST_F(OrderedTableTest, WhatAPageRestsOnIsValidated) {
  for (const char* key : {"a", "b", "c"}) ASSERT_TRUE(put(key, "1"));
  const auto before_insert = page({"a", "b"});
  EXPECT_TRUE(commit_after(*before_insert));
  ASSERT_TRUE(put("aa", "phantom"));
  EXPECT_EQ(commit_after(*before_insert).code(), ErrorCode::kConflict);
  const auto before_update = page({"a", "b"});
  ASSERT_TRUE(put("a", "2"));
  EXPECT_EQ(commit_after(*before_update).code(), ErrorCode::kConflict);
  const auto before_erase = page({"a", "b"});
  ASSERT_TRUE(erase("aa"));
  EXPECT_EQ(commit_after(*before_erase).code(), ErrorCode::kConflict);
  const auto before_move = page({});
  ASSERT_TRUE(put("c", std::string(2000, 'l')));
  EXPECT_EQ(commit_after(*before_move).code(), ErrorCode::kConflict);
  EXPECT_EQ(page({"c", ""})->values.front().size(), 2000u);
  EXPECT_TRUE(commit_after(*page({})));
}

TEST_F(OrderedTableTest, AbsentKeyIsValidatedByItsLeaf) {
  ASSERT_TRUE(put("b", "1"));
  const auto absent = get_from(s_.store(), table_, "a");
  ASSERT_TRUE(absent);
  ASSERT_FALSE(absent->found());
  const auto commit = [&] {
    return s_.commit(s_.transaction()
                         .absent(absent->reply.bucket, absent->reply.bucket_version)
                         .write(WriteKind::kPut, s_.table(), "x", "1"));
  };
  EXPECT_TRUE(commit());
  ASSERT_TRUE(put("a", "now there"));
  EXPECT_EQ(commit().code(), ErrorCode::kConflict);
}

TEST_F(OrderedTableTest, UnitsThatThereAreNotAreConflicts) {
  for (const uint64_t unit :
       {KeyIndex::unit_of_leaf(table_, 0), KeyIndex::unit_of_leaf(table_, 99'999),
        KeyIndex::unit_of_leaf(s_.table(), 1), UINT64_MAX}) {
    for (const uint64_t version : {uint64_t{2}, UINT64_MAX - 1}) {
      const auto transaction =
          s_.transaction().absent(unit, version).write(WriteKind::kPut, table_, "a", "1");
      EXPECT_EQ(s_.commit(transaction).code(), ErrorCode::kConflict);
    }
  }
}

TEST_F(OrderedTableTest, TransactionThatFailsLeavesTheIndexAsItWas) {
  ASSERT_TRUE(put("b", "1"));
  const auto before = page({});
  EXPECT_EQ(s_.commit(s_.transaction()
                          .write(WriteKind::kPut, table_, "a", "1")
                          .write(WriteKind::kErase, table_, "b", {})
                          .write(WriteKind::kErase, table_, "absent", {}))
                .code(),
            ErrorCode::kNotFound);
  EXPECT_EQ(page({})->keys, before->keys);
  EXPECT_FALSE(get_from(s_.store(), table_, "a")->found());
  ASSERT_TRUE(put("a", "1"));
  ASSERT_TRUE(erase("b"));
  EXPECT_EQ(page({})->keys, std::vector<std::string>{"a"});
}

TEST_F(OrderedTableTest, PageAmidAGroupIsAConflict) {
  ASSERT_TRUE(put("a", "1"));
  const auto bytes = s_.transaction().write(WriteKind::kPut, table_, "b", "1").message();
  ASSERT_TRUE(s_.store().join_group(*decode_commit(StoreInRegion::kClient, bytes)));
  EXPECT_EQ(page({}).code(), ErrorCode::kConflict);
  ASSERT_TRUE(s_.store().finish_group());
  EXPECT_EQ(page({})->keys, (std::vector<std::string>{"a", "b"}));
}

TEST_F(OrderedTableTest, PageRestsOnTheLeavesOfItsRecordsOnly) {
  const auto key = [](int i) { return "key" + std::to_string(1000 + i); };
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(put(key(i), "v"));
  const auto all = page({}, UINT32_MAX, 1 << 20);
  ASSERT_GT(all->leaves.size(), 2u);
  // Pages of one record, also at the ends of leaves, rest on the record's leaf.
  for (int i = 0; i + 1 < 1000; ++i) {
    const auto forward = page({key(i), ""}, 1);
    EXPECT_EQ(forward->leaves.size(), 1u);
    EXPECT_TRUE(forward->more);
    const auto backward = page({"", key(i + 1)}, 1, 64 << 10, true);
    EXPECT_EQ(backward->keys, std::vector<std::string>{key(i)});
    // The leaf of the bound itself has no record of the range when the bound is its first key.
    EXPECT_LE(backward->leaves.size(), 2u);
  }
  // A change of the next leaf is none of the page: neither while it lasts nor behind it.
  const auto first = page({}, 1);
  ASSERT_TRUE(put("key1999x", "in the last leaf"));
  EXPECT_TRUE(commit_after(*first));
  ASSERT_TRUE(put("key1000a", "in the first leaf"));
  EXPECT_EQ(commit_after(*first).code(), ErrorCode::kConflict);
}

TEST_F(OrderedTableTest, FullPageNeedsNoLeafBehindIt) {
  const auto key = [](int i) { return "key" + std::to_string(1000 + i); };
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(put(key(i), "v"));
  const LeafSeen first = page({}, 1)->leaves.at(0);
  int last = 0;  // of the first leaf
  while (page({key(last + 1), ""}, 1)->leaves.at(0).unit == first.unit) ++last;
  const auto bytes = s_.transaction().write(WriteKind::kErase, table_, key(last + 1), {}).message();
  ASSERT_TRUE(s_.store().join_group(*decode_commit(StoreInRegion::kClient, bytes)));
  const auto whole = page({}, static_cast<uint32_t>(last + 1));
  ASSERT_TRUE(whole) << whole.error().to_string();
  EXPECT_EQ(whole->leaves.size(), 1u);
  EXPECT_EQ(whole->keys.back(), key(last));
  EXPECT_EQ(page({}, static_cast<uint32_t>(last + 2)).code(), ErrorCode::kConflict);
  ASSERT_TRUE(s_.store().finish_group());
}

TEST_F(OrderedTableTest, RestartFindsTheOrderAgain) {
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(put("key" + std::to_string(i * 7 % 1000), "v"));
  for (int i = 0; i < 1000; i += 3) ASSERT_TRUE(erase("key" + std::to_string(i)));
  const auto before = page({}, UINT32_MAX, 1 << 20);
  ASSERT_EQ(before->keys.size(), 666u);
  s_.reopen();
  EXPECT_EQ(page({}, UINT32_MAX, 1 << 20)->keys, before->keys);
  s_.store().index().ordered(table_)->check_all();
  const auto report = check_store(s_.pool());
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->sound());
}

TEST_F(OrderedTableTest, DropGivesSlotsAndIndexBack) {
  const uint64_t used = s_.store().arena().used_slots();
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(put("key" + std::to_string(i), "v"));
  ASSERT_TRUE(s_.store().drop_table(table_));
  EXPECT_EQ(page({}).code(), ErrorCode::kUnknownTable);
  TableDrop::Cursor cursor;
  while (!cursor.done) {
    auto task = s_.store().free_dropped(nullptr, table_, cursor);
    task.start();
    ASSERT_TRUE(task.done());
  }
  EXPECT_EQ(s_.store().arena().used_slots(), used);
  EXPECT_EQ(s_.store().index().ordered(table_), nullptr);
  EXPECT_EQ(s_.store().index().ordered_bytes(), 0u);
  table_ = *s_.store().create_table("ordered", TableKind::kOrdered);
  EXPECT_TRUE(page({})->keys.empty());
}

// The medium has changed a key, so the walk over the slots does not find its entry in the index.
TEST_F(OrderedTableTest, DropOfATableWithADamagedKeyForgetsItsIndex) {
  for (const char* key : {"a", "b", "c"}) ASSERT_TRUE(put(key, "v"));
  const GetReply b = get_from(s_.store(), table_, "b")->reply;
  s_.store().arena().at(SlotOffset{b.slot})[sizeof(RecordHeader)] ^= std::byte{1};
  ASSERT_TRUE(s_.store().drop_table(table_));
  TableDrop::Cursor cursor;
  while (!cursor.done) {
    auto task = s_.store().free_dropped(nullptr, table_, cursor);
    task.start();
    ASSERT_TRUE(task.done());
  }
  EXPECT_EQ(s_.store().index().ordered(table_), nullptr);
  ASSERT_TRUE(s_.put("elsewhere", "1"));
  s_.reopen();
  EXPECT_EQ(s_.get("elsewhere")->value, "1");
}

// While it lives, the process gets hardly any more memory than it has.
class NoMoreMemory {
 public:
  NoMoreMemory() {
    getrlimit(RLIMIT_AS, &before_);
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    constexpr uint64_t kForSmallThings = 256 << 10;
    const rlimit now{pages * static_cast<uint64_t>(getpagesize()) + kForSmallThings,
                     before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_AS, &now), 0);
  }
  ~NoMoreMemory() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

// The catalog has the table then, durably, and no record of it could be found.
TEST_F(OrderedTableTest, WithoutMemoryForItsIndexATableIsNotMadeAndAllElseGoesOn) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer needs memory of its own";
#endif
  ASSERT_TRUE(put("a", "1"));
  {
    const NoMoreMemory small;
    const auto created = s_.store().create_table("another", TableKind::kOrdered);
    EXPECT_EQ(created.code(), ErrorCode::kIo);
  }
  EXPECT_FALSE(s_.store().failed());
  EXPECT_FALSE(s_.store().catalog().find("another"));
  ASSERT_TRUE(put("b", "2"));
  ASSERT_TRUE(s_.store().create_table("another", TableKind::kOrdered));
  s_.reopen();
  EXPECT_EQ(page({})->keys, (std::vector<std::string>{"a", "b"}));
  table_ = *s_.store().catalog().find("another");
  EXPECT_TRUE(page({})->keys.empty());
  ASSERT_TRUE(put("c", "3"));
  EXPECT_EQ(page({})->keys, std::vector<std::string>{"c"});
}

// Records lie in slots that are read backwards at a start.
TEST_F(OrderedTableTest, AfterARestartItsIndexTakesNoMoreMemoryThanBefore) {
  const std::string common(50, 'k');
  uint64_t keys = 0;
  for (; keys < 200'000; ++keys) {
    std::string number = std::to_string(keys);
    number.insert(0, 10 - number.size(), '0');
    if (!put(common + number, "")) break;
  }
  ASSERT_GT(keys, 1000u);
  const uint64_t before = s_.store().index().ordered_bytes();
  s_.reopen();
  EXPECT_EQ(s_.store().live_records(), keys);
  EXPECT_LE(s_.store().index().ordered_bytes(), before);
}

// Damage of the medium: a slot that was free has a copy of another slot's record.
TEST_F(OrderedTableTest, NewerOneOfTwoLiveRecordsOfAKeyCounts) {
  for (const bool copy_is_newer : {true, false}) {
    const std::string key = copy_is_newer ? "a" : "b";
    for (const char* value : {"1", "2", "the record"}) ASSERT_TRUE(put(key, value));
    const GetReply record = get_from(s_.store(), table_, key)->reply;
    ASSERT_TRUE(put("gone" + key, "a value"));
    const GetReply gone = get_from(s_.store(), table_, "gone" + key)->reply;
    ASSERT_TRUE(erase("gone" + key));
    ASSERT_TRUE(s_.store().close());
    std::vector<std::byte> image(kSlotBytes[gone.size_class]);
    const uint64_t version = copy_is_newer ? record.version + 9 : record.version - 1;
    build_record(image, SlotOffset{gone.slot}, table_, version, RecordState::kLive, key, "a copy");
    std::byte* const at = s_.store().arena().at(SlotOffset{gone.slot});
    std::memcpy(at, image.data(), image.size());
    forget_checkpoint(s_.pool());
    s_.reopen();
    EXPECT_EQ(s_.store().recovery().damaged_records, 1u);
    EXPECT_EQ(get_from(s_.store(), table_, key)->value, copy_is_newer ? "a copy" : "the record");
    s_.store().index().ordered(table_)->check_all();
    ASSERT_TRUE(put(key, "changed"));
    ASSERT_TRUE(erase(key));
    EXPECT_FALSE(get_from(s_.store(), table_, key)->found());
    // The other one stays out of use.
    const uint64_t other = copy_is_newer ? record.slot : gone.slot;
    ASSERT_TRUE(put("next" + key, "1"));
    EXPECT_NE(get_from(s_.store(), table_, "next" + key)->reply.slot, other);
  }
}

TEST_F(OrderedTableTest, HashTableHasNoPages) {
  table_ = s_.table();
  EXPECT_EQ(page({}).code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace pmstore::internal
