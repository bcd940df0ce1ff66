#include "pmstore/layout/record.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

namespace pmstore {
namespace {

constexpr SlotOffset kSlot{64 * 21};
constexpr TableId kTable{3};

class Record : public testing::Test {
 protected:
  size_t build(std::string_view key, std::string_view value, RecordState state = RecordState::kLive,
               uint64_t version = 77) {
    image_.assign(record_bytes(key.size(), value.size()), std::byte{0});
    return build_record(image_, kSlot, kTable, version, state, key, value);
  }
  std::vector<std::byte> image_;
};

TEST_F(Record, IsReadBackAsBuilt) {
  EXPECT_EQ(build("alice", "90"), 32u + 5 + 2);
  const auto view = check_record(image_, kSlot);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->key, "alice");
  EXPECT_EQ(view->value, "90");
  EXPECT_EQ(view->version(), 77u);
  EXPECT_EQ(view->header->table, raw(kTable));
  EXPECT_TRUE(view->live());
  EXPECT_EQ(view->bytes(), image_.size());
}

TEST_F(Record, EmptyValueAndLongestKeyAreRecords) {
  build(std::string(255, 'k'), "");
  const auto view = check_record(image_, kSlot);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->key.size(), 255u);
  EXPECT_TRUE(view->value.empty());
}

TEST_F(Record, AnyChangedByteIsNoticed) {
  build("alice", "ninety");
  for (size_t i = 0; i < image_.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      image_[i] ^= std::byte(1 << bit);
      EXPECT_FALSE(check_record(image_, kSlot)) << "byte " << i << " bit " << bit;
      image_[i] ^= std::byte(1 << bit);
    }
  }
  EXPECT_TRUE(check_record(image_, kSlot));
}

TEST_F(Record, IsValidOnlyInItsOwnSlot) {
  build("alice", "90");
  EXPECT_FALSE(check_record(image_, SlotOffset{raw(kSlot) + 64}));
}

TEST_F(Record, ALengthBeyondTheImageIsNoRecord) {
  build("alice", "90");
  for (size_t bytes = 0; bytes < image_.size(); ++bytes) {
    EXPECT_FALSE(check_record(std::span(image_).first(bytes), kSlot)) << bytes;
  }
}

TEST_F(Record, PaddingBehindTheValueDoesNotMatter) {
  build("alice", "90");
  image_.resize(64, std::byte{0xee});
  EXPECT_TRUE(check_record(image_, kSlot));
}

TEST_F(Record, TombstoneKeepsKeyAndVersion) {
  build("alice", "", RecordState::kTombstone);
  const auto view = check_record(image_, kSlot);
  ASSERT_TRUE(view);
  EXPECT_FALSE(view->live());
  EXPECT_EQ(view->key, "alice");
  EXPECT_EQ(view->version(), 77u);
}

// Its checksum is right: a client forges it.
TEST_F(Record, AVersionThatNoLockWordShowsIsNoRecord) {
  for (const uint64_t version : {kMaxRecordVersion + 1, kMaxRecordVersion + 2, UINT64_MAX}) {
    build("alice", "90", RecordState::kLive, version);
    EXPECT_FALSE(check_record(image_, kSlot)) << version;
  }
  build("alice", "90", RecordState::kLive, kMaxRecordVersion);
  const auto view = check_record(image_, kSlot);
  ASSERT_TRUE(view);
  EXPECT_EQ(LockWord::unlocked(view->version() + 1).version(), kMaxRecordVersion + 1);
}

TEST_F(Record, ZeroedSlotIsNoRecordAndWasNeverWritten) {
  image_.assign(64, std::byte{0});
  EXPECT_FALSE(check_record(image_, kSlot));
  EXPECT_TRUE(never_written(image_));
  build("alice", "90");
  EXPECT_FALSE(never_written(image_));
}

}  // namespace
}  // namespace pmstore
