// Tables: made, dropped, counted, and what a start makes of what is left of them.
#include <gtest/gtest.h>

#include <string>

#include "pmstore/check.h"
#include "pmstore/layout/record.h"
#include "tests/unit/pmstore/lost_page.h"
#include "tests/unit/pmstore/shard/earlier_pool.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

constexpr uint64_t kTablesRegionBytes = 2 << 20;

Status put(StoreInRegion& s, TableId table, std::string_view key, std::string_view value) {
  return s.commit(s.transaction().write(WriteKind::kPut, table, key, value));
}

void free_all(Store& store, TableId table) {
  TableDrop::Cursor cursor;
  while (!cursor.done) {
    auto freed = store.free_dropped(nullptr, table, cursor);
    freed.start();
    ASSERT_TRUE(freed.done());
    ASSERT_TRUE(freed.take());
  }
}

void drop(Store& store, TableId table) {
  ASSERT_TRUE(store.drop_table(table));
  free_all(store, table);
}

TableUsageReply usage_of(Store& store, TableId table) {
  TableUsageReply sum{};
  do {
    const auto part = store.table_usage(table, sum.cursor);
    EXPECT_TRUE(part) << part.error().to_string();
    if (!part) break;
    sum.cursor = part->cursor;
    sum.records += part->records;
    sum.key_bytes += part->key_bytes;
    sum.value_bytes += part->value_bytes;
    sum.slot_bytes += part->slot_bytes;
  } while (sum.cursor != 0);
  return sum;
}

void expect_sound(StoreInRegion& s) {
  const auto report = check_store(s.pool());
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->sound()) << report->problems.front();
  EXPECT_TRUE(check_startable(s.pool()));
}

TEST(Tables, ADroppedTableGivesItsSlotsBack) {
  StoreInRegion s(kTablesRegionBytes);
  ASSERT_TRUE(s.put("kept", "value"));
  const uint64_t used = s.store().arena().used_slots();
  const TableId other = *s.store().catalog().create_table("other");
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(put(s, other, "key" + std::to_string(i), std::string(1 + i % 300, 'v')));
  }
  drop(s.store(), other);
  EXPECT_EQ(s.store().arena().used_slots(), used);
  EXPECT_EQ(s.store().live_records(), 1u);
  EXPECT_EQ(s.get("kept")->value, "value");
  EXPECT_EQ(get_from(s.store(), other, "key1").code(), ErrorCode::kUnknownTable);
  EXPECT_EQ(put(s, other, "key1", "again").code(), ErrorCode::kUnknownTable);
  EXPECT_EQ(s.store().table_usage(other, 0).code(), ErrorCode::kUnknownTable);
  expect_sound(s);
}

// The redo ring still has all that was written there; slots still hold it.
TEST(Tables, RecordsOfADroppedTableNeverComeBack) {
  StoreInRegion s(kTablesRegionBytes);
  ASSERT_TRUE(s.put("key", "old"));
  ASSERT_TRUE(s.put("other", "old"));
  drop(s.store(), s.table());
  const TableId again = *s.store().catalog().create_table("t");
  EXPECT_NE(again, s.table());
  const auto expect_only = [&](const char* value) {
    const auto got = get_from(s.store(), again, "key");
    ASSERT_TRUE(got);
    EXPECT_EQ(got->found() ? got->value : "", value);
    EXPECT_FALSE(get_from(s.store(), again, "other")->found());
    EXPECT_EQ(get_from(s.store(), s.table(), "other").code(), ErrorCode::kUnknownTable);
    EXPECT_EQ(s.store().live_records(), *value == 0 ? 0u : 1u);
    expect_sound(s);
  };
  expect_only("");
  s.reopen();
  expect_only("");
  ASSERT_TRUE(put(s, again, "key", "new"));  // in a slot of the old ones
  expect_only("new");
  s.reopen();
  expect_only("new");
  ASSERT_TRUE(s.store().close());
  s.reopen();
  expect_only("new");
}

