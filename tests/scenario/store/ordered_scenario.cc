// Ordered tables: scans of ranges in transactions.
#include <algorithm>
#include <map>
#include <random>

#include "tests/scenario/store/ordered_tables.h"

namespace pmstore::scenario {
namespace {

PMSTORE_STORE_SCENARIOS(OrderedTables);

TEST_P(OrderedTables, SingleOperationsAreThoseOfHashTables) {
  EXPECT_EQ(get(*client_, "a").code(), ErrorCode::kNotFound);
  ASSERT_TRUE(run(client_->insert(table_, "a", "1")));
  EXPECT_EQ(run(client_->insert(table_, "a", "2")).code(), ErrorCode::kAlreadyExists);
  EXPECT_EQ(*get(*other_, "a"), "1");
  ASSERT_TRUE(put(*other_, "a", std::string(3000, 'x')));
  EXPECT_EQ(get(*client_, "a")->size(), 3000u);
  ASSERT_TRUE(run(client_->erase(table_, "a")));
  EXPECT_EQ(get(*other_, "a").code(), ErrorCode::kNotFound);
  EXPECT_EQ(run(client_->erase(table_, "a")).code(), ErrorCode::kNotFound);
}

TEST_P(OrderedTables, RangesAreScannedInOrderBothWaysAndInPages) {
  const int count = times(500, 60);
  fill(count);
  Transaction tx = client_->begin();
  Keys all = scan(tx, {});
  ASSERT_EQ(all.size(), static_cast<size_t>(count));
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  EXPECT_EQ(scan(tx, {}, ScanDirection::kForward, 7), all);
  EXPECT_EQ(scan(tx, {"k1010", "k1013"}), (Keys{"k1010", "k1011", "k1012"}));
  EXPECT_EQ(scan(tx, {"k1010", "k1013"}, ScanDirection::kBackward, 2),
            (Keys{"k1012", "k1011", "k1010"}));
  EXPECT_EQ(scan(tx, KeyRange::with_prefix("k102")).size(), 10u);
  EXPECT_EQ(scan(tx, {"x", ""}), Keys{});
  std::reverse(all.begin(), all.end());
  EXPECT_EQ(scan(tx, {}, ScanDirection::kBackward, 11), all);
  EXPECT_TRUE(run(tx.commit()));
}

// So long that a leaf has few of them, and with fences that are as long.
TEST_P(OrderedTables, LongKeysAreScannedInOrderBothWays) {
  Keys all;
  for (int i = 0; i < 60; ++i) {
    const size_t bytes = i % 3 == 0 ? 512 : i % 3 == 1 ? 511 : 256;
    std::string key = std::string(bytes - 4, 'k') + std::to_string(1000 + i);
    ASSERT_TRUE(put(*client_, key, std::to_string(i))) << i;
    all.push_back(std::move(key));
  }
  std::sort(all.begin(), all.end());
  Transaction tx = other_->begin();
  EXPECT_EQ(scan(tx, {}, ScanDirection::kForward, 7), all);
  EXPECT_EQ(scan(tx, {}, ScanDirection::kBackward, 7), Keys(all.rbegin(), all.rend()));
  EXPECT_EQ(scan(tx, KeyRange::with_prefix(std::string(512, 'k'))), Keys{});
  const auto at =
      std::find_if(all.begin(), all.end(), [](const auto& k) { return k.size() == 512; });
  ASSERT_NE(at, all.end());
  EXPECT_EQ(scan(tx, {*at, *at + '\0'}), Keys{*at}) << "a bound may be one byte longer";
  const auto next = run(tx.next(table_, *at));
  ASSERT_TRUE(next) << next.error().to_string();
  EXPECT_EQ(next->key, *(at + 1));
  EXPECT_TRUE(run(tx.commit()));
  Transaction erasing = client_->begin();
  const auto erased = run(erasing.erase_range(table_, {all[20], all[40]}, 100));
  ASSERT_TRUE(erased) << erased.error().to_string();
  EXPECT_EQ(erased->erased, 20u);
  ASSERT_TRUE(run(erasing.commit()));
  all.erase(all.begin() + 20, all.begin() + 40);
  Transaction after = other_->begin();
  EXPECT_EQ(scan(after, {}), all);
  EXPECT_TRUE(run(after.commit()));
}

TEST_P(OrderedTables, ScanSeesTheTransactionsOwnWritesInOrder) {
  fill(20);
  Transaction tx = client_->begin();
  tx.put(table_, "k1005a", "mine");
  tx.erase(table_, "k1006");
  tx.put(table_, "k1007", "changed");
  tx.insert(table_, "a", "first");
  TransactionScan ahead = tx.scan(table_, {"k1005", "k1009"});
  const auto page = run(ahead.next());
  ASSERT_TRUE(page) << page.error().to_string();
  ASSERT_EQ(page->size(), 4u);
  EXPECT_EQ((*page)[1].key, "k1005a");
  EXPECT_EQ((*page)[2].key, "k1007");
  EXPECT_EQ((*page)[2].value, "changed");
  EXPECT_EQ(scan(tx, {"", "k1001"}, ScanDirection::kBackward, 1), (Keys{"k1000", "a"}));
  const Keys all = scan(tx, {}, ScanDirection::kForward, 3);
  EXPECT_EQ(all.size(), 21u);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  EXPECT_TRUE(run(tx.commit()));
  Transaction after = other_->begin();
  EXPECT_EQ(scan(after, {"k1005", "k1008"}), (Keys{"k1005", "k1005a", "k1007"}));
}

TEST_P(OrderedTables, OwnWritesBehindAPageComeWithTheirs) {
  fill(10);
  Transaction tx = client_->begin();
  tx.erase(table_, "k1001");
  tx.put(table_, "k1008", "mine");
  const Keys keys = scan(tx, {}, ScanDirection::kForward, 3);
  EXPECT_EQ(keys.size(), 9u);
  EXPECT_TRUE(std::is_sorted(keys.begin(), keys.end()));
}

TEST_P(OrderedTables, NeighboursAreFoundOneByOne) {
  fill(20);
  Transaction tx = client_->begin();
  EXPECT_EQ(run(tx.first(table_))->key, "k1000");
  EXPECT_EQ(run(tx.last(table_))->value, "v19");
  EXPECT_EQ(run(tx.first(table_, {"k1003a", ""}))->key, "k1004");
  EXPECT_EQ(run(tx.last(table_, KeyRange::with_prefix("k100")))->key, "k1009");
  EXPECT_EQ(run(tx.next(table_, "k1003"))->key, "k1004");
  EXPECT_EQ(run(tx.next(table_, ""))->key, "k1000");
  EXPECT_EQ(run(tx.previous(table_, "k1003"))->key, "k1002");
  EXPECT_EQ(run(tx.next(table_, "k1019")).code(), ErrorCode::kNotFound);
  EXPECT_EQ(run(tx.previous(table_, "k1000")).code(), ErrorCode::kNotFound);
  EXPECT_EQ(run(tx.previous(table_, "")).code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(run(tx.commit()));
  // The transaction's own writes are among them.
  Transaction own = client_->begin();
  own.erase(table_, "k1000");
  own.put(table_, "k1001", "changed");
  own.insert(table_, "z", "last");
  EXPECT_EQ(run(own.first(table_))->value, "changed");
  EXPECT_EQ(run(own.last(table_))->key, "z");
  EXPECT_EQ(run(own.previous(table_, "k1001")).code(), ErrorCode::kNotFound);
  EXPECT_TRUE(run(own.commit()));
}

TEST_P(OrderedTables, NeighboursAreReadInOneRoundTrip) {
  fill(times(500, 60));
  ClientOptions options;
  options.one_sided_reads = false;
  const auto asking = connect(options);
  const uint64_t before = asking->counters().round_trips;
  Transaction tx = asking->begin();
  ASSERT_TRUE(run(tx.first(table_)));
  ASSERT_TRUE(run(tx.last(table_)));
  ASSERT_TRUE(run(tx.next(table_, "k1005")));
  ASSERT_TRUE(run(tx.previous(table_, "k1005")));
  EXPECT_LE(asking->counters().round_trips - before, 4u);
  EXPECT_TRUE(run(tx.commit()));
}

// The leaf, and then its records. The first answers tell where the leaves are. A client that has
// not heard of the table for a while asks the server.
TEST_P(OrderedTables, PageOfAKnownLeafNeedsNothingOfTheServersCpu) {
  fill(10);
  const bool one_sided = client_->session().misses == MissPath::kOneSided;
  const auto cost_of = [&](auto&& read) {
    fabric::Counters least;
    // The server may take its time until the leaf is no more in change.
    constexpr int kMost = 5000;
    const auto pause = [this]() -> base::Task<void> { co_await executor_.sleep_for(1'000'000); };
    for (int i = 0; i < 50 || (one_sided && least.server_messages > 0 && i < kMost); ++i) {
      if (i >= 50) executor_.run(pause());
      Transaction tx = client_->begin();
      const fabric::Counters page = cost(*client_, [&] { read(tx); });
      EXPECT_TRUE(run(tx.commit()));
      if (i == 0 || page.server_messages < least.server_messages) least = page;
    }
    return least;
  };
  const auto expect_cheap = [&](const fabric::Counters& page) {
    EXPECT_EQ(page.server_messages, one_sided ? 0u : 1u);
    EXPECT_EQ(page.round_trips, one_sided ? 2u : 1u);
    EXPECT_EQ(page.doorbells, one_sided ? 2u : page.doorbells);
  };
  expect_cheap(cost_of([&](Transaction& tx) { EXPECT_EQ(run(tx.first(table_))->key, "k1000"); }));
  expect_cheap(cost_of([&](Transaction& tx) { EXPECT_EQ(run(tx.last(table_))->key, "k1009"); }));
  expect_cheap(
      cost_of([&](Transaction& tx) { EXPECT_EQ(run(tx.next(table_, "k1003"))->value, "v4"); }));
  expect_cheap(
      cost_of([&](Transaction& tx) { EXPECT_EQ(run(tx.previous(table_, "k1003"))->value, "v2"); }));
  expect_cheap(cost_of([&](Transaction& tx) {
    TransactionScan scan = tx.scan(table_, {"k1001", "k1009"});
    EXPECT_EQ(run(scan.next())->size(), 8u);
  }));
}

TEST_P(OrderedTables, NeighbourIsStillOneAtTheCommit) {
  fill(10);
  const struct {
    const char* other;  // what another transaction inserts
    ErrorCode code;     // of the commit that has read the neighbour behind k1003, which is k1004
  } cases[] = {{"k1003a", ErrorCode::kConflict}, {"k1004", ErrorCode::kConflict}};
  for (const auto& each : cases) {
    Transaction tx = client_->begin();
    ASSERT_TRUE(run(tx.next(table_, "k1003")));
    tx.put(table_, "sum", "1");
    ASSERT_TRUE(put(*other_, each.other, "theirs"));
    EXPECT_EQ(run(tx.commit()).code(), each.code) << each.other;
    ASSERT_TRUE(run(other_->erase(table_, each.other)));
    ASSERT_TRUE(put(*other_, "k1004", "v4"));
  }
  Transaction tx = client_->begin();
  EXPECT_EQ(run(tx.next(table_, "k1009")).code(), ErrorCode::kNotFound);
  tx.put(table_, "a", "nothing is behind k1009");
  ASSERT_TRUE(put(*other_, "k1009a", "theirs"));
  EXPECT_EQ(run(tx.commit()).code(), ErrorCode::kConflict);
}

// The head of a queue, and a client that appends to it: they do not meet.
TEST_P(OrderedTables, TakingTheFirstDoesNotConflictWithAppendsFarBehind) {
  fill(times(1000, 300));
  for (int i = 0; i < 5; ++i) {
    Transaction tx = client_->begin();
    const auto head = run(tx.first(table_));
    ASSERT_TRUE(head) << head.error().to_string();
    tx.erase(table_, head->key);
    ASSERT_TRUE(put(*other_, "z" + std::to_string(i), "appended"));
    EXPECT_TRUE(run(tx.commit()));
  }
}

TEST_P(OrderedTables, OwnWritesAheadOfTheLastPageComeInAnother) {
  fill(4);
  Transaction tx = client_->begin();
  TransactionScan forward = tx.scan(table_, {"k1001", "l"});
  ASSERT_EQ(run(forward.next())->size(), 3u);
  TransactionScan backward = tx.scan(table_, {"", "k1002"}, ScanDirection::kBackward);
  ASSERT_EQ(run(backward.next())->size(), 2u);
  tx.insert(table_, "k1005", "ahead");
  tx.insert(table_, "k1001+", "behind");
  tx.insert(table_, "k", "ahead");
  const RecordPage last = *run(forward.next());
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].key, "k1005");
  const RecordPage first = *run(backward.next());
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].key, "k");
  EXPECT_TRUE(run(forward.next())->empty());
  EXPECT_TRUE(run(backward.next())->empty());
  EXPECT_TRUE(run(tx.commit()));
}

