// A client of a pool in its own process: what it does by calls, and that it is a client like
// others.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "pmstore/admin_client.h"
#include "tests/unit/pmstore/embedded_fixture.h"

namespace pmstore {
namespace {

using nlohmann::json;

class EmbeddedClient : public testing::EmbeddedFixture {
 protected:
  // Everything that reads or writes records.
  void work() {
    ASSERT_TRUE(run(client_->put(table_, "a", "1")));
    ASSERT_TRUE(run(client_->insert(table_, "b", "2")));
    EXPECT_EQ(run(client_->insert(table_, "b", "3")).code(), ErrorCode::kAlreadyExists);
    EXPECT_EQ(*run(client_->get(table_, "a")), "1");
    EXPECT_EQ(run(client_->get(table_, "c")).code(), ErrorCode::kNotFound);
    Transaction writing = client_->begin();
    EXPECT_EQ(*run(writing.get(table_, "a")), "1");
    EXPECT_EQ(run(writing.get(table_, "c")).code(), ErrorCode::kNotFound);
    writing.put(table_, "a", "4");
    writing.put(table_, "c", "5");
    ASSERT_TRUE(run(writing.commit()));
    Transaction reading = client_->begin();
    EXPECT_EQ(*run(reading.get(table_, "a")), "4");
    EXPECT_EQ(*run(reading.get(table_, "c")), "5");
    ASSERT_TRUE(run(reading.commit()));
    ASSERT_TRUE(run(client_->erase(table_, "b")));
    EXPECT_EQ(run(client_->erase(table_, "b")).code(), ErrorCode::kNotFound);
    EXPECT_EQ(run(client_->scan(table_, 0))->records.size(), 2u);
  }
};

TEST_F(EmbeddedClient, UsesTheFabricForNothingThatItReadsOrWrites) {
  EXPECT_FALSE(client_->session().one_sided_reads);
  const fabric::Counters before = client_->counters();
  const json stat_before = stat();
  work();
  const fabric::Counters used = client_->counters() - before;
  EXPECT_EQ(used.doorbells, 0u);
  EXPECT_EQ(used.server_messages, 0u);
  EXPECT_EQ(used.round_trips, 0u);
  const auto more = [&](const char* what) {
    return stat().at(what).get<uint64_t>() - stat_before.at(what).get<uint64_t>();
  };
  // Three writes that ended well, two that did not, two transactions; six keys were read.
  EXPECT_EQ(more("calls"), 14u);
  EXPECT_EQ(more("gets"), 6u);
  EXPECT_EQ(more("scans"), 1u);
  EXPECT_EQ(more("commits"), 5u);
}

TEST_F(EmbeddedClient, TakesNoMoreOfThePoolForRecordsThanItsLimit) {
  run(client_->close());
  constexpr uint64_t kLimit = 10 << 20;
  options_.most_record_bytes = kLimit;
  connect();
  EXPECT_EQ(stat().at("records_limit_bytes"), kLimit);
  const std::string value(20'000, 'v');  // three of them fill a chunk but for a few percent
  Status put;
  int count = 0;
  for (; (put = run(client_->put(table_, "key" + std::to_string(count), value))); ++count) {
  }
  EXPECT_EQ(put.code(), ErrorCode::kFull);
  EXPECT_NE(put.error().message.find("limited to 10 MiB"), std::string::npos)
      << put.error().message;
  // An extent of a pool in a file has as much as that, so less may stay unused below the limit.
  constexpr uint64_t kLeastExtent = 2560 << 10;
  constexpr uint64_t kOfTables = 192 << 10;  // beside the slots
  const uint64_t slots = stat().at("records_bytes");
  EXPECT_GT(slots + kOfTables + kLeastExtent, kLimit);
  EXPECT_LE(slots + kOfTables, kLimit);
  EXPECT_GT(static_cast<uint64_t>(count) * value.size(), slots * 9 / 10);
  EXPECT_TRUE(run(client_->put(table_, "key0", value))) << "in its place";
  EXPECT_TRUE(run(client_->erase(table_, "key1")));
  EXPECT_TRUE(run(client_->put(table_, "another", value)));
}

TEST_F(EmbeddedClient, WorksAsOnANetworkUnderLockDisciplineRnic) {
  run(client_->close());
  options_.local_discipline = LockDiscipline::kRnic;
  connect();
  EXPECT_TRUE(client_->session().one_sided_reads);
  const fabric::Counters before = client_->counters();
  work();
  EXPECT_GT((client_->counters() - before).doorbells, 0u);
}

TEST_F(EmbeddedClient, KeepsNobodyFromWorking) {
  constexpr int kOperations = 1000;
  constexpr uint64_t kMostOperationsPerTurn = 16;
  bool over = false;
  uint64_t turns = 0;
  executor_.spawn([](Executor& executor, const bool& end, uint64_t& count) -> Task<void> {
    for (; !end; ++count) co_await executor.yield();
  }(executor_, over, turns));
  ASSERT_TRUE(run(client_->put(table_, "a", "1")));
  const auto work_without_end = [](Client& client, TableId table, bool write) -> Task<void> {
    for (int i = 0; i < kOperations; ++i) {
      if (write) {
        EXPECT_TRUE(co_await client.put(table, "a", "1"));
      } else {
        EXPECT_TRUE(co_await client.get(table, "a"));
      }
    }
  };
  for (const bool write : {false, true}) {
    turns = 0;
    run(work_without_end(*client_, table_, write));
    EXPECT_GE(turns, kOperations / kMostOperationsPerTurn - 1);
    EXPECT_LE(turns, kOperations / 8u) << "where nobody waits, hardly any time is lost";
  }
  // One that moves as many bytes as many small ones do.
  ASSERT_TRUE(run(client_->put(table_, "large", std::string(100'000, 'l'))));
  turns = 0;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(run(client_->get(table_, "large")));
  EXPECT_GE(turns, 10u);
  over = true;
  executor_.run_once();
}

TEST_F(EmbeddedClient, MovesValuesOfEverySize) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{5000}, size_t{300'000}, kMaxValueBytes}) {
    const std::string value(bytes, 'v');
    ASSERT_TRUE(run(client_->put(table_, "k", value)));
    const auto got = run(client_->get(table_, "k"));
    ASSERT_TRUE(got);
    EXPECT_EQ(*got, value);
    Transaction transaction = client_->begin();
    transaction.put(table_, "other", value);
    ASSERT_TRUE(run(transaction.commit()));
    EXPECT_EQ(run(client_->get(table_, "other"))->size(), bytes);
  }
  EXPECT_EQ(run(client_->put(table_, "k", std::string(kMaxValueBytes + 1, 'v'))).code(),
            ErrorCode::kTooLarge);
  // Together larger than what a commit may be.
  Transaction large = client_->begin();
  for (int i = 0; i < 3; ++i)
    large.put(table_, std::to_string(i), std::string(kMaxValueBytes, 'v'));
  EXPECT_EQ(run(large.commit()).code(), ErrorCode::kTooLarge);
}

TEST_F(EmbeddedClient, ScansInPagesOfTheSizeThatWasAskedFor) {
  constexpr uint32_t kPageBytes = 2000;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(run(client_->put(table_, std::to_string(i), std::string(100, 'v'))));
  }
  ASSERT_TRUE(run(client_->put(table_, "large", std::string(300'000, 'l'))));
  std::set<std::string> seen;
  size_t pages = 0;
  uint64_t cursor = 0;
  do {
    const auto page = run(client_->scan(table_, cursor, kPageBytes));
    ASSERT_TRUE(page) << page.error().to_string();
    size_t bytes = 0;
    for (const RecordRef record : page->records) {
      EXPECT_TRUE(seen.emplace(record.key).second) << record.key;
      bytes += record.key.size() + record.value.size();
    }
    EXPECT_TRUE(bytes <= kPageBytes || page->records.size() == 1);
    cursor = page->cursor;
    ++pages;
  } while (cursor != 0);
  EXPECT_EQ(seen.size(), 101u);
  EXPECT_GE(pages, 6u);
}

class EmbeddedRanges : public EmbeddedClient {
 protected:
  void SetUp() override {
    EmbeddedClient::SetUp();
    table_ = *run(client_->create_table("ordered", TableKind::kOrdered));
  }
  void fill(int count, size_t value_bytes) {
    for (int i = 0; i < count; ++i) {
      ASSERT_TRUE(run(client_->put(table_, key(i), std::string(value_bytes, 'v'))));
    }
  }
  static std::string key(int i) { return std::to_string(10'000 + i); }
};

TEST_F(EmbeddedRanges, AreScannedWithoutMessages) {
  fill(300, 10);
  const fabric::Counters before = client_->counters();
  const uint64_t scans = stat().at("scans");
  const auto read_all = [&](Transaction& tx, ScanDirection direction) {
    std::vector<std::string> keys;
    TransactionScan scan = tx.scan(table_, {key(10), key(290)}, direction);
    for (;;) {
      const auto page = run(scan.next(100));
      EXPECT_TRUE(page) << page.error().to_string();
      if (!page || page->empty()) return keys;
      for (const RecordRef record : *page) keys.emplace_back(record.key);
    }
  };
  Transaction tx = client_->begin();
  const auto forward = read_all(tx, ScanDirection::kForward);
  EXPECT_EQ(forward.size(), 280u);
  auto backward = read_all(tx, ScanDirection::kBackward);
  std::reverse(backward.begin(), backward.end());
  EXPECT_EQ(forward, backward);
  EXPECT_EQ(run(tx.first(table_))->key, key(0));
  EXPECT_TRUE(run(tx.commit()));
  const fabric::Counters used = client_->counters() - before;
  EXPECT_EQ(used.doorbells, 0u);
  EXPECT_EQ(used.server_messages, 0u);
  EXPECT_EQ(stat().at("scans").get<uint64_t>() - scans, 7u);
}

TEST_F(EmbeddedRanges, PagesHaveRoomForLargeRecords) {
  fill(5, 300'000);
  ASSERT_TRUE(run(client_->put(table_, key(5), std::string(kMaxValueBytes, 'v'))));
  Transaction tx = client_->begin();
  TransactionScan scan = tx.scan(table_, {});
  int first = 0;
  for (const size_t records : {3u, 2u, 1u}) {
    const auto page = run(scan.next());
    ASSERT_TRUE(page) << page.error().to_string();
    ASSERT_EQ(page->size(), records) << "a page is at most 1 MiB, or one record";
    EXPECT_EQ(page->front().key, key(first));
    EXPECT_TRUE(std::all_of(page->begin(), page->end(), [&](const RecordRef& record) {
      return record.value.size() == (record.key == key(5) ? kMaxValueBytes : 300'000);
    }));
    first += static_cast<int>(records);
  }
  EXPECT_TRUE(run(scan.next())->empty());
}

// A transaction takes as many erases as the redo log of this pool has room for.
TEST_F(EmbeddedRanges, AreErasedAsFarAsATransactionHasRoom) {
  const auto name = [](int i) { return std::string(250, 'k') + key(i); };
  const uint64_t limit = client_->session().max_redo_bytes;
  ASSERT_GT(limit, 0u);
  const uint64_t count = limit / 250;
  for (uint64_t i = 0; i < count; ++i) {
    ASSERT_TRUE(run(client_->put(table_, name(static_cast<int>(i)), "v")));
  }
  KeyRange range;
  uint64_t erased = 0;
  int transactions = 0;
  for (bool complete = false; !complete; ++transactions) {
    Transaction tx = client_->begin();
    const auto some = run(tx.erase_range(table_, range, UINT32_MAX));
    ASSERT_TRUE(some) << some.error().to_string();
    const Status done = run(tx.commit());
    ASSERT_TRUE(done) << done.error().to_string();
    erased += some->erased;
    range = some->rest;
    complete = some->complete;
    EXPECT_TRUE(some->erased > 0 || complete);
  }
  EXPECT_EQ(erased, count);
  EXPECT_GE(transactions, 2);
  // Beside other writes there may be no room at all.
  ASSERT_TRUE(run(client_->put(table_, key(0), "v")));
  for (const bool erase : {false, true}) {
    // An erase has room beside three writes, but not if their records have to move.
    Transaction full = client_->begin();
    for (int i = 0; i < 3; ++i) full.put(table_, "x" + key(i), std::string(limit / 3 - 150, 'v'));
    if (erase) {
      EXPECT_EQ(run(full.erase_range(table_, {"", key(1)}, 1)).code(), ErrorCode::kTooLarge);
      EXPECT_EQ(run(full.commit()).code(), ErrorCode::kTooLarge);
    } else {
      const Status done = run(full.commit());
      EXPECT_TRUE(done) << done.error().to_string();
    }
  }
}

TEST_F(EmbeddedRanges, ScansKeepNobodyFromWorking) {
  fill(1000, 100);
  bool over = false;
  uint64_t turns = 0;
  executor_.spawn([](Executor& executor, const bool& end, uint64_t& count) -> Task<void> {
    for (; !end; ++count) co_await executor.yield();
  }(executor_, over, turns));
  const auto scan_often = [](Client& client, TableId table, int times,
                             uint32_t records) -> Task<void> {
    for (int i = 0; i < times; ++i) {
      Transaction tx = client.begin();
      TransactionScan scan = tx.scan(table, {});
      EXPECT_TRUE(co_await scan.next(records));
      EXPECT_TRUE(co_await tx.commit());
    }
  };
  turns = 0;
  run(scan_often(*client_, table_, 100, 1));
  EXPECT_GE(turns, 5u);
  EXPECT_LE(turns, 14u) << "where nobody waits, hardly any time is lost";
  turns = 0;
  run(scan_often(*client_, table_, 10, 1000));
  EXPECT_GE(turns, 10u) << "a page that takes long is answered after the others' turn";
  over = true;
  executor_.run_once();
}

TEST_F(EmbeddedClient, TransactionsThatMeetConflict) {
  ASSERT_TRUE(run(client_->put(table_, "a", "1")));
  for (const char* const key : {"a", "absent"}) {
    Transaction first = client_->begin();
    Transaction second = client_->begin();
    for (Transaction* each : {&first, &second}) {
      static_cast<void>(run(each->get(table_, key)));
      each->put(table_, key, "2");
    }
    EXPECT_TRUE(run(second.commit()));
    EXPECT_EQ(run(first.commit()).code(), ErrorCode::kConflict);
  }
  Transaction reading = client_->begin();
  EXPECT_EQ(*run(reading.get(table_, "a")), "2");
  EXPECT_EQ(*run(reading.get(table_, "absent")), "2");
  ASSERT_TRUE(run(client_->put(table_, "a", "3")));
  EXPECT_EQ(run(reading.commit()).code(), ErrorCode::kConflict);
}

TEST_F(EmbeddedClient, FindsThatATableIsGone) {
  ASSERT_TRUE(run(client_->put(table_, "a", "1")));
  ASSERT_TRUE(run(client_->drop_table("t")));
  EXPECT_EQ(run(client_->get(table_, "a")).code(), ErrorCode::kUnknownTable);
  EXPECT_EQ(run(client_->get(table_, "absent")).code(), ErrorCode::kUnknownTable);
  EXPECT_EQ(run(client_->put(table_, "a", "2")).code(), ErrorCode::kUnknownTable);
}

TEST_F(EmbeddedClient, OutcomesAreKnownAlsoAfterARestart) {
  run(client_->close());
  client_.reset();
  options_.secret = ClientSecret::of_number(7);
  connect();
  TxId id;
  {
    Transaction transaction = client_->begin();
    transaction.put(table_, "a", "1");
    ASSERT_TRUE(run(transaction.commit()));
    id = transaction.id();
  }
  EXPECT_EQ(*run(client_->outcome(id)), Outcome::kCommitted);
  client_.reset();  // without a goodbye
  connect();
  EXPECT_EQ(*run(client_->outcome(id)), Outcome::kCommitted);
  EXPECT_EQ(*run(client_->get(table_, "a")), "1");
}

TEST_F(EmbeddedClient, SessionThatIsEndedIsMadeAgain) {
  ASSERT_TRUE(run(client_->put(table_, "a", "1")));
  const auto uri = run(client_->local_server()->listen({fabric::Scheme::kLocal, "for-admins", 0}));
  ASSERT_TRUE(uri);
  auto admin = run(AdminClient::connect(executor_, *uri, {}));
  ASSERT_TRUE(admin);
  Transaction begun = client_->begin();
  EXPECT_EQ(*run(begun.get(table_, "a")), "1");
  begun.put(table_, "a", "2");
  ASSERT_TRUE(run((*admin)->kick(client_->id())));
  EXPECT_EQ(run(begun.commit()).code(), ErrorCode::kConflict) << "it is of the session before";
  const fabric::Counters before = client_->counters();
  ASSERT_TRUE(run(client_->put(table_, "a", "3")));
  EXPECT_EQ(client_->session().reconnects, 1u);
  EXPECT_EQ(*run(client_->get(table_, "a")), "3");
  EXPECT_EQ((client_->counters() - before).server_messages, 0u) << "again by calls";
  admin->reset();
}

uint64_t blocks_of(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(stat(path.c_str(), &status), 0);
  return static_cast<uint64_t>(status.st_blocks) * 512;
}

TEST_F(EmbeddedClient, GivesBlocksOfASparsePoolBackWhenRecordsAreErased) {
  run(client_->close());
  client_.reset();
  ASSERT_EQ(std::remove(path_.c_str()), 0);
  const auto fill = [](persist::Pool& pool) {
    FormatOptions format{.rings = 4, .log_bytes = 0, .shard_log_bytes = 4 << 20};
    format.frame_bytes = 4 << 20;
    return format_store(pool, format);
  };
  persist::PoolOpenOptions sparse;
  sparse.sparse = true;
  ASSERT_TRUE(persist::Pool::create(path_, 64 << 20, sparse, false, fill));
  connect();
  constexpr int kRecords = 1500;
  const std::string value(16 << 10, 'v');
  for (int i = 0; i < kRecords; ++i) {
    ASSERT_TRUE(run(client_->put(table_, std::to_string(i), value)));
  }
  const uint64_t full = blocks_of(path_);
  EXPECT_GT(full, kRecords * value.size());
  for (int i = 0; i < kRecords; ++i) ASSERT_TRUE(run(client_->erase(table_, std::to_string(i))));
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(run(client_->get(table_, "0")).code(), ErrorCode::kNotFound);
  }
  EXPECT_LT(blocks_of(path_), full / 2);
}

// The frame was made with the pool: it stays.
TEST_F(EmbeddedClient, GivesBlocksOfFreeSlabsOfASparsePoolBack) {
  constexpr int kRecords = 1500;
  const std::string value(8 << 10, 'v');
  for (const bool is_sparse : {false, true}) {
    run(client_->close());
    client_.reset();
    ASSERT_EQ(std::remove(path_.c_str()), 0);
    const auto fill = [](persist::Pool& pool) {
      FormatOptions format{.rings = 4, .log_bytes = 0, .shard_log_bytes = 4 << 20};
      format.frame_bytes = 32 << 20;
      return format_store(pool, format);
    };
    persist::PoolOpenOptions options;
    options.sparse = is_sparse;
    ASSERT_TRUE(persist::Pool::create(path_, 64 << 20, options, false, fill));
    connect();
    for (int i = 0; i < kRecords; ++i) {
      ASSERT_TRUE(run(client_->put(table_, std::to_string(i), value)));
    }
    const uint64_t full = blocks_of(path_);
    for (int i = 1; i < kRecords; ++i) {
      ASSERT_TRUE(run(client_->erase(table_, std::to_string(i))));
    }
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(run(client_->get(table_, "0")));
    if (is_sparse) {
      EXPECT_LT(blocks_of(path_), full - full / 3);
    } else {
      EXPECT_EQ(blocks_of(path_), full);
    }
    for (int i = 1; i < kRecords; ++i) {
      ASSERT_TRUE(run(client_->put(table_, std::to_string(i), value)));
    }
    EXPECT_EQ(run(client_->get(table_, "0")).value(), value);
    EXPECT_EQ(run(client_->get(table_, "1")).value(), value);
  }
}

TEST_F(EmbeddedClient, ClosedOneIsDisconnected) {
  Transaction begun = client_->begin();
  EXPECT_EQ(run(begun.get(table_, "a")).code(), ErrorCode::kNotFound);
  begun.put(table_, "a", "1");
  run(client_->close());
  EXPECT_EQ(run(client_->put(table_, "a", "1")).code(), ErrorCode::kDisconnected);
  EXPECT_EQ(run(client_->get(table_, "a")).code(), ErrorCode::kDisconnected);
  EXPECT_EQ(run(begun.commit()).code(), ErrorCode::kConflict);
}

}  // namespace
}  // namespace pmstore
