// A record that the medium has changed while the server runs is never given out as a value.
#include <algorithm>
#include <cstring>
#include <string>

#include "pmstore/layout/catalog_layout.h"
#include "pmstore/layout/record.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore {
namespace {

class DamagedRecord : public testing::ClientFixture, public ::testing::WithParamInterface<size_t> {
 protected:
  void SetUp() override {
    ClientFixture::SetUp(LockDiscipline::kCpu);
    ASSERT_TRUE(run(client_->put(table_, "good", "fine")));
    const std::string value(GetParam(), 'v');
    ASSERT_TRUE(run(client_->put(table_, "bad", value)));
    // Its last byte, in place: the redo record has another copy.
    const auto memory = region_.bytes();
    const auto bytes = std::as_bytes(std::span(value));
    const auto found = std::find_end(memory.begin(), memory.end(), bytes.begin(), bytes.end());
    ASSERT_NE(found, memory.end());
    found[static_cast<ptrdiff_t>(value.size()) - 1] = std::byte{'w'};
  }
};
INSTANTIATE_TEST_SUITE_P(ValueBytes, DamagedRecord, ::testing::Values(40, 5000, 20'000),
                         ::testing::PrintToStringParamName());

TEST_P(DamagedRecord, IsNotReadAsAValue) {
  EXPECT_EQ(run(client_->get(table_, "bad")).code(), ErrorCode::kDamaged);
  Transaction tx = client_->begin();
  EXPECT_EQ(run(tx.get(table_, "bad")).code(), ErrorCode::kDamaged);
  EXPECT_EQ(*run(client_->get(table_, "good")), "fine");
}

TEST_P(DamagedRecord, IsNotSkippedByAScanUnlessAsked) {
  EXPECT_EQ(run(client_->scan(table_, 0)).code(), ErrorCode::kDamaged);
  const auto page = run(client_->scan(table_, 0, 1 << 18, DamagedRecords::kSkip));
  ASSERT_TRUE(page) << page.error().to_string();
  EXPECT_EQ(page->damaged, 1u);
  ASSERT_EQ(page->records.size(), 1u);
  EXPECT_EQ(page->records[0].key, "good");
}

TEST_P(DamagedRecord, IsGivenUpByTheNextStartWhichCountsIt) {
  // Once its redo record has left the shard log, nothing repairs the record.
  const std::string value(200, 'x');
  for (int i = 0; i < 4000; ++i) ASSERT_TRUE(run(client_->put(table_, "good", value)));
  run(client_->close());
  client_.reset();
  let_time_pass(1'000'000);
  restart();
  EXPECT_EQ(server_->recovery().damaged_records, 1u);
  client_ = connect();
  EXPECT_EQ(run(client_->get(table_, "bad")).code(), ErrorCode::kNotFound);
  const auto page = run(client_->scan(table_, 0));
  ASSERT_TRUE(page) << page.error().to_string();
  ASSERT_EQ(page->records.size(), 1u);
  ASSERT_TRUE(run(client_->insert(table_, "bad", "new")));
  EXPECT_EQ(*run(client_->get(table_, "bad")), "new");
}

TEST_P(DamagedRecord, IsMendedByAWriteAndGoneAfterAnErase) {
  ASSERT_TRUE(run(client_->put(table_, "bad", "new")));
  EXPECT_EQ(*run(client_->get(table_, "bad")), "new");
  ASSERT_TRUE(run(client_->erase(table_, "bad")));
  const auto page = run(client_->scan(table_, 0));
  ASSERT_TRUE(page) << page.error().to_string();
  EXPECT_EQ(page->records.size(), 1u);
}

class DamagedByte : public testing::ClientFixture,
                    public ::testing::WithParamInterface<LockDiscipline> {
 protected:
  void SetUp() override { ClientFixture::SetUp(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Locks, DamagedByte,
                         ::testing::Values(LockDiscipline::kCpu, LockDiscipline::kRnic),
                         [](const auto& each) { return std::string(discipline_name(each.param)); });

// Also of its header and its key: then nothing says any more whose record it is.
TEST_P(DamagedByte, IsNeverTakenForTheAbsenceOfTheRecord) {
  const std::string key = "bad key";
  const std::string value(40, 'v');
  ASSERT_TRUE(run(client_->put(table_, "good", "fine")));
  ASSERT_TRUE(run(client_->put(table_, key, value)));
  const std::string body = key + value;
  const auto memory = region_.bytes();
  const auto bytes = std::as_bytes(std::span(body));
  const auto found = std::find_end(memory.begin(), memory.end(), bytes.begin(), bytes.end());
  ASSERT_NE(found, memory.end());
  const auto record = found - static_cast<ptrdiff_t>(sizeof(RecordHeader));
  const auto size = static_cast<ptrdiff_t>(sizeof(RecordHeader) + body.size());
  for (ptrdiff_t i = 0; i < size; ++i) {
    SCOPED_TRACE("byte " + std::to_string(i));
    record[i] ^= std::byte{1};
    EXPECT_EQ(run(client_->get(table_, key)).code(), ErrorCode::kDamaged);
    Transaction tx = client_->begin();
    EXPECT_EQ(run(tx.get(table_, key)).code(), ErrorCode::kDamaged);
    const auto inserted = run(client_->insert(table_, key, "new")).code();
    EXPECT_TRUE(inserted == ErrorCode::kDamaged || inserted == ErrorCode::kAlreadyExists);
    const auto page = run(client_->scan(table_, 0, 1 << 18, DamagedRecords::kSkip));
    ASSERT_TRUE(page) << page.error().to_string();
    EXPECT_EQ(page->damaged, 1u);
    EXPECT_EQ(page->records.size(), 1u);
    record[i] ^= std::byte{1};
    EXPECT_EQ(*run(client_->get(table_, key)), value);
  }
}

// As a client forges it in a redo record. The next version could not be logged as a redo record.
TEST_P(DamagedByte, RecordWithTheHighestVersionIsReadAndNotWritten) {
  ASSERT_TRUE(run(client_->put(table_, "good", "fine")));
  const std::string body = "keyvalue";
  ASSERT_TRUE(run(client_->put(table_, "key", "value")));
  run(client_->close());
  client_.reset();
  let_time_pass(1'000'000);
  const auto memory = region_.bytes();
  const auto bytes = std::as_bytes(std::span(body));
  const auto found = std::find_end(memory.begin(), memory.end(), bytes.begin(), bytes.end());
  ASSERT_NE(found, memory.end());
  std::byte* const record = &*found - sizeof(RecordHeader);
  internal::CatalogHeader catalog;
  std::memcpy(&catalog, pool_->root().data(), sizeof catalog);
  const SlotOffset slot{pool_->memory().offset_of(record) - catalog.records_offset};
  build_record({record, record_bytes(3, 5)}, slot, table_, kMaxRecordVersion, RecordState::kLive,
               "key", "value");
  restart();
  client_ = connect();
  EXPECT_EQ(*run(client_->get(table_, "key")), "value");
  EXPECT_EQ(run(client_->put(table_, "key", "other")).code(), ErrorCode::kFull);
  EXPECT_EQ(run(client_->erase(table_, "key")).code(), ErrorCode::kFull);
  EXPECT_EQ(run(client_->put(table_, "key", std::string(1000, 'v'))).code(), ErrorCode::kFull);
  EXPECT_EQ(*run(client_->get(table_, "key")), "value");
  ASSERT_TRUE(run(client_->put(table_, "good", "better")));
}

}  // namespace
}  // namespace pmstore