TEST(Tables, AStartFreesWhatADropHasNot) {
  StoreInRegion s(kTablesRegionBytes);
  ASSERT_TRUE(s.put("key", "old"));
  const uint64_t slot = s.get("key")->reply.slot;
  const uint64_t version = s.get("key")->reply.version;
  ASSERT_TRUE(s.store().drop_table(s.table()));
  s.reopen();
  EXPECT_EQ(s.store().live_records(), 0u);
  EXPECT_EQ(s.store().recovery().tombstones, 1u);
  // Whoever remembers the place does not take what lies there for the record.
  EXPECT_EQ(s.store().words().load(SlotOffset{slot}), LockWord::unlocked(version + 1));
  const TableId again = *s.store().catalog().create_table("t");
  ASSERT_TRUE(put(s, again, "key", "new"));
  EXPECT_EQ(get_from(s.store(), again, "key")->reply.slot, slot);
  EXPECT_GT(get_from(s.store(), again, "key")->reply.version, version + 1);
}

TEST(Tables, ADropFreesABoundedNumberOfSlotsInACall) {
  StoreInRegion s(kTablesRegionBytes);
  const size_t more = 100;
  for (size_t i = 0; i < TableDrop::kFreedPerCall + more; ++i) {
    ASSERT_TRUE(s.put("key" + std::to_string(i), "value"));
  }
  ASSERT_TRUE(s.store().drop_table(s.table()));
  TableDrop::Cursor cursor;
  for (const size_t left : {more, size_t{0}}) {
    EXPECT_FALSE(cursor.done);
    auto freed = s.store().free_dropped(nullptr, s.table(), cursor);
    freed.start();
    ASSERT_TRUE(freed.done() && freed.take());
    EXPECT_EQ(s.store().live_records(), left);
  }
  EXPECT_TRUE(cursor.done);
}

TEST(Tables, AReadOfADroppedRecordIsNotValidAnyMore) {
  StoreInRegion s(kTablesRegionBytes);
  const TableId other = *s.store().catalog().create_table("other");
  ASSERT_TRUE(put(s, other, "key", "value"));
  const GetReply read = get_from(s.store(), other, "key")->reply;
  drop(s.store(), other);
  EXPECT_EQ(s.commit(s.transaction()
                         .read(read.slot, read.version)
                         .write(WriteKind::kPut, s.table(), "a", "1"))
                .code(),
            ErrorCode::kConflict);
}

TEST(Tables, ACountIsOfOneTable) {
  StoreInRegion s(kTablesRegionBytes);
  const TableId other = *s.store().catalog().create_table("other");
  ASSERT_TRUE(put(s, other, "12345", std::string(1000, 'v')));
  ASSERT_TRUE(s.put("abc", "de"));
  ASSERT_TRUE(s.put("f", ""));
  ASSERT_TRUE(s.put("gone", "1"));
  ASSERT_TRUE(s.erase("gone"));
  const TableUsageReply t = usage_of(s.store(), s.table());
  EXPECT_EQ(t.records, 2u);
  EXPECT_EQ(t.key_bytes, 4u);
  EXPECT_EQ(t.value_bytes, 2u);
  EXPECT_EQ(t.slot_bytes, 2 * 64u);
  EXPECT_EQ(usage_of(s.store(), other).value_bytes, 1000u);
}

// As it is copied while it changes, or after the medium has changed it.
TEST(Tables, ACountSurvivesAKeyOfAnyLength) {
  StoreInRegion s(kTablesRegionBytes);
  ASSERT_TRUE(s.put("key", std::string(1000, 'v')));
  const SlotOffset slot{s.get("key")->reply.slot};
  auto* const header = reinterpret_cast<RecordHeader*>(s.store().arena().at(slot));
  header->value_bytes = 0;
  for (const uint16_t bytes : {513, 900, 1500, 65535}) {
    header->set_key_bytes(bytes);
    EXPECT_EQ(usage_of(s.store(), s.table()).records, 0u) << bytes;
  }
  header->set_key_bytes(3);
  EXPECT_EQ(usage_of(s.store(), s.table()).records, 1u);
}

