// Pools of earlier formats: refused, and converted.
#include "pmstore/convert.h"

#include <gtest/gtest.h>

#include "pmstore/check.h"
#include "tests/unit/pmstore/shard/earlier_pool.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

constexpr uint64_t kRingBytes = 64 << 10;

class Convert : public ::testing::TestWithParam<uint32_t> {
 protected:
  bool has_log() const { return GetParam() >= kFirstVersionWithLog; }
  // Of `rings` rings before the conversion, the last of which has an update that is not in place.
  void make(uint32_t rings) {
    const uint32_t as_log = rings > 1 ? 2 : 1;
    FormatOptions format{has_log() ? rings : rings - as_log, kRingBytes};
    format.shard_log_bytes = as_log * kRingBytes;
    pool_ = std::move(
        *persist::Pool::in_region(region_.bytes(), persist::Domain::kMemoryController, true));
    ASSERT_TRUE(format_store(*pool_, format));
    auto store = std::move(*Store::open(*pool_));
    table_ = *store->create_table("t");
    for (const char* key : {"alice", "bob"}) {
      const auto message =
          TransactionMessage(++number_).write(WriteKind::kPut, table_, key, "old").message();
      ASSERT_TRUE(store->commit(*decode_commit(kClient, message)));
    }
    const GetReply bob = get_from(*store, table_, "bob")->reply;
    ASSERT_TRUE(store->close());
    store.reset();
    make_earlier(*pool_, GetParam());
    update_ = {SlotOffset{bob.slot}, table_, bob.version + 1, "bob", "new"};
    logged_ = log_in_ring(*pool_, rings - 1, kClient, update_);
  }
  void expect_converted(uint32_t rings) {
    const auto report = check_store(*pool_);
    ASSERT_TRUE(report) << report.error().to_string();
    EXPECT_TRUE(report->sound()) << report->problems.front();
    EXPECT_TRUE(check_startable(*pool_));
    auto opened = Store::open(*pool_);
    ASSERT_TRUE(opened) << opened.error().to_string();
    Store& store = **opened;
    EXPECT_EQ(store.catalog().find("t"), table_);
    EXPECT_EQ(get_from(store, table_, "alice")->value, "old");
    EXPECT_EQ(get_from(store, table_, "bob")->value, "new");
    EXPECT_EQ(store.rings().count(), rings);
    expect_not_aborted(store, logged_);
    const uint64_t first = *store.begin_session();
    EXPECT_GT(session_of(first), session_of(logged_.sequence));
    const auto message =
        TransactionMessage(first).write(WriteKind::kPut, table_, "carol", "1").message();
    ASSERT_TRUE(store.commit(*decode_commit(kClient, message)));
    EXPECT_EQ(store.outcome({kClient, first}, false, 0), Outcome::kCommitted);
    EXPECT_EQ(store.outcome({kClient, first + 1}, false, 0), Outcome::kAborted);
  }

  // Its ring is gone, or its entry is still there; nobody may say that it did not happen.
  static void expect_not_aborted(const Store& store, TxId id) {
    const auto outcome = store.outcome(id, false, 0);
    EXPECT_TRUE(outcome ? *outcome == Outcome::kCommitted
                        : outcome.code() == ErrorCode::kOutcomeExpired);
  }

  static constexpr uint64_t kClient = 77;
  crash::PageBytes region_{2 << 20};
  std::unique_ptr<persist::Pool> pool_;
  TableId table_{};
  uint64_t number_ = 0;
  EarlierUpdate update_;
  TxId logged_;
};
class ConvertToLog : public Convert {};
INSTANTIATE_TEST_SUITE_P(Versions, ConvertToLog, ::testing::Values(1u, 2u));
INSTANTIATE_TEST_SUITE_P(Versions, Convert, ::testing::Values(1u, 2u, 3u));

TEST_P(Convert, APoolOfAnEarlierReleaseIsRefusedInALineThatSaysWhatToDo) {
  make(4);
  for (const Status& refused : {Status(check_startable(*pool_)), [&]() -> Status {
                                  auto opened = Store::open(*pool_);
                                  if (opened) return {};
                                  return opened.error();
                                }()}) {
    ASSERT_EQ(refused.code(), ErrorCode::kVersionMismatch);
    EXPECT_NE(refused.error().message.find("`pmstore pool convert "), std::string::npos)
        << refused.error().message;
  }
}

TEST_P(Convert, RecordsAndWhatTheRingsHoldAreThereAfterwards) {
  make(4);
  const auto done = convert_pool(*pool_);
  ASSERT_TRUE(done) << done.error().to_string();
  EXPECT_EQ(done->from_version, GetParam());
  EXPECT_EQ(done->to_version, kCatalogVersion);
  EXPECT_EQ(done->rings_before, 4u);
  EXPECT_EQ(done->rings, has_log() ? 4u : 2u);
  EXPECT_EQ(done->shard_log_bytes, 2 * kRingBytes);
  expect_converted(done->rings);
}

TEST_P(ConvertToLog, TheOnlyRingBecomesIt) {
  make(1);
  ASSERT_TRUE(convert_pool(*pool_));
  expect_converted(0);
}

// The number of a session that has logged in a ring may be one that says "in the shard log" today.
TEST_P(ConvertToLog, NoTransactionOfTheRingThatBecameItIsCalledAborted) {
  make(1);
  std::vector<TxId> logged = {logged_};
  for (int i = 0; i < 2; ++i) {
    ++update_.version;
    logged.push_back(log_in_ring(*pool_, 0, kClient, update_));
  }
  ASSERT_TRUE(is_in_shard_log(logged[0].sequence) || is_in_shard_log(logged[1].sequence));
  ASSERT_TRUE(convert_pool(*pool_));
  const auto store = std::move(*Store::open(*pool_));
  for (const TxId id : logged) expect_not_aborted(*store, id);
}