TEST_P(OrderedTables, OwnWritesAheadOfARecordThatWasGivenCome) {
  fill(4);
  Transaction tx = client_->begin();
  tx.erase(table_, "k1001");
  TransactionScan scan = tx.scan(table_, {"k1000", "l"});
  const RecordPage first = *run(scan.next(2));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].key, "k1000");
  tx.insert(table_, "k1000+", "ahead");
  const RecordPage second = *run(scan.next(2));
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(second[0].key, "k1000+");
  EXPECT_EQ(second[1].key, "k1002");
  EXPECT_EQ(run(scan.next(2))->size(), 1u);
  EXPECT_TRUE(run(tx.commit()));
}

TEST_P(OrderedTables, NothingAppearsInARangeThatWasScanned) {
  fill(10);
  Transaction tx = client_->begin();
  EXPECT_EQ(scan(tx, {"k1003", "k1006"}).size(), 3u);
  tx.put(table_, "sum", "3");
  ASSERT_TRUE(put(*other_, "k1004a", "phantom"));
  EXPECT_EQ(run(tx.commit()).code(), ErrorCode::kConflict);
}

TEST_P(OrderedTables, NothingVanishesOrChangesInARangeThatWasScanned) {
  fill(10);
  for (const bool erase : {true, false}) {
    Transaction tx = client_->begin();
    EXPECT_GE(scan(tx, {"k1003", "k1006"}).size(), 2u);
    tx.put(table_, "sum", "3");
    const Status changed =
        erase ? run(other_->erase(table_, "k1004")) : put(*other_, "k1005", "other");
    ASSERT_TRUE(changed);
    EXPECT_EQ(run(tx.commit()).code(), ErrorCode::kConflict);
  }
}

