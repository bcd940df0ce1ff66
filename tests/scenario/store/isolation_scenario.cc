// Transactions of several clients at the same time: strict serializability.
#include <algorithm>
#include <random>
#include <set>

#include "tests/scenario/store/history.h"
#include "tests/scenario/store/store_scenario.h"

namespace pmstore::scenario {
namespace {

class Isolation : public StoreScenario {
 protected:
  void SetUp() override {
    StoreScenario::SetUp();
    if (client_ != nullptr) other_ = connect();
  }
  void TearDown() override {
    if (other_ != nullptr) run(other_->close());
    other_.reset();
    StoreScenario::TearDown();
  }
  std::unique_ptr<Client> other_;
};
PMSTORE_STORE_SCENARIOS(Isolation);

TEST_P(Isolation, SecondOfTwoUpdatesOfTheSameVersionConflicts) {
  ASSERT_TRUE(put(*client_, "a", "1"));
  Transaction first = client_->begin();
  Transaction second = other_->begin();
  ASSERT_TRUE(run(first.get(table_, "a")));
  ASSERT_TRUE(run(second.get(table_, "a")));
  first.put(table_, "a", "2");
  second.put(table_, "a", "3");
  EXPECT_TRUE(run(first.commit()));
  EXPECT_EQ(run(second.commit()).code(), ErrorCode::kConflict);
  EXPECT_EQ(*get(*other_, "a"), "2");
}

TEST_P(Isolation, WriteSkewIsPrevented) {
  ASSERT_TRUE(put(*client_, "a", "1"));
  ASSERT_TRUE(put(*client_, "b", "1"));
  Transaction first = client_->begin();
  Transaction second = other_->begin();
  for (Transaction* tx : {&first, &second}) {
    ASSERT_TRUE(run(tx->get(table_, "a")));
    ASSERT_TRUE(run(tx->get(table_, "b")));
  }
  first.put(table_, "a", "0");
  second.put(table_, "b", "0");
  EXPECT_TRUE(run(first.commit()));
  EXPECT_EQ(run(second.commit()).code(), ErrorCode::kConflict);
}

TEST_P(Isolation, WhatWasAbsentIsStillAbsentAtCommit) {
  Transaction first = client_->begin();
  Transaction second = other_->begin();
  ASSERT_EQ(run(first.get(table_, "a")).code(), ErrorCode::kNotFound);
  ASSERT_EQ(run(second.get(table_, "b")).code(), ErrorCode::kNotFound);
  first.insert(table_, "b", "1");
  second.insert(table_, "a", "1");
  EXPECT_TRUE(run(first.commit()));
  EXPECT_EQ(run(second.commit()).code(), ErrorCode::kConflict);
  EXPECT_EQ(get(*client_, "a").code(), ErrorCode::kNotFound);
}

TEST_P(Isolation, AbsenceInABucketThatTheTransactionChangesItselfHolds) {
  // Enough keys that some of them share a bucket, whatever their number.
  const int rounds = times(200, 60);
  for (int i = 0; i < rounds; ++i) {
    Transaction tx = client_->begin();
    const std::string name = std::to_string(i);
    for (int k = 0; k < 8; ++k) {
      ASSERT_EQ(run(tx.get(table_, name + "absent" + std::to_string(k))).code(),
                ErrorCode::kNotFound);
    }
    for (int k = 0; k < 8; ++k) tx.insert(table_, name + "new" + std::to_string(k), "1");
    const Status status = run(tx.commit());
    ASSERT_TRUE(status) << status.error().to_string();
  }
}

TEST_P(Isolation, ErasedRecordConflictsWithItsReaders) {
  ASSERT_TRUE(put(*client_, "a", "1"));
  Transaction first = client_->begin();
  ASSERT_TRUE(run(first.get(table_, "a")));
  first.put(table_, "b", "1");
  ASSERT_TRUE(run(other_->erase(table_, "a")));
  EXPECT_EQ(run(first.commit()).code(), ErrorCode::kConflict);
  EXPECT_EQ(get(*client_, "b").code(), ErrorCode::kNotFound);
}

TEST_P(Isolation, OfManyInsertsOfOneKeyOneWins) {
  std::vector<Task<void>> tasks;
  int inserted = 0;
  int refused = 0;
  auto insert = [](Client& client, TableId in, int& won, int& lost) -> Task<void> {
    const auto body = [in](Transaction& tx) -> Task<Status> {
      tx.insert(in, "prize", "mine");
      co_return Status{};
    };
    const Status status = co_await retry(client, body);
    if (status) ++won;
    if (!status && status.code() == ErrorCode::kAlreadyExists) ++lost;
  };
  for (int i = 0; i < 20; ++i) {
    tasks.push_back(insert(i % 2 == 0 ? *client_ : *other_, table_, inserted, refused));
  }
  run_together(std::move(tasks));
  EXPECT_EQ(inserted, 1);
  EXPECT_EQ(refused, 19);
}

// ---- random transactions and a judge ----

constexpr int kRegisters = 12;

std::string register_name(uint64_t i) { return "register" + std::to_string(i); }

struct Workload {
  TableId table{};
  History history;
  uint64_t next_name = 1;
  uint64_t conflicts = 0;
  std::vector<std::string> errors;
};

// A register's value: its writer, and padding that makes it move between size classes.
std::string value_of(uint64_t writer, std::mt19937_64& random) {
  return std::to_string(writer) + ":" + std::string(random() % 4 == 0 ? random() % 600 : 10, 'p');
}

// One attempt.
Task<Status> attempt(Workload& work, Client& client, std::mt19937_64& random) {
  History::Transaction record(work.next_name++, client.executor().now_ns());
  std::set<std::string> touched;
  Transaction tx = client.begin();
  const size_t count = 1 + random() % 4;
  for (size_t i = 0; i < count; ++i) {
    const std::string name = register_name(random() % kRegisters);
    if (!touched.insert(name).second) continue;
    const auto value = co_await tx.get(work.table, name);
    if (!value && value.code() != ErrorCode::kNotFound) co_return Error(value.error());
    record.read(name, value ? std::stoull(*value) : History::kAbsent);
    if (random() % 2 == 0) continue;
    const std::string next = value_of(record.name(), random);
    if (value && random() % 4 == 0) {
      record.erase(name);
      tx.erase(work.table, name);
      if (random() % 2 == 0) continue;
      tx.insert(work.table, name, next);
    } else {
      tx.put(work.table, name, next);
    }
    record.put(name);
  }
  Status done = co_await tx.commit();
  if (done) {
    record.end(History::Outcome::kCommitted, client.executor().now_ns());
    work.history.add(std::move(record));
  }
  co_return std::move(done);
}

Task<void> play(Workload& work, Client& client, uint64_t seed, int transactions) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < transactions; ++i) {
    const Status status = co_await attempt(work, client, random);
    if (status) continue;
    if (status.code() == ErrorCode::kConflict) {
      ++work.conflicts;
      co_await client.executor().sleep_for(random() % 20'000);
    } else {
      work.errors.push_back(status.error().to_string());
      co_return;
    }
  }
}

TEST_P(Isolation, RandomTransactionsHaveAnOrder) {
  Workload work;
  work.table = table_;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(connect());
  std::vector<Task<void>> tasks;
  const int players = times(200, 40);
  constexpr int kEach = 15;
  for (int i = 0; i < players; ++i) {
    tasks.push_back(play(work, *clients[static_cast<size_t>(i) % clients.size()],
                         static_cast<uint64_t>(i) + 1, kEach));
  }
  run_together(std::move(tasks));
  EXPECT_TRUE(work.errors.empty()) << work.errors.front();
  const auto attempts = static_cast<size_t>(players * kEach);
  EXPECT_GT(work.history.counts().committed, attempts / 10) << work.conflicts << " conflicts";
  EXPECT_GT(work.conflicts, 0u) << "nobody met anybody";
  const auto wrong = work.history.check();
  EXPECT_FALSE(wrong) << *wrong;
  for (auto& each : clients) run(each->close());
}

}  // namespace
}  // namespace pmstore::scenario
