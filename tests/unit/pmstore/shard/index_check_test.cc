// The check of a secondary index counts what the log will put in place.
#include "pmstore/shard/index_check.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

class IndexInRegion : public ::testing::Test {
 protected:
  IndexInRegion() { index_ = *s_.store().create_table("by_value", TableKind::kOrdered); }

  static IndexDefinition by_value() { return {IndexKind::kMany, key_of_field({0, 3})}; }
  static std::string entry(std::string_view value) {
    return (*index_entry_of(by_value(), "key", value))->key;
  }
  std::span<std::byte> slot_of(TableId table, std::string_view key) {
    const GetReply at = get_from(s_.store(), table, key)->reply;
    return {s_.store().arena().at(SlotOffset{at.slot}), kSlotBytes[at.size_class]};
  }
  Result<CheckReport> check() {
    const IndexToCheck index{"t", "by_value", by_value()};
    return check_store(s_.pool(), {&index, 1});
  }

  StoreInRegion s_{8 << 20};
  TableId index_{};
};

// A slot whose stores a power cut has lost.
struct Lost {
  explicit Lost(std::span<std::byte> slot) : at(slot), before(slot.begin(), slot.end()) {}
  void lose() const { std::memcpy(at.data(), before.data(), before.size()); }
  const std::span<std::byte> at;
  const std::vector<std::byte> before;
};

TEST_F(IndexInRegion, RedoRecordsCountAsTheyWillBeReplayed) {
  ASSERT_TRUE(s_.commit(s_.transaction()
                            .write(WriteKind::kPut, s_.table(), "key", "old")
                            .write(WriteKind::kPut, index_, entry("old"), {})));
  const Lost record(slot_of(s_.table(), "key"));
  const Lost old_entry(slot_of(index_, entry("old")));
  ASSERT_TRUE(s_.commit(s_.transaction()
                            .write(WriteKind::kPut, s_.table(), "key", "new")
                            .write(WriteKind::kErase, index_, entry("old"), {})
                            .write(WriteKind::kPut, index_, entry("new"), {})));
  const std::span<std::byte> new_entry = slot_of(index_, entry("new"));
  record.lose();
  old_entry.lose();
  std::memset(new_entry.data(), 0, new_entry.size());
  const auto report = check();
  ASSERT_TRUE(report) << report.error().to_string();
  EXPECT_EQ(report->to_replay, 3u);
  EXPECT_TRUE(report->sound()) << report->problems.front();
  EXPECT_EQ(report->index_entries, std::vector<uint64_t>{1});
  s_.reopen();
  EXPECT_TRUE(get_from(s_.store(), index_, entry("new"))->found());
  EXPECT_TRUE(check()->sound());
}

}  // namespace
}  // namespace pmstore::internal