TEST_P(OrderedTables, RecordThatHasChangedBehindAScanIsNotOverwritten) {
  fill(3);
  for (const bool erase : {true, false}) {
    Transaction tx = client_->begin();
    EXPECT_EQ(scan(tx, {}).size(), 3u);
    ASSERT_TRUE(put(*other_, "k1001", "other"));
    if (erase) tx.erase(table_, "k1001");
    if (!erase) tx.put(table_, "k1001", "mine");
    EXPECT_EQ(run(tx.commit()).code(), ErrorCode::kConflict);
    EXPECT_EQ(*get(*client_, "k1001"), "other");
  }
}

TEST_P(OrderedTables, TransactionMayChangeAndMoveWhatItHasScanned) {
  fill(4);
  Transaction tx = client_->begin();
  EXPECT_EQ(scan(tx, {}).size(), 4u);
  tx.put(table_, "k1000", "changed");
  tx.put(table_, "k1001", std::string(3000, 'm'));
  tx.erase(table_, "k1002");
  tx.insert(table_, "k1002a", "new");
  const Status done = run(tx.commit());
  ASSERT_TRUE(done) << done.error().to_string();
  Transaction after = other_->begin();
  EXPECT_EQ(scan(after, {}), (Keys{"k1000", "k1001", "k1002a", "k1003"}));
  EXPECT_EQ(get(*other_, "k1001")->size(), 3000u);
}