TEST(Tables, NamesHaveNoControlCharacters) {
  StoreInRegion s(kTablesRegionBytes);
  TableCatalog& catalog = s.store().catalog();
  for (const std::string_view name :
       {std::string_view("a\nb"), std::string_view("\x1b[2J"), std::string_view("a\0b", 3),
        std::string_view("\x7f"), std::string_view("\xc2\x85"), std::string_view("")}) {
    EXPECT_EQ(catalog.create_table(name).code(), ErrorCode::kInvalidArgument);
    FormatOptions options;
    options.tables = {std::string(name)};
    EXPECT_EQ(check_format(options).code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_TRUE(catalog.create_table("with space, \xc3\xa4 and \xc2\xa0"));
}

TEST(Tables, AFullTableOfTablesHasRoomAfterADrop) {
  StoreInRegion s(kTablesRegionBytes);
  TableCatalog& catalog = s.store().catalog();
  ASSERT_EQ(catalog.most_tables(), kRootTableEntries);
  while (catalog.tables().size() < catalog.most_tables()) {
    ASSERT_TRUE(catalog.create_table("table" + std::to_string(catalog.tables().size())));
  }
  EXPECT_EQ(catalog.create_table("another").code(), ErrorCode::kFull);
  const TableId last = *catalog.find("table1007");
  drop(s.store(), *catalog.find("table500"));
  const auto another = catalog.create_table("another");
  ASSERT_TRUE(another);
  EXPECT_GT(raw(*another), raw(last));
  EXPECT_EQ(catalog.create_table("one more").code(), ErrorCode::kFull);
  s.reopen();
  EXPECT_EQ(s.store().catalog().tables().size(), kRootTableEntries);
  EXPECT_EQ(s.store().catalog().find("another"), *another);
  EXPECT_EQ(s.store().catalog().find("table500"), std::nullopt);
}

TEST(Tables, TwoThousandAreThereAgainAfterAStart) {
  StoreInRegion s(20 << 20);
  ASSERT_EQ(s.store().catalog().most_tables(), kMaxTables);
  constexpr int kTables = 2000;
  for (int i = 0; i < kTables; ++i) {
    const auto table = s.store().catalog().create_table("table" + std::to_string(i));
    ASSERT_TRUE(table) << i;
    ASSERT_TRUE(put(s, *table, "key", std::to_string(i)));
  }
  for (int i = 0; i < kTables; i += 100) {
    drop(s.store(), *s.store().catalog().find("table" + std::to_string(i)));
  }
  s.reopen();
  for (int i = 0; i < kTables; ++i) {
    const auto table = s.store().catalog().find("table" + std::to_string(i));
    ASSERT_EQ(table.has_value(), i % 100 != 0) << i;
    if (table) {
      EXPECT_EQ(get_from(s.store(), *table, "key")->value, std::to_string(i));
    }
  }
  expect_sound(s);
}

TEST(Tables, AnIdIsNeverUsedTwice) {
  StoreInRegion s(kTablesRegionBytes);
  uint16_t highest = raw(s.table());
  for (int i = 0; i < 20; ++i) {
    const TableId made = *s.store().catalog().create_table("again");
    EXPECT_GT(raw(made), highest);
    highest = raw(made);
    drop(s.store(), made);
    if (i % 5 == 4) s.reopen();
  }
  // Not even when there were as many as there are ids.
  for (uint64_t copy = 0; copy < 2; ++copy) {
    CatalogHeader header = catalog_copy(s.pool(), copy);
    header.highest_table = kMaxTableIds - 1;
    store_catalog_copy(s.pool(), copy, header);
  }
  s.reopen();
  const auto last = s.store().catalog().create_table("last");
  ASSERT_TRUE(last);
  EXPECT_EQ(raw(*last), kMaxTableIds);
  drop(s.store(), *last);
  EXPECT_EQ(s.store().catalog().create_table("one more").code(), ErrorCode::kFull);
}

std::byte* entry_of(StoreInRegion& s, size_t index) {
  return s.pool().root().data() + kTableEntriesOffset + index * sizeof(TableEntry);
}

// A crash while the next table's name is written there.
TEST(Tables, ADroppedEntrysNameSaysNothing) {
  StoreInRegion s(kTablesRegionBytes);
  const TableId second = *s.store().catalog().create_table("second");
  drop(s.store(), s.table());
  std::memset(entry_of(s, 0) + 8, 0x5a, 40);
  s.reopen();
  ASSERT_EQ(s.store().catalog().tables().size(), 1u);
  EXPECT_EQ(s.store().catalog().find("second"), second);
  // Its first word does.
  entry_of(s, 0)[5] ^= std::byte{1};
  EXPECT_EQ(TableCatalog::load(s.pool()).code(), ErrorCode::kBadPool);
}

CatalogHeader header_copy(StoreInRegion& s, uint64_t copy) {
  CatalogHeader header;
  std::memcpy(&header, s.pool().root().data() + copy * kCatalogCopyBytes, sizeof header);
  return header;
}

// The copy that is durable stays, however often it is tried.
TEST(Tables, AChangeThatFailsLeavesTheCatalogAsItWas) {
  StoreInRegion s(kTablesRegionBytes, {2, 64 << 10}, persist::Domain::kNone);
  TableCatalog& catalog = s.store().catalog();
  const CatalogHeader before = catalog.header();
  const uint64_t newest = before.generation % 2;
  {
    const testing::LostPage lost(s.pool().memory());
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(catalog.drop_table(s.table()).code(), ErrorCode::kIo);
      EXPECT_EQ(catalog.create_table("another").code(), ErrorCode::kIo);
      EXPECT_EQ(catalog.begin_epoch().code(), ErrorCode::kIo);
      EXPECT_EQ(std::memcmp(&catalog.header(), &before, sizeof before), 0);
      const CatalogHeader kept = header_copy(s, newest);
      EXPECT_EQ(std::memcmp(&kept, &before, sizeof before), 0);
      EXPECT_EQ(catalog.tables().size(), 1u);
    }
  }
  s.reopen();
  EXPECT_EQ(s.store().catalog().find("t"), s.table());
  expect_sound(s);
}

// A table's entry that is half written would be overwritten by the next one's.
TEST(Tables, NoneIsMadeAfterOneThatCouldNotBeMadeDurable) {
  StoreInRegion s(kTablesRegionBytes, {2, 64 << 10}, persist::Domain::kNone);
  drop(s.store(), s.table());
  {
    const testing::LostPage lost(s.pool().memory());
    EXPECT_EQ(s.store().create_table("another").code(), ErrorCode::kIo);
    EXPECT_TRUE(s.store().failed());
    TableEntry entry;
    std::memcpy(&entry, entry_of(s, 0), sizeof entry);
    EXPECT_EQ(s.store().create_table("one more").code(), ErrorCode::kIo);
    EXPECT_EQ(std::memcmp(&entry, entry_of(s, 0), sizeof entry), 0);
    EXPECT_EQ(s.put("key", "value").code(), ErrorCode::kIo);
  }
  s.reopen();
  expect_sound(s);
}

TEST(Tables, APoolOfALaterReleaseIsRefused) {
  StoreInRegion s(kTablesRegionBytes);
  for (uint64_t copy = 0; copy < 2; ++copy) {
    CatalogHeader header = catalog_copy(s.pool(), copy);
    header.version = kCatalogVersion + 1;
    store_catalog_copy(s.pool(), copy, header);
  }
  EXPECT_EQ(TableCatalog::load(s.pool()).code(), ErrorCode::kVersionMismatch);
}

}  // namespace
}  // namespace pmstore::internal
