#include "pmstore/layout/record.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "base/checksum.h"

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
  for (const size_t bytes : {1, 255, 256, 511, 512}) {
    build(std::string(bytes, 'k'), "");
    const auto view = check_record(image_, kSlot);
    ASSERT_TRUE(view) << bytes;
    EXPECT_EQ(view->key, std::string(bytes, 'k'));
    EXPECT_EQ(view->header->key_bytes(), bytes);
    EXPECT_TRUE(view->value.empty());
  }
}

// Its checksum is right, as a client can make it.
TEST_F(Record, KeyThatIsTooLongIsNone) {
  build(std::string(512, 'k'), "value");
  auto* const header = reinterpret_cast<RecordHeader*>(image_.data());
  for (const uint16_t bytes : {512, 513, 517, 0}) {
    header->set_key_bytes(bytes);
    header->value_bytes = 517u - bytes;
    header->checksum = base::checksum64(
        std::span<const std::byte>(image_).subspan(offsetof(RecordHeader, version)), raw(kSlot));
    EXPECT_EQ(check_record(image_, kSlot).has_value(), bytes == 512) << bytes;
  }
}

// The bytes of a record as releases wrote it whose keys had at most 255 bytes.
TEST_F(Record, IsReadAsEarlierReleasesWroteIt) {
  constexpr uint8_t kThen[] = {77,  0,   0,   0,   0,   0,   0,  0,  // version
                               2,   0,   0,   0,                     // bytes of the value
                               3,   0,   5,   1,  // table, bytes of the key, live
                               0,   0,   0,   0,   0,   0,   0,  0,  //
                               'a', 'l', 'i', 'c', 'e', '9', '0'};
  build("alice", "90");
  ASSERT_EQ(image_.size(), 8 + sizeof(kThen));
  EXPECT_EQ(std::memcmp(image_.data() + 8, kThen, sizeof(kThen)), 0);
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
