// The server's state machine without a network: what transactions do, and what a restart finds.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>

#include "base/random.h"
#include "pmstore/check.h"
#include "tests/unit/pmstore/shard/earlier_pool.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

constexpr uint64_t kRegionBytes = 4 << 20;

TEST(Store, PutThenGetGivesTheValue) {
  StoreInRegion s(kRegionBytes);
  ASSERT_TRUE(s.put("alice", "100"));
  EXPECT_EQ(s.get("alice")->value, "100");
  ASSERT_TRUE(s.put("alice", "90"));
  EXPECT_EQ(s.get("alice")->value, "90");
  EXPECT_FALSE(s.get("bob")->found());
  EXPECT_EQ(s.store().live_records(), 1u);
}

TEST(Store, GetLeavesOutAValueThatDoesNotFit) {
  StoreInRegion s(kRegionBytes);
  ASSERT_TRUE(s.put("alice", "100"));
  const GetReply whole = s.get("alice")->reply;
  EXPECT_EQ(whole.found, FoundRecord::kWithValue);
  std::array<std::byte, sizeof(GetReply) + 2> room{};
  const auto bytes = s.store().get(s.table(), "alice", room);
  ASSERT_TRUE(bytes) << bytes.error().to_string();
  EXPECT_EQ(*bytes, sizeof(GetReply));
  GetReply place;
  std::memcpy(&place, room.data(), sizeof(place));
  EXPECT_EQ(place.found, FoundRecord::kPlaceOnly);
  EXPECT_EQ(place.value_bytes, 3u);
  EXPECT_EQ(place.slot, whole.slot);
  EXPECT_EQ(place.version, whole.version);
  EXPECT_EQ(place.size_class, whole.size_class);
  const auto none = s.store().get(s.table(), "alice", std::span(room).first(sizeof(GetReply) - 1));
  EXPECT_EQ(none.code(), ErrorCode::kTooLarge);
}

TEST(Store, InsertOfAPresentKeyAndEraseOfAnAbsentOneFail) {
  StoreInRegion s(kRegionBytes);
  EXPECT_EQ(s.erase("alice").code(), ErrorCode::kNotFound);
  ASSERT_TRUE(s.put("alice", "1"));
  EXPECT_EQ(s.commit(s.transaction().write(WriteKind::kInsert, s.table(), "alice", "2")).code(),
            ErrorCode::kAlreadyExists);
  EXPECT_EQ(s.get("alice")->value, "1");
  ASSERT_TRUE(s.erase("alice"));
  EXPECT_FALSE(s.get("alice")->found());
  EXPECT_TRUE(s.commit(s.transaction().write(WriteKind::kInsert, s.table(), "alice", "3")));
  EXPECT_EQ(s.get("alice")->value, "3");
}

TEST(Store, VersionsGrowThroughUpdateEraseReuseAndRestart) {
  StoreInRegion s(kRegionBytes);
  ASSERT_TRUE(s.put("alice", "1"));
  uint64_t version = s.get("alice")->reply.version;
  const uint64_t slot = s.get("alice")->reply.slot;
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(s.erase("alice"));
    s.reopen();
    ASSERT_TRUE(s.put("alice", "2"));
    EXPECT_EQ(s.get("alice")->reply.slot, slot) << "the freed slot is used again";
    EXPECT_GT(s.get("alice")->reply.version, version);
    version = s.get("alice")->reply.version;
  }
}

TEST(Store, ATransactionIsAllOrNothing) {
  StoreInRegion s(kRegionBytes);
  ASSERT_TRUE(s.put("a", "1"));
  auto t = s.transaction()
               .write(WriteKind::kPut, s.table(), "a", "2")
               .write(WriteKind::kPut, s.table(), "b", "2")
               .write(WriteKind::kErase, s.table(), "absent", {});
  EXPECT_EQ(s.commit(t).code(), ErrorCode::kNotFound);
  EXPECT_EQ(s.get("a")->value, "1");
  EXPECT_FALSE(s.get("b")->found());
  // Nothing stayed locked or odd.
  auto again = s.transaction()
                   .write(WriteKind::kPut, s.table(), "a", "3")
                   .write(WriteKind::kPut, s.table(), "b", "3");
  EXPECT_TRUE(s.commit(again));
  EXPECT_EQ(s.get("a")->value, "3");
  EXPECT_EQ(s.get("b")->value, "3");
}

