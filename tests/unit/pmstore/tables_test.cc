// Clients make, list, count and drop tables, under both lock disciplines.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore::testing {
namespace {

class ClientTables : public ClientFixture, public ::testing::WithParamInterface<LockDiscipline> {
 protected:
  void SetUp() override {
    ClientFixture::SetUp(GetParam());
    other_ = connect();
  }
  void TearDown() override {
    if (other_ != nullptr) run(other_->close());
    other_.reset();
    ClientFixture::TearDown();
  }
  std::vector<std::string> names() {
    std::vector<std::string> names;
    const auto tables = run(client_->list_tables());
    EXPECT_TRUE(tables);
    if (tables) {
      for (const TableInfo& table : *tables) names.push_back(table.name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  void let_turns_pass(int turns) {
    run([](Executor& executor, int left) -> Task<void> {
      for (; left > 0; --left) co_await executor.yield();
    }(executor_, turns));
  }
  uint64_t live_records() {
    const std::string text = server_->stat_json();
    const std::string name = "\"live_records\": ";
    return std::strtoull(text.c_str() + text.find(name) + name.size(), nullptr, 10);
  }

  std::unique_ptr<Client> other_;
};
INSTANTIATE_TEST_SUITE_P(Locks, ClientTables,
                         ::testing::Values(LockDiscipline::kCpu, LockDiscipline::kRnic),
                         [](const auto& param) {
                           return std::string(discipline_name(param.param));
                         });

TEST_P(ClientTables, RecordsOfAnOrderedTableAreCountedByItsIndex) {
  const auto made = run(client_->create_table("made", TableKind::kOrdered));
  ASSERT_TRUE(made);
  EXPECT_EQ(run(other_->count_records(*made)), 0u);
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(run(client_->put(*made, "key " + std::to_string(i % 30), "value")));
  }
  ASSERT_TRUE(run(client_->erase(*made, "key 3")));
  EXPECT_EQ(run(other_->count_records(*made)), 29u);
  EXPECT_EQ(run(other_->table_usage(*made))->records, 29u);
  ASSERT_TRUE(run(client_->drop_table("made")));
  EXPECT_EQ(run(other_->count_records(*made)).code(), ErrorCode::kUnknownTable);
}

TEST_P(ClientTables, AreMadeListedCountedAndDropped) {
  const auto made = run(client_->create_table("made"));
  ASSERT_TRUE(made);
  EXPECT_EQ(run(client_->create_table("made")).code(), ErrorCode::kAlreadyExists);
  EXPECT_EQ(run(client_->create_table("a\nb")).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(run(client_->open_table("a\nb", true)).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(run(client_->open_table("made")), *made);
  EXPECT_EQ(names(), (std::vector<std::string>{"made", "t"}));
  ASSERT_TRUE(run(client_->put(*made, "key", "value")));
  const auto usage = run(other_->table_usage(*made));
  ASSERT_TRUE(usage);
  EXPECT_EQ(usage->records, 1u);
  EXPECT_EQ(usage->key_bytes, 3u);
  EXPECT_EQ(usage->value_bytes, 5u);
  EXPECT_EQ(usage->slot_bytes, 64u);
  EXPECT_EQ(run(other_->count_records(*made)), 1u);
  EXPECT_EQ(live_records(), 1u);
  ASSERT_TRUE(run(other_->drop_table("made")));
  EXPECT_EQ(live_records(), 0u);
  EXPECT_EQ(names(), (std::vector<std::string>{"t"}));
  EXPECT_EQ(run(client_->drop_table("made")).code(), ErrorCode::kUnknownTable);
  EXPECT_EQ(run(client_->open_table("made")).code(), ErrorCode::kUnknownTable);
  EXPECT_EQ(run(client_->table_usage(*made)).code(), ErrorCode::kUnknownTable);
}

// It has the table's id, and knows where its records were.
TEST_P(ClientTables, AClientOfADroppedTableIsTold) {
  ASSERT_TRUE(run(client_->put(table_, "key", "old")));
  ASSERT_EQ(run(client_->get(table_, "key")), "old");
  ASSERT_TRUE(run(other_->drop_table("t")));
  const TableId again = *run(other_->create_table("t"));
  ASSERT_NE(again, table_);
  ASSERT_TRUE(run(other_->put(again, "key", "new")));
  EXPECT_EQ(run(client_->put(table_, "key", "1")).code(), ErrorCode::kUnknownTable);
  EXPECT_EQ(run(client_->insert(table_, "another", "1")).code(), ErrorCode::kUnknownTable);
  EXPECT_FALSE(run(client_->get(table_, "key")));
  let_time_pass(Client::kTableSeenNs);
  EXPECT_EQ(run(client_->get(table_, "key")).code(), ErrorCode::kUnknownTable);
  EXPECT_EQ(run(client_->erase(table_, "key")).code(), ErrorCode::kUnknownTable);
  EXPECT_EQ(run(client_->scan(table_, 0)).code(), ErrorCode::kUnknownTable);
  EXPECT_EQ(run(client_->get(again, "key")), "new");
  restart();
  client_ = connect();
  other_ = connect();
  EXPECT_EQ(run(client_->get(table_, "key")).code(), ErrorCode::kUnknownTable);
  EXPECT_EQ(run(client_->get(again, "key")), "new");
}

TEST_P(ClientTables, ATransactionDoesNotOutliveTheTableThatItHasRead) {
  ASSERT_TRUE(run(client_->put(table_, "key", "old")));
  const TableId kept = *run(client_->create_table("kept"));
  Transaction tx = client_->begin();
  ASSERT_TRUE(run(tx.get(table_, "key")));
  tx.put(table_, "key", "new");
  tx.put(kept, "key", "new");
  ASSERT_TRUE(run(other_->drop_table("t")));
  const Status committed = run(tx.commit());
  ASSERT_FALSE(committed);
  EXPECT_TRUE(committed.code() == ErrorCode::kConflict ||
              committed.code() == ErrorCode::kUnknownTable)
      << committed.error().to_string();
  EXPECT_EQ(run(client_->get(kept, "key")).code(), ErrorCode::kNotFound);
  EXPECT_EQ(live_records(), 0u);
}

// A commit that is under way when the table goes is committed before that, or not at all. The drop
// ends when nothing of the table can be read or changed any more.
TEST_P(ClientTables, ADropMeetsCommitsAtEachOfTheirPoints) {
  constexpr int kPoints = 60;
  int commits = 0;
  for (int point = -kPoints; point < kPoints; ++point) {
    SCOPED_TRACE(point);
    const TableId table = *run(client_->open_table("busy", true));
    ASSERT_TRUE(run(client_->put(table, "there", "old")));
    Transaction tx = client_->begin();
    tx.put(table, "there", "new");
    tx.insert(table, "inserted", "new");
    Task<Status> commit = tx.commit();
    Task<Status> drop = other_->drop_table("busy");
    point < 0 ? drop.start() : commit.start();
    let_turns_pass(std::abs(point));
    point < 0 ? commit.start() : drop.start();
    const Status committed = finish(std::move(commit));
    const Status dropped = finish(std::move(drop));
    ASSERT_TRUE(dropped) << dropped.error().to_string();
    commits += committed ? 1 : 0;
    EXPECT_TRUE(committed || committed.code() == ErrorCode::kConflict ||
                committed.code() == ErrorCode::kUnknownTable)
        << committed.error().to_string();
    EXPECT_EQ(live_records(), 0u);
    EXPECT_FALSE(run(client_->get(table, "there")));
  }
  EXPECT_GT(commits, 0);
  EXPECT_LT(commits, 2 * kPoints);
}

// Its commit holds locks and a reservation until its lease is over.
TEST_P(ClientTables, AClientThatIsGoneDoesNotKeepADroppedTable) {
  for (int point = 0; point < 40; ++point) {
    SCOPED_TRACE(point);
    auto gone = connect();
    const TableId table = *run(gone->open_table("busy", true));
    ASSERT_TRUE(run(gone->put(table, "there", "old")));
    {
      Transaction tx = gone->begin();
      tx.put(table, "there", "new");
      tx.insert(table, "inserted", "new");
      Task<Status> commit = tx.commit();
      commit.start();
      let_turns_pass(point);
    }
    gone.reset();
    const Status dropped = run(other_->drop_table("busy"));
    ASSERT_TRUE(dropped) << dropped.error().to_string();
    EXPECT_EQ(live_records(), 0u);
  }
}

}  // namespace
}  // namespace pmstore::testing