// Under rnic a scan adds one message to the commit; nothing else becomes dearer.
TEST_P(OrderedTables, WhatThingsCost) {
  fill(3);
  Transaction tx = client_->begin();
  const auto scanning = cost(*client_, [&] { EXPECT_EQ(scan(tx, {}).size(), 3u); });
  EXPECT_EQ(scanning.server_messages, 1u);
  ASSERT_TRUE(get(*client_, "k1001"));
  tx.put(table_, "k1001", "2");
  const auto committing = cost(*client_, [&] { ASSERT_TRUE(run(tx.commit())); });
  if (rnic() && !client_->session().one_sided_commit) return;
  EXPECT_EQ(committing.server_messages, 1u) << "under rnic it is what the scan has seen";
  if (!rnic()) return;
  EXPECT_EQ(committing.doorbells, 5u) << "locate; lock; validate; log; commit";
  const auto single = cost(*client_, [&] { ASSERT_TRUE(put(*client_, "k1001", "3")); });
  EXPECT_EQ(single.server_messages, 0u);
}

TEST_P(OrderedTables, EmptyRangeStaysEmptyUntilTheCommit) {
  Transaction first = client_->begin();
  Transaction second = other_->begin();
  EXPECT_TRUE(scan(first, {"b", "c"}).empty());
  EXPECT_TRUE(scan(second, {"a", "b"}).empty());
  first.insert(table_, "a1", "1");
  second.insert(table_, "b1", "1");
  EXPECT_TRUE(run(first.commit()));
  EXPECT_EQ(run(second.commit()).code(), ErrorCode::kConflict) << "write skew by phantoms";
}

TEST_P(OrderedTables, ReadOnlyScanOverSeveralPagesIsOfOneMoment) {
  fill(30);
  Transaction tx = client_->begin();
  TransactionScan pages = tx.scan(table_, {});
  ASSERT_TRUE(run(pages.next(10)));
  ASSERT_TRUE(put(*other_, "k1001", "changed behind the scan"));
  ASSERT_TRUE(run(pages.next(10)));
  EXPECT_EQ(run(tx.commit()).code(), ErrorCode::kConflict);
}