TEST(Store, AChangedReadIsAConflict) {
  StoreInRegion s(kRegionBytes);
  ASSERT_TRUE(s.put("a", "1"));
  const Got seen = *s.get("a");
  ASSERT_TRUE(s.put("a", "2"));
  EXPECT_EQ(s.commit(s.transaction()
                         .read(seen.reply.slot, seen.reply.version)
                         .write(WriteKind::kPut, s.table(), "b", "x"))
                .code(),
            ErrorCode::kConflict);
  EXPECT_EQ(s.commit(s.transaction().write(WriteKind::kPut, s.table(), "a", "x", seen.reply.slot,
                                           seen.reply.version))
                .code(),
            ErrorCode::kConflict);
  const Got now = *s.get("a");
  EXPECT_EQ(now.value, "2");
  EXPECT_TRUE(s.commit(s.transaction().write(WriteKind::kPut, s.table(), "a", "3", now.reply.slot,
                                             now.reply.version)));
}

TEST(Store, AKeyThatAppearedIsAConflictForWhoeverFoundItAbsent) {
  StoreInRegion s(kRegionBytes);
  const Got absent = *s.get("a");
  ASSERT_FALSE(absent.found());
  ASSERT_TRUE(s.put("a", "1"));
  EXPECT_EQ(s.commit(s.transaction()
                         .absent(absent.reply.bucket, absent.reply.bucket_version)
                         .write(WriteKind::kPut, s.table(), "b", "x"))
                .code(),
            ErrorCode::kConflict);
}

TEST(Store, AKeyWrittenTwiceInOneTransactionIsRefused) {
  StoreInRegion s(kRegionBytes);
  for (const bool exists : {false, true}) {
    auto t = s.transaction()
                 .write(WriteKind::kPut, s.table(), "a", "1")
                 .write(WriteKind::kPut, s.table(), "a", "2");
    EXPECT_EQ(s.commit(t).code(), ErrorCode::kInvalidArgument);
    if (!exists) {
      ASSERT_TRUE(s.put("a", "0"));
    }
  }
  EXPECT_EQ(s.get("a")->value, "0");
}

TEST(Store, AValueThatOutgrowsItsSlotMoves) {
  StoreInRegion s(kRegionBytes, {2, 1 << 20});
  std::string value = "x";
  uint64_t version = 0;
  for (size_t bytes = 1; bytes < 200'000; bytes = bytes * 3 + 7) {
    value = std::string(bytes, static_cast<char>('a' + bytes % 26));
    ASSERT_TRUE(s.put("a", value)) << bytes;
    EXPECT_EQ(s.get("a")->value, value);
    version = s.get("a")->reply.version;
    EXPECT_GT(version, 0u);
    EXPECT_EQ(s.store().live_records(), 1u);
  }
  s.reopen();
  EXPECT_EQ(s.get("a")->value, value);
  EXPECT_EQ(s.store().live_records(), 1u);
}

// Rules H5 to H7 off: of a redo entry and of a record only its own bytes are written.
TEST(Store, RecordsAndRedoEntriesFollowThePoolsRules) {
  for (const bool padded : {true, false}) {
    StoreInRegion s(kRegionBytes, {2, 64 << 10}, persist::Domain::kMemoryController,
                    {padded, padded, padded});
    ASSERT_TRUE(s.put("a", std::string(200, 'x')));
    const log::RingPosition& log = s.store().log().ring().position();
    const uint64_t tail = log.tail_lsn;
    const std::string value(9, 'y');
    ASSERT_TRUE(s.put("a", value));
    EXPECT_EQ((log.tail_lsn - tail) % 64 == 0, padded);
    const std::byte* const slot = s.store().arena().at(SlotOffset{s.get("a")->reply.slot});
    const size_t used = persist::round_up(record_bytes(1, value.size()), 8);
    EXPECT_EQ(slot[used], padded ? std::byte{0} : std::byte{'x'});
    for (size_t bytes = 1; bytes < 3000; bytes += 7) {
      ASSERT_TRUE(s.put("b" + std::to_string(bytes % 5), std::string(bytes, 'b')));
    }
    for (int round = 0; round < 2; ++round) {
      EXPECT_EQ(s.get("a")->value, value);
      EXPECT_EQ(s.get("b" + std::to_string(2997 % 5))->value, std::string(2997, 'b'));
      EXPECT_EQ(s.store().live_records(), 6u);
      s.reopen();
    }
  }
}

