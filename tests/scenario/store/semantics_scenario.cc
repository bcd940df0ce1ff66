// What single operations and transactions of one client do, and what they cost.
#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "tests/scenario/store/store_scenario.h"

namespace pmstore::scenario {
namespace {

class Semantics : public StoreScenario {};
PMSTORE_STORE_SCENARIOS(Semantics);

TEST_P(Semantics, PutInsertEraseAndGet) {
  EXPECT_EQ(get(*client_, "a").code(), ErrorCode::kNotFound);
  ASSERT_TRUE(put(*client_, "a", "1"));
  EXPECT_EQ(*get(*client_, "a"), "1");
  ASSERT_TRUE(put(*client_, "a", "2"));
  EXPECT_EQ(*get(*client_, "a"), "2");
  EXPECT_EQ(run(client_->insert(table_, "a", "3")).code(), ErrorCode::kAlreadyExists);
  EXPECT_EQ(*get(*client_, "a"), "2");
  ASSERT_TRUE(run(client_->erase(table_, "a")));
  EXPECT_EQ(get(*client_, "a").code(), ErrorCode::kNotFound);
  EXPECT_EQ(run(client_->erase(table_, "a")).code(), ErrorCode::kNotFound);
  ASSERT_TRUE(run(client_->insert(table_, "a", "")));
  EXPECT_EQ(*get(*client_, "a"), "");
}

TEST_P(Semantics, ValuesAreReadIntoTheCallersBuffer) {
  for (const size_t size : {0, 1, 64, 1000, 9000, 100'000}) {
    const std::string value(size, 'v');
    ASSERT_TRUE(run(client_->put(table_, "key", value)));
    std::vector<std::byte> into(size + 1, std::byte{'.'});
    const auto bytes = run(client_->get(table_, "key", into));
    ASSERT_TRUE(bytes) << bytes.error().to_string();
    const std::string_view read(reinterpret_cast<const char*>(into.data()), into.size());
    EXPECT_EQ(*bytes, size);
    EXPECT_EQ(read, value + ".");
    // A buffer that is too small stays as it is, and the size is told.
    Transaction transaction = client_->begin();
    std::vector<std::byte> small(size / 2, std::byte{'.'});
    EXPECT_EQ(run(transaction.get(table_, "key", small)), size);
    EXPECT_EQ(std::count(small.begin(), small.end(), std::byte{'.'}),
              static_cast<long>(small.size()));
    transaction.put(table_, "key", "own");
    EXPECT_EQ(run(transaction.get(table_, "key", into)), 3u);
    EXPECT_TRUE(run(transaction.commit()));
  }
  std::vector<std::byte> into(1);
  EXPECT_EQ(run(client_->get(table_, "absent", into)).code(), ErrorCode::kNotFound);
}

TEST_P(Semantics, KeysHaveUpTo512Bytes) {
  const auto ordered = run(client_->create_table("ordered", TableKind::kOrdered));
  ASSERT_TRUE(ordered) << ordered.error().to_string();
  const auto other = connect();
  for (const TableId table : {table_, *ordered}) {
    for (const size_t bytes : {1, 255, 256, 511, 512}) {
      const std::string key(bytes, 'k');
      EXPECT_EQ(run(client_->get(table, key)).code(), ErrorCode::kNotFound) << bytes;
      ASSERT_TRUE(run(client_->insert(table, key, "1"))) << bytes;
      EXPECT_EQ(run(other->insert(table, key, "2")).code(), ErrorCode::kAlreadyExists) << bytes;
      ASSERT_TRUE(run(other->put(table, key, "3"))) << bytes;
      EXPECT_EQ(*run(client_->get(table, key)), "3") << bytes;
      ASSERT_TRUE(run(client_->put(table, key, std::string(1000, 'v')))) << "it moves";
      EXPECT_EQ(*run(other->get(table, key)), std::string(1000, 'v')) << bytes;
    }
    const auto page = run(client_->scan(table, 0, 1 << 20));
    ASSERT_TRUE(page) << page.error().to_string();
    EXPECT_EQ(page->records.size(), 5u);
    Transaction tx = client_->begin();
    for (const size_t bytes : {255, 512}) {
      ASSERT_TRUE(run(tx.get(table, std::string(bytes, 'k'))));
      tx.erase(table, std::string(bytes, 'k'));
    }
    tx.put(table, std::string(512, 'l'), "4");
    ASSERT_TRUE(run(tx.commit()));
    EXPECT_EQ(run(other->get(table, std::string(512, 'k'))).code(), ErrorCode::kNotFound);
    EXPECT_EQ(run(other->get(table, std::string(513, 'k'))).code(), ErrorCode::kTooLarge);
    EXPECT_EQ(run(other->put(table, std::string(513, 'k'), "5")).code(), ErrorCode::kTooLarge);
  }
  if (other != nullptr) run(other->close());
}

TEST_P(Semantics, TablesAreSeparate) {
  const TableId other = table(*client_, "other");
  ASSERT_NE(other, table_);
  ASSERT_TRUE(put(*client_, "a", "1"));
  EXPECT_EQ(run(client_->get(other, "a")).code(), ErrorCode::kNotFound);
  ASSERT_TRUE(run(client_->put(other, "a", "2")));
  EXPECT_EQ(*get(*client_, "a"), "1");
  EXPECT_EQ(run(client_->open_table("nowhere")).code(), ErrorCode::kUnknownTable);
  const auto tables = run(client_->list_tables());
  ASSERT_TRUE(tables);
  EXPECT_EQ(tables->size(), 2u);
  EXPECT_EQ(run(client_->put(TableId{77}, "a", "1")).code(), ErrorCode::kUnknownTable);
}

// Rings that take the largest record.
class LargeRings : public Semantics {
 protected:
  LargeRings() {
    setup_.pool_mib = 64;
    setup_.rings = 4;
    setup_.ring_kib = 4096;
  }
};
PMSTORE_STORE_SCENARIOS(LargeRings);

TEST_P(LargeRings, ValuesOfEverySizeMoveBetweenTheirClasses) {
  std::map<std::string, std::string> expected;
  std::mt19937_64 random(7);
  const size_t sizes[] = {0,    1,    20,    31,    32,     100,     218,     219,
                          1000, 4000, 16300, 16400, 70'000, 300'000, 1 << 20, 5};
  for (size_t i = 0; i < 40; ++i) {
    const std::string key = "key" + std::to_string(random() % 6);
    const std::string value(sizes[random() % std::size(sizes)], static_cast<char>('a' + i % 26));
    const Status status = put(*client_, key, value);
    ASSERT_TRUE(status) << status.error().to_string() << " at " << value.size() << " bytes";
    expected[key] = value;
    for (const auto& [each, content] : expected) {
      const auto got = get(*client_, each);
      ASSERT_TRUE(got) << got.error().to_string();
      ASSERT_EQ(*got, content) << each;
    }
  }
}

TEST_P(Semantics, TransactionIsAllOrNothing) {
  Transaction tx = client_->begin();
  tx.put(table_, "a", "1");
  tx.insert(table_, "b", "2");
  ASSERT_TRUE(run(tx.commit()));
  Transaction fails = client_->begin();
  fails.put(table_, "a", "10");
  fails.put(table_, "new", "10");
  fails.insert(table_, "b", "20");
  EXPECT_EQ(run(fails.commit()).code(), ErrorCode::kAlreadyExists);
  EXPECT_EQ(*get(*client_, "a"), "1");
  EXPECT_EQ(*get(*client_, "b"), "2");
  EXPECT_EQ(get(*client_, "new").code(), ErrorCode::kNotFound);
  Transaction mixed = client_->begin();
  EXPECT_EQ(*run(mixed.get(table_, "a")), "1");
  mixed.put(table_, "a", std::string(500, 'x'));  // moves
  mixed.erase(table_, "b");
  mixed.insert(table_, "c", "3");
  const Status status = run(mixed.commit());
  ASSERT_TRUE(status) << status.error().to_string();
  EXPECT_EQ(get(*client_, "a")->size(), 500u);
  EXPECT_EQ(get(*client_, "b").code(), ErrorCode::kNotFound);
  EXPECT_EQ(*get(*client_, "c"), "3");
}

TEST_P(Semantics, AnotherClientSeesWhatWasCommitted) {
  auto other = connect();
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(put(*client_, "a", std::to_string(i)));
    ASSERT_EQ(*get(*other, "a"), std::to_string(i)) << "strictly: at once";
  }
  run(other->close());
}

TEST_P(Semantics, ScanSeesEveryRecordOnce) {
  std::map<std::string, std::string> expected;
  for (int i = 0; i < 200; ++i) {
    const std::string key = "key" + std::to_string(i);
    expected[key] = std::string(static_cast<size_t>(i * 7 % 900), 'v');
    ASSERT_TRUE(put(*client_, key, expected[key]));
  }
  expected["larger than a page"] = std::string(20'000, 'l');
  ASSERT_TRUE(put(*client_, "larger than a page", expected["larger than a page"]));
  ASSERT_TRUE(run(client_->put(table(*client_, "other"), "not mine", "x")));
  std::map<std::string, std::string> seen;
  uint64_t cursor = 0;
  int pages = 0;
  do {
    const auto page = run(client_->scan(table_, cursor, 4096));
    ASSERT_TRUE(page) << page.error().to_string();
    for (const RecordRef record : page->records) {
      EXPECT_TRUE(seen.emplace(record.key, record.value).second) << record.key << " twice";
    }
    cursor = page->cursor;
    ++pages;
  } while (cursor != 0);
  EXPECT_EQ(seen, expected);
  EXPECT_GT(pages, 5);
}

TEST_P(Semantics, WhatThingsCost) {
  ASSERT_TRUE(put(*client_, "a", "1"));
  ASSERT_TRUE(put(*client_, "b", "1"));
  ASSERT_TRUE(get(*client_, "a"));
  ASSERT_TRUE(get(*client_, "b"));
  if (client_->session().one_sided_reads) {
    const auto reading = cost(*client_, [&] { ASSERT_TRUE(get(*client_, "a")); });
    EXPECT_EQ(reading.doorbells, 1u);
    EXPECT_EQ(reading.work_requests, 2u);
    EXPECT_EQ(reading.round_trips, 1u);
    EXPECT_EQ(reading.server_messages, 0u);
    const auto missing =
        cost(*client_, [&] { ASSERT_EQ(get(*client_, "absent").code(), ErrorCode::kNotFound); });
    EXPECT_EQ(missing.doorbells, 1u);
    EXPECT_EQ(missing.round_trips, 1u);
    EXPECT_EQ(missing.server_messages, client_->session().misses == MissPath::kRpc ? 1u : 0u);
  }
  if (!rnic()) {
    const auto writing = cost(*client_, [&] { ASSERT_TRUE(put(*client_, "a", "2")); });
    EXPECT_EQ(writing.doorbells, 1u);
    EXPECT_EQ(writing.work_requests, 1u);
    EXPECT_EQ(writing.round_trips, 1u);
    EXPECT_EQ(writing.server_messages, 1u);
  }
  if (rnic() && !client_->session().one_sided_commit) return;
  // Two reads; then one request; or lock, log, commit: a doorbell each, of which the last is not
  // waited for.
  Transaction tx = client_->begin();
  const auto whole = cost(*client_, [&] {
    ASSERT_TRUE(run(tx.get(table_, "a")));
    ASSERT_TRUE(run(tx.get(table_, "b")));
    tx.put(table_, "a", "3");
    tx.put(table_, "b", "3");
    ASSERT_TRUE(run(tx.commit()));
  });
  EXPECT_EQ(whole.doorbells, rnic() ? 5u : 3u);
  EXPECT_EQ(whole.round_trips, rnic() ? 4u : 3u);
  if (!rnic()) return;
  EXPECT_EQ(whole.work_requests, 13u) << "4 READs; list, 2 locks; WRITE, READ; 2 WRITEs, 2 unlocks";
  EXPECT_EQ(whole.server_messages, 0u) << "the server's CPU has no part in it";
}

TEST_P(Semantics, FullPoolRefusesAndDeletingMakesRoom) {
  std::vector<std::string> keys;
  const std::string value(100'000, 'v');
  Status status;
  while (status && keys.size() < 2000) {
    keys.push_back("key" + std::to_string(keys.size()));
    status = put(*client_, keys.back(), value);
  }
  ASSERT_EQ(status.code(), ErrorCode::kFull) << keys.size();
  ASSERT_GT(keys.size(), 50u);
  EXPECT_EQ(*get(*client_, keys[0]), value);
  EXPECT_EQ(get(*client_, keys.back()).code(), ErrorCode::kNotFound);
  EXPECT_TRUE(put(*client_, keys[1], std::string(100'000, 'w'))) << "in place needs no room";
  ASSERT_TRUE(run(client_->erase(table_, keys[2])));
  const Status again = put(*client_, keys.back(), value);
  EXPECT_TRUE(again) << again.error().to_string();
}

TEST_P(Semantics, RingNeverStaysFull) {
  // Several times what a ring holds, by many coroutines.
  std::vector<Task<void>> tasks;
  static const std::string value(2000, 'v');
  auto writer = [](Client& client, TableId in, int me) -> Task<void> {
    for (int i = 0; i < 40; ++i) {
      const std::string key = "key" + std::to_string(me * 100 + i % 4);
      const Status status = co_await client.put(in, key, value);
      EXPECT_TRUE(status) << status.error().to_string();
    }
  };
  for (int me = 0; me < 16; ++me) tasks.push_back(writer(*client_, table_, me));
  run_together(std::move(tasks));
  for (int me = 0; me < 16; ++me) {
    EXPECT_EQ(*get(*client_, "key" + std::to_string(me * 100)), value);
  }
}

TEST_P(Semantics, LocationCacheSurvivesDeletionAndReuseOfSlots) {
  auto other = connect();
  constexpr int kKeys = 30;
  const int rounds = times(10, 4);
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < kKeys; ++i) {
      ASSERT_TRUE(put(*other, "key" + std::to_string((i + round) % kKeys),
                      "value" + std::to_string(round)));
    }
    for (int i = 0; i < kKeys; ++i) {
      ASSERT_EQ(*get(*client_, "key" + std::to_string(i)), "value" + std::to_string(round));
    }
    for (int i = kKeys; i-- > 0;) ASSERT_TRUE(run(other->erase(table_, "key" + std::to_string(i))));
    // The same slots, under other keys.
    for (int i = 0; i < kKeys; ++i) {
      const std::string key = "other" + std::to_string(round * kKeys + i);
      ASSERT_TRUE(put(*other, key, "x"));
    }
    for (int i = 0; i < kKeys; ++i) {
      ASSERT_EQ(get(*client_, "key" + std::to_string(i)).code(), ErrorCode::kNotFound);
    }
  }
  run(other->close());
}

TEST_P(Semantics, IdleClientSendsNothingUnlessItHasALease) {
  run(client_->close());
  client_.reset();
  ASSERT_TRUE(target_->stop());
  setup_.lease_ms = 3000;
  start_server();
  client_ = connect();
  ASSERT_NE(client_, nullptr);
  table_ = table(*client_);
  ASSERT_TRUE(put(*client_, "a", "1"));
  const auto spent = cost(*client_, [&] {
    run([](Executor& executor) -> Task<void> {
      co_await executor.sleep_for(2'500'000'000);
    }(executor_));
  });
  const bool leased = rnic() || scheme() == fabric::Scheme::kVerbs || modelled();
  EXPECT_EQ(spent.server_messages > 0, leased);
  EXPECT_EQ(spent.work_requests > 0, leased);
  EXPECT_EQ(*get(*client_, "a"), "1");
}

}  // namespace
}  // namespace pmstore::scenario