TEST_P(OrderedTables, AbsentKeyThatWasReadIsAbsentAtTheCommit) {
  fill(3);
  Transaction tx = client_->begin();
  EXPECT_EQ(run(tx.get(table_, "k1001a")).code(), ErrorCode::kNotFound);
  tx.put(table_, "x", "1");
  ASSERT_TRUE(put(*other_, "k1001a", "now there"));
  EXPECT_EQ(run(tx.commit()).code(), ErrorCode::kConflict);
}

TEST_P(OrderedTables, ContradictionIsToldWhileWhatWasReadIsUnchanged) {
  fill(3);
  Transaction tx = client_->begin();
  EXPECT_EQ(run(tx.get(table_, "a")).code(), ErrorCode::kNotFound);
  tx.insert(table_, "a", "1");
  tx.insert(table_, "k1001", "is there");
  EXPECT_EQ(run(tx.commit()).code(), ErrorCode::kAlreadyExists);
  EXPECT_EQ(get(*other_, "a").code(), ErrorCode::kNotFound);
  Transaction late = client_->begin();
  EXPECT_EQ(run(late.get(table_, "a")).code(), ErrorCode::kNotFound);
  late.insert(table_, "a", "1");
  late.insert(table_, "k1001", "is there");
  ASSERT_TRUE(put(*other_, "b", "1"));
  EXPECT_FALSE(run(late.commit()));
  Transaction after = other_->begin();
  EXPECT_EQ(scan(after, {}), (Keys{"b", "k1000", "k1001", "k1002"}));
}

TEST_P(OrderedTables, HashTableCannotBeScannedInOrder) {
  const TableId hash = table(*client_, "hash");
  Transaction tx = client_->begin();
  TransactionScan wrong = tx.scan(hash, {});
  EXPECT_EQ(run(wrong.next()).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(run(tx.commit()).code(), ErrorCode::kInvalidArgument);
}

TEST_P(OrderedTables, DroppedTableIsGoneAndItsNameFree) {
  fill(times(300, 30));
  ASSERT_TRUE(run(client_->drop_table("ordered")));
  Transaction tx = client_->begin();
  TransactionScan gone = tx.scan(table_, {});
  EXPECT_EQ(run(gone.next()).code(), ErrorCode::kUnknownTable);
  table_ = *run(client_->create_table("ordered", TableKind::kOrdered));
  Transaction again = client_->begin();
  EXPECT_TRUE(scan(again, {}).empty());
}

// Players move units between neighbouring keys, which they insert and erase; the units of all keys
// never change in number, as each scan of the whole range sees.
Task<void> move_units(Client& client, TableId table, uint64_t seed, int moves,
                      std::vector<std::string>& errors) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < moves; ++i) {
    // What an attempt that does not commit has seen may be of several moments.
    int sum = 0;
    const auto body = [&](Transaction& tx) -> Task<Status> {
      TransactionScan scan = tx.scan(table, KeyRange::with_prefix("u"));
      std::map<std::string, int> units;
      sum = 0;
      for (;;) {
        PMSTORE_CO_TRY(const RecordPage page, co_await scan.next(5));
        if (page.empty()) break;
        for (const RecordRef record : page) {
          sum += units[std::string(record.key)] = std::stoi(std::string(record.value));
        }
      }
      auto from = units.begin();
      std::advance(from, random() % units.size());
      const std::string to = "u" + std::to_string(100 + random() % 60);
      if (to == from->first) co_return Status{};
      const int moved = 1 + static_cast<int>(random() % static_cast<uint64_t>(from->second));
      if (moved == from->second) tx.erase(table, from->first);
      if (moved != from->second) tx.put(table, from->first, std::to_string(from->second - moved));
      const auto there = units.find(to);
      tx.put(table, to, std::to_string(moved + (there == units.end() ? 0 : there->second)));
      co_return Status{};
    };
    const Status moved = co_await retry(client, body);
    if (!moved) errors.push_back(moved.error().to_string());
    if (moved && sum != 100) errors.push_back("a scan saw " + std::to_string(sum));
  }
}

TEST_P(OrderedTables, ConcurrentScansAndInsertsLeaveTheSumAsItWas) {
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(put(*client_, "u" + std::to_string(100 + i), "10"));
  std::vector<std::string> errors;
  std::vector<Task<void>> tasks;
  for (uint64_t i = 0; i < 8; ++i) {
    tasks.push_back(move_units(i % 2 == 0 ? *client_ : *other_, table_, i, times(40, 4), errors));
  }
  run_together(std::move(tasks));
  EXPECT_TRUE(errors.empty()) << errors.front();
}

}  // namespace
}  // namespace pmstore::scenario