TEST(Store, UnknownTableAndOversizeAreRefused) {
  StoreInRegion s(kRegionBytes);
  EXPECT_EQ(s.commit(s.transaction().write(WriteKind::kPut, TableId{9}, "a", "1")).code(),
            ErrorCode::kUnknownTable);
  EXPECT_EQ(s.put("a", std::string(kMaxValueBytes + 1, 'x')).code(), ErrorCode::kTooLarge);
  EXPECT_EQ(s.put("a", std::string(100'000, 'x')).code(), ErrorCode::kTooLarge)
      << "more than half of the 64 KiB ring";
  EXPECT_EQ(s.put("", "x").code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(s.store().live_records(), 0u);
}

TEST(Store, AFullPoolRefusesKeepsWhatItHasAndTakesMoreAfterDeletes) {
  StoreInRegion s(2 << 20);
  const std::string value(1000, 'v');
  int count = 0;
  Status status;
  while ((status = s.put("key" + std::to_string(count), value))) ++count;
  EXPECT_EQ(status.code(), ErrorCode::kFull);
  EXPECT_GT(count, 500);
  EXPECT_EQ(s.get("key0")->value, value);
  EXPECT_EQ(s.put("another", value).code(), ErrorCode::kFull);
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(s.erase("key" + std::to_string(i)));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(s.put("new" + std::to_string(i), value));
  EXPECT_EQ(s.put("another", value).code(), ErrorCode::kFull);
  s.reopen();
  EXPECT_EQ(s.store().live_records(), static_cast<uint64_t>(count));
  EXPECT_EQ(s.put("another", value).code(), ErrorCode::kFull);
}

TEST(Store, SlabsOfDeletedRecordsServeOtherSizes) {
  StoreInRegion s(2 << 20);
  for (int round = 0; round < 3; ++round) {
    for (const size_t bytes : {10u, 1000u, 20'000u, 100u}) {
      const std::string value(bytes, 'v');
      int count = 0;
      Status status;
      while ((status = s.put("key" + std::to_string(count), value))) ++count;
      ASSERT_EQ(status.code(), ErrorCode::kFull) << status.error().to_string();
      ASSERT_GT(count, bytes == 20'000 ? 20 : 500) << bytes;
      if (round == 1) s.reopen();
      for (int i = 0; i < count; ++i) ASSERT_TRUE(s.erase("key" + std::to_string(i)));
      EXPECT_EQ(s.store().live_records(), 0u);
    }
  }
  s.reopen();
  EXPECT_EQ(s.store().recovery().damaged_records, 0u);
}

TEST(Store, RandomTransactionsMatchAModelThroughRestarts) {
  StoreInRegion s(kRegionBytes);
  std::map<std::string, std::string> model;
  Random random(7);
  for (int i = 0; i < 20'000; ++i) {
    auto t = s.transaction();
    auto after = model;
    std::map<std::string, bool> touched;
    for (uint64_t n = random.below(4) + 1; n > 0; --n) {
      const std::string key = "k" + std::to_string(random.below(200));
      if (!touched.emplace(key, true).second) continue;
      if (random.below(4) == 0 && after.contains(key)) {
        t.write(WriteKind::kErase, s.table(), key, {});
        after.erase(key);
      } else {
        const std::string value(random.below(random.below(8) == 0 ? 3000 : 60),
                                static_cast<char>('a' + i % 26));
        t.write(WriteKind::kPut, s.table(), key, value);
        after[key] = value;
      }
    }
    ASSERT_TRUE(s.commit(t)) << i;
    model = std::move(after);
    if (i % 4000 == 3999) s.reopen();
    if (i % 500 == 499) {
      ASSERT_EQ(s.store().live_records(), model.size());
      for (const auto& [key, value] : model) ASSERT_EQ(s.get(key)->value, value);
    }
  }
}

TEST(Store, OutcomesAreKnownAfterARestartAndUntilMuchHasFollowed) {
  StoreInRegion s(kRegionBytes);
  s.begin_session();
  ASSERT_TRUE(s.put("a", "1"));
  const TxId first = s.last_id();
  EXPECT_EQ(s.store().outcome(first, false, 0), Outcome::kCommitted);
  EXPECT_EQ(s.store().outcome({first.client, first.sequence + 1}, false, 0), Outcome::kAborted);
  s.reopen();
  EXPECT_EQ(s.store().outcome(first, false, 0), Outcome::kCommitted);
  EXPECT_EQ(s.store().outcome({12345, 1}, false, 0).code(), ErrorCode::kOutcomeExpired)
      << "of a ring that nobody has";
  for (int i = 0; i < 3000; ++i) ASSERT_TRUE(s.put("a", std::string(50, 'x')));
  EXPECT_EQ(s.store().outcome(first, false, 0), Outcome::kCommitted) << "truncated, but noted";
  for (int i = 0; i < 3000; ++i) ASSERT_TRUE(s.put("a", std::string(50, 'x')));
  EXPECT_EQ(s.store().outcome(first, false, 0).code(), ErrorCode::kOutcomeExpired);
}

TEST(Store, ScanGivesEveryRecordOnceInPages) {
  StoreInRegion s(kRegionBytes);
  std::map<std::string, std::string> expected;
  for (int i = 0; i < 500; ++i) {
    const std::string key = "key" + std::to_string(i);
    expected[key] = std::string(static_cast<size_t>(i * 7 % 900), 'v');
    ASSERT_TRUE(s.put(key, expected[key]));
  }
  ASSERT_TRUE(s.erase("key3"));
  expected.erase("key3");
  std::map<std::string, std::string> seen;
  ScanRequest request{0, 4096, raw(s.table()), 0, {}};
  std::vector<std::byte> room(4096);
  for (int page = 0; page < 1000; ++page) {
    const size_t bytes = s.store().scan(request, room).value();
    const std::span<const std::byte> page_bytes = std::span(room).first(bytes);
    MessageReader reader(page_bytes);
    const auto reply = reader.get<ScanReply>();
    for (uint32_t i = 0; i < reply.count; ++i) {
      const auto item = reader.get<ScanItem>();
      const std::string key(reader.get_bytes(item.key_bytes));
      EXPECT_TRUE(seen.emplace(key, reader.get_bytes(item.value_bytes)).second) << key;
    }
    ASSERT_TRUE(reader.complete());
    request.cursor = reply.cursor;
    if (reply.cursor == 0) break;
  }
  EXPECT_EQ(seen, expected);
}

TEST(Store, MalformedCommitRequestsAreNotDecoded) {
  StoreInRegion s(kRegionBytes);
  const auto good = TransactionMessage(5)
                        .read(64, 1)
                        .absent(0, 0)
                        .write(WriteKind::kPut, s.table(), "key", "value")
                        .message();
  ASSERT_TRUE(decode_commit(1, good));
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_FALSE(decode_commit(1, std::span(good).first(bytes))) << bytes;
  }
  Random random(3);
  for (int i = 0; i < 20'000; ++i) {
    auto mutant = good;
    for (uint64_t n = random.below(3) + 1; n > 0; --n) {
      mutant[random.below(mutant.size())] = static_cast<std::byte>(random.next());
    }
    // Whatever it says now: nothing may be read outside of it, and the store survives.
    if (const auto view = decode_commit(1, mutant)) {
      [[maybe_unused]] const Status status = s.store().commit(*view);
    }
  }
  EXPECT_TRUE(s.put("still", "alive"));
}

TEST(Store, ADamagedRecordIsReportedAndItsSlotStaysUnused) {
  StoreInRegion s(kRegionBytes);
  ASSERT_TRUE(s.put("a", "1"));
  ASSERT_TRUE(s.put("b", "2"));
  const uint64_t slot = s.get("a")->reply.slot;
  // Truncated first: otherwise the redo record repairs it.
  ASSERT_TRUE(s.store().log().truncate_through(UINT64_MAX));
  std::byte* record = s.store().arena().at(static_cast<SlotOffset>(slot));
  record[33] ^= std::byte{1};  // the value
  s.reopen();
  EXPECT_EQ(s.store().recovery().damaged_records, 1u);
  EXPECT_FALSE(s.get("a")->found());
  EXPECT_EQ(s.get("b")->value, "2");
  ASSERT_TRUE(s.put("a", "3"));
  EXPECT_NE(s.get("a")->reply.slot, slot);
}

// The catalog's entry of a table, and header copies A and B, as docs/store.md places them.
std::byte* table_entry(StoreInRegion& s, size_t index) {
  return s.pool().root().data() + kTableEntriesOffset + index * sizeof(TableEntry);
}

TEST(Store, ADamagedTableEntryIsRefusedAndItsIdIsNotGivenAway) {
  for (const size_t damaged : {0, 1, 2}) {
    for (const size_t byte : {0, 4, 6, 7, 8, 9, 63}) {
      StoreInRegion s(kRegionBytes);
      const auto second = s.store().catalog().create_table("second");
      const auto third = s.store().catalog().create_table("third");
      ASSERT_TRUE(second && third);
      ASSERT_TRUE(s.put("key", "of t"));
      table_entry(s, damaged)[byte] ^= std::byte{0x10};
      SCOPED_TRACE(testing::Message() << "entry " << damaged << " byte " << byte);
      for (int whole = 0; whole < 2; ++whole) {
        const auto loaded = TableCatalog::load(s.pool());
        ASSERT_FALSE(loaded);
        EXPECT_EQ(loaded.code(), ErrorCode::kBadPool);
        EXPECT_NE(loaded.error().message.find("entry " + std::to_string(damaged + 1)),
                  std::string::npos)
            << loaded.error().message;
        // The same for an entry that was wiped out altogether.
        std::memset(table_entry(s, damaged), 0, sizeof(TableEntry));
      }
    }
  }
}

TEST(Store, AnEntryBehindTheCountedOnesIsATableOrHalfOfOne) {
  StoreInRegion s(kRegionBytes);
  ASSERT_TRUE(s.store().catalog().create_table("second"));
  std::vector<std::byte> root(s.pool().root().begin(), s.pool().root().end());
  ASSERT_TRUE(s.store().catalog().create_table("third"));
  // A crash before the header counted the third one.
  std::memcpy(s.pool().root().data(), root.data(), 2 * kCatalogCopyBytes);
  EXPECT_EQ(TableCatalog::load(s.pool())->tables().size(), 3u);
  // In the middle of writing its entry.
  std::memset(table_entry(s, 2) + 24, 0x5a, 8);
  EXPECT_EQ(TableCatalog::load(s.pool())->tables().size(), 2u);
  // Two of them cannot be half made.
  table_entry(s, 3)[9] = std::byte{1};
  EXPECT_EQ(TableCatalog::load(s.pool()).code(), ErrorCode::kBadPool);
}

// Pools that were made before tables were counted.
TEST(Store, RecordsWithoutATableAreRefused) {
  StoreInRegion s(kRegionBytes);
  const auto second = s.store().catalog().create_table("second");
  ASSERT_TRUE(second);
  ASSERT_TRUE(s.commit(s.transaction().write(WriteKind::kPut, *second, "key", "value")));
  for (uint64_t copy = 0; copy < 2; ++copy) {
    CatalogHeader header = catalog_copy(s.pool(), copy);
    header.table_count = 0;
    store_catalog_copy(s.pool(), copy, header);
  }
  EXPECT_EQ(TableCatalog::load(s.pool())->tables().size(), 2u);
  std::memset(table_entry(s, 1), 0, sizeof(TableEntry));
  EXPECT_EQ(TableCatalog::load(s.pool())->tables().size(), 1u);
  // Before anything is changed, and in any case.
  const Status startable = check_startable(s.pool());
  const auto opened = Store::open(s.pool());
  ASSERT_FALSE(startable);
  ASSERT_FALSE(opened);
  for (const Error& error : {startable.error(), opened.error()}) {
    EXPECT_EQ(error.code, ErrorCode::kBadPool);
    EXPECT_NE(error.message.find("records of table 2"), std::string::npos);
  }
}

TEST(Store, ARecordTornInPlaceIsRepairedFromTheRing) {
  StoreInRegion s(kRegionBytes);
  ASSERT_TRUE(s.put("a", std::string(60, '1')));
  const uint64_t slot = s.get("a")->reply.slot;
  std::memset(s.store().arena().at(static_cast<SlotOffset>(slot)) + 30, 0x55, 40);
  s.reopen();
  EXPECT_EQ(s.store().recovery().damaged_records, 0u);
  EXPECT_EQ(s.store().recovery().records_applied, 1u);
  EXPECT_EQ(s.store().recovery().transactions_replayed, 1u);
  EXPECT_EQ(s.get("a")->value, std::string(60, '1'));
}

TEST(Store, WhatIsInPlaceIsNotCountedAsReplayed) {
  StoreInRegion s(kRegionBytes);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(s.put("a", std::to_string(i)));
  s.reopen();
  EXPECT_EQ(s.store().recovery().entries_read, 3u);
  EXPECT_EQ(s.store().recovery().transactions_replayed, 0u);
}

// What lies behind the damage is not known; so of nothing in that ring it is said that it did not
// happen.
TEST(Store, ARingThatIsDamagedWhileTheServerRunsIsNotTakenOverAndCallsNothingAborted) {
  StoreInRegion s(kRegionBytes);
  ASSERT_TRUE(s.store().take_ring(0, StoreInRegion::kClient, 0, 0));
  const uint64_t first = s.store().session_sequence(0);
  for (uint64_t i = 0; i < 3; ++i) {
    const std::string key = "key" + std::to_string(i);
    ASSERT_TRUE(s.put(key, "value"));
    s.land({{key, "later"}}, first + i);
    uint64_t tail = 0;
    s.ring().for_each_landed([&](const log::EntryView& entry) { tail = entry.next_lsn; });
    ASSERT_TRUE(s.ring().note_tail(tail));
  }
  std::vector<uint64_t> lsns;
  s.ring().for_each_entry([&](const log::EntryView& entry) { lsns.push_back(entry.lsn); });
  ASSERT_EQ(lsns.size(), 3u);
  std::byte* const payload =
      s.pool().memory().at(s.ring().data_offset() + lsns[1] + sizeof(log::EntryHeader));
  *payload ^= std::byte{1};
  const auto outcome = [&](uint64_t i) {
    return s.store().outcome({StoreInRegion::kClient, first + i}, false, 1);
  };
  EXPECT_EQ(outcome(0), Outcome::kCommitted);
  EXPECT_EQ(outcome(1).code(), ErrorCode::kBadPool);
  EXPECT_EQ(outcome(2).code(), ErrorCode::kBadPool);
  EXPECT_EQ(s.store().take_ring(0, 99, 1000, 1).code(), ErrorCode::kBadPool);
  EXPECT_EQ(s.ring().owner(), StoreInRegion::kClient);
}

// Of a record that spans chunks: what a reader has seen of any of them before must not come again.
TEST(Store, ARecordOverTwoChunksIsNewerThanEverythingThatWasInThem) {
  StoreInRegion s(2 << 20, {2, 256 << 10});
  ASSERT_TRUE(s.put("low", std::string(10, 'v')));
  const std::string value(100, 'v');
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(s.put("high", value));
  const GetReply low = s.get("low")->reply;
  const GetReply high = s.get("high")->reply;
  ASSERT_GT(high.slot / kChunkBytes, low.slot / kChunkBytes);
  for (int i = 0; s.store().arena().free_chunks() > 0; ++i) {
    ASSERT_TRUE(s.put("filler" + std::to_string(i), std::string(30'000, 'f')));
  }
  ASSERT_TRUE(s.erase("low"));
  ASSERT_TRUE(s.erase("high"));
  ASSERT_TRUE(s.put("big", std::string(60'000, 'b')));
  const GetReply big = s.get("big")->reply;
  ASSERT_EQ(big.slot / kChunkBytes, low.slot / kChunkBytes);
  ASSERT_EQ(high.slot / kChunkBytes, low.slot / kChunkBytes + 1);
  EXPECT_GT(big.version, high.version);
}

}  // namespace
}  // namespace pmstore::internal