TEST_P(Convert, SessionsAreNumberedAboveThoseOfEveryRing) {
  make(4);
  TxId last{};
  for (int i = 0; i < 9; ++i) {
    ++update_.version;
    last = log_in_ring(*pool_, 0, kClient + 1, update_);
  }
  ASSERT_GT(session_of(last.sequence), session_of(logged_.sequence));
  ASSERT_TRUE(convert_pool(*pool_));
  const auto store = std::move(*Store::open(*pool_));
  EXPECT_GT(session_of(*store->begin_session()), session_of(last.sequence));
}

// What a one-sided client, or another program than a client, may have left there.
TEST_P(Convert, EntryThatIsNoRedoRecordIsNoTransaction) {
  make(4);
  log::Ring ring = open_earlier_ring(*pool_, 1);
  ASSERT_TRUE(ring.take_over(kClient, 40));
  const auto redo = earlier_redo(catalog_copy(*pool_, 0).pool, kClient, update_);
  for (const size_t bytes : {redo.size() - 1, size_t{8}}) {
    ASSERT_TRUE(ring.append(first_sequence_of(40), std::span(redo).first(bytes)));
  }
  ASSERT_TRUE(convert_pool(*pool_));
  const auto report = check_store(*pool_);
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->sound()) << report->problems.front();
}

TEST_P(Convert, APoolThatHasLostATableIsRefused) {
  make(4);
  for (uint64_t copy = 0; copy < 2; ++copy) {
    CatalogHeader header = catalog_copy(*pool_, copy);
    header.table_count = 0;
    store_catalog_copy(*pool_, copy, header);
  }
  std::memset(pool_->root().data() + kTableEntriesOffset, 0, sizeof(TableEntry));
  EXPECT_EQ(convert_pool(*pool_).code(), ErrorCode::kBadPool);
  EXPECT_EQ(catalog_copy(*pool_, 0).version, GetParam());
}

TEST_P(Convert, NewerRecordsThanThoseInRingsStay) {
  make(4);
  EarlierUpdate newer = update_;
  newer.version += 2;
  newer.value = "newest";
  log_in_ring(*pool_, 0, kClient + 1, newer);
  ASSERT_TRUE(convert_pool(*pool_));
  const auto store = std::move(*Store::open(*pool_));
  EXPECT_EQ(get_from(*store, table_, "bob")->value, "newest");
}

TEST_P(Convert, ASecondTimeThereIsNothingToDo) {
  make(4);
  ASSERT_TRUE(convert_pool(*pool_));
  const CatalogHeader before = catalog_copy(*pool_, 0);
  const auto again = convert_pool(*pool_);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->from_version, kCatalogVersion);
  EXPECT_EQ(again->rings_before, again->rings);
  const CatalogHeader after = catalog_copy(*pool_, 0);
  EXPECT_EQ(std::memcmp(&before, &after, sizeof before), 0);
}

// A header that an earlier release can read would make it use rings that are not there any more.
TEST_P(Convert, NoCopyOfTheCatalogIsOfTheEarlierVersionAfterwards) {
  make(4);
  ASSERT_TRUE(convert_pool(*pool_));
  for (uint64_t copy = 0; copy < 2; ++copy) {
    EXPECT_EQ(catalog_copy(*pool_, copy).version, kCatalogVersion);
    EXPECT_EQ(catalog_copy(*pool_, copy).features, 0u) << "or the log would be formatted again";
  }
}

TEST_P(Convert, ADamagedRingIsRefusedAndNothingIsChanged) {
  make(4);
  const CatalogHeader header = catalog_copy(*pool_, 0);
  std::memset(pool_->memory().at(header.rings_offset + 2 * kRingBytes), 0x5a, 256);
  EXPECT_EQ(convert_pool(*pool_).code(), ErrorCode::kBadPool);
  EXPECT_EQ(catalog_copy(*pool_, 0).version, GetParam());
  EXPECT_EQ(catalog_copy(*pool_, 1).version, GetParam());
}

TEST(ConvertRest, AnInterruptedConversionIsRefusedUntilItIsFinished) {
  StoreInRegion s(2 << 20);
  ASSERT_TRUE(s.put("alice", "1"));
  ASSERT_TRUE(s.store().close());
  for (uint64_t copy = 0; copy < 2; ++copy) {
    CatalogHeader header = catalog_copy(s.pool(), copy);
    header.features = kConverting;
    store_catalog_copy(s.pool(), copy, header);
  }
  const Status refused = check_startable(s.pool());
  ASSERT_EQ(refused.code(), ErrorCode::kVersionMismatch);
  EXPECT_NE(refused.error().message.find("`pmstore pool convert "), std::string::npos);
  ASSERT_TRUE(convert_pool(s.pool()));
  s.reopen();
  EXPECT_EQ(s.get("alice")->value, "1");
}

TEST(ConvertRest, UnknownFeaturesAreRefused) {
  StoreInRegion s(2 << 20);
  for (uint64_t copy = 0; copy < 2; ++copy) {
    CatalogHeader header = catalog_copy(s.pool(), copy);
    header.features = 2 * kConverting;
    store_catalog_copy(s.pool(), copy, header);
  }
  EXPECT_EQ(TableCatalog::load(s.pool()).code(), ErrorCode::kVersionMismatch);
  EXPECT_EQ(convert_pool(s.pool()).code(), ErrorCode::kVersionMismatch);
}

}  // namespace
}  // namespace pmstore::internal
