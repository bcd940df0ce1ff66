// A table with secondary indexes in a pool of this process, and what the check of the pool says of
// them.
#include "pmstore/indexed_table.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "pmstore/check.h"
#include "pmstore/server.h"
#include "tests/unit/persist/scratch.h"

namespace pmstore {
namespace {

// The example of docs/secondary-indexes.md. A person's value begins with the city, 16 bytes.
Task<Status> move_to_rome(Client& client, const IndexedTable& people) {
  const std::string rome = std::string("rome").append(12, ' ');
  co_return co_await retry(client, [&](Transaction& tx) -> Task<Status> {
    PMSTORE_CO_TRY_STATUS(co_await people.put(tx, "alice", rome + "singer"));
    PMSTORE_CO_TRY(const std::vector<Record> romans, co_await people.find(tx, 0, rome, 100));
    EXPECT_EQ(romans.size(), 1u) << "Alice, who is there already";
    co_return Status{};
  });
}

class IndexedTableTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto fill = [](persist::Pool& pool) {
      return format_store(pool, {.rings = 4, .log_bytes = 0, .shard_log_bytes = 4 << 20});
    };
    ASSERT_TRUE(persist::Pool::create(path_, 64 << 20, {}, false, fill));
    connect();
  }
  void TearDown() override { close(); }

  template <typename T>
  T run(Task<T> task) {
    return executor_.run(std::move(task));
  }
  void connect() {
    ClientOptions options;
    options.assume_domain = persist::Domain::kCpuCache;
    auto connected = run(Client::connect(executor_, {fabric::Scheme::kLocal, path_, 0}, options));
    ASSERT_TRUE(connected) << connected.error().to_string();
    client_ = std::move(*connected);
    base_ = *run(client_->open_table("people", true));
    const auto made = run(client_->create_table("by_city", TableKind::kOrdered));
    index_ = made ? *made : *run(client_->open_table("by_city"));
    people_.emplace(base_, std::vector<SecondaryIndex>{{index_, by_city()}});
  }
  void close() {
    if (client_ != nullptr) run(client_->close());
    client_.reset();
  }
  static IndexDefinition by_city() { return {IndexKind::kMany, key_of_field({0, 16})}; }
  static std::string value(std::string city) { return city.append(16 - city.size(), ' ') + "x"; }
  Status put(std::string key, std::string city) {
    return run(retry(*client_,
                     [&](Transaction& tx) { return people_->put(tx, key, value_ = value(city)); }));
  }
  // Of the pool that was closed.
  CheckReport check(const IndexToCheck& index = {"people", "by_city", by_city()}) {
    close();
    const auto pool = persist::Pool::view(path_);
    EXPECT_TRUE(pool);
    auto report = check_store(**pool, {&index, 1});
    EXPECT_TRUE(report) << report.error().to_string();
    return report ? *report : CheckReport();
  }

  const persist::Scratch scratch_;
  const std::string path_ = scratch_.path("pool");
  base::VirtualClock clock_;
  Executor executor_{clock_};
  std::unique_ptr<Client> client_;
  TableId base_{};
  TableId index_{};
  std::optional<IndexedTable> people_;
  std::string value_;  // of the put that runs
};

TEST_F(IndexedTableTest, ExampleOfTheDocument) {
  ASSERT_TRUE(put("alice", "paris"));
  EXPECT_TRUE(run(move_to_rome(*client_, *people_)));
  const CheckReport report = check();
  EXPECT_TRUE(report.sound());
  EXPECT_EQ(report.index_entries, std::vector<uint64_t>{1});
}

TEST_F(IndexedTableTest, CheckFindsEntriesThatLackAndThatAreTooMany) {
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(put("p" + std::to_string(i), i % 2 == 0 ? "rome" : "paris"));
  }
  CheckReport report = check();
  EXPECT_TRUE(report.sound()) << report.problems.front();
  EXPECT_EQ(report.index_entries, std::vector<uint64_t>{200});
  connect();
  // Written past the index: a new record, an erased one, and one in another city.
  ASSERT_TRUE(run(client_->put(base_, "past", value("rome"))));
  ASSERT_TRUE(run(client_->erase(base_, "p7")));
  ASSERT_TRUE(run(client_->put(base_, "p8", value("oslo"))));
  report = check();
  ASSERT_EQ(report.problems.size(), 4u);
  int lacking = 0;
  for (const std::string& problem : report.problems) {
    const bool lacks =
        problem.find("of table 'people': index 'by_city' lacks its entry") != std::string::npos;
    lacking += lacks;
    EXPECT_TRUE(lacks || problem.find("no record of table 'people' has it") != std::string::npos)
        << problem;
  }
  EXPECT_EQ(lacking, 2);
  // A record that has the entry of an index of another kind.
  report = check({"people", "by_city", {IndexKind::kUnique, key_of_field({0, 16})}});
  EXPECT_EQ(report.problems.size(), kMaxProblems);
}

TEST_F(IndexedTableTest, CheckComparesWhatTheNextStartWillFind) {
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(put("p" + std::to_string(i), "rome"));
  for (int i = 0; i < 50; i += 2) ASSERT_TRUE(put("p" + std::to_string(i), "paris"));
  // The client ends like a process that dies: redo records stay in the log.
  client_.reset();
  const CheckReport report = check();
  EXPECT_TRUE(report.sound()) << report.problems.front();
  EXPECT_EQ(report.index_entries, std::vector<uint64_t>{50});
}

TEST_F(IndexedTableTest, CheckRefusesWhatIsNoIndex) {
  close();
  const auto pool = persist::Pool::view(path_);
  ASSERT_TRUE(pool);
  const IndexToCheck not_there{"people", "by_name", by_city()};
  EXPECT_EQ(check_store(**pool, {&not_there, 1}).code(), ErrorCode::kUnknownTable);
  const IndexToCheck hash{"by_city", "people", by_city()};
  EXPECT_EQ(check_store(**pool, {&hash, 1}).code(), ErrorCode::kInvalidArgument);
}

TEST_F(IndexedTableTest, IndexOfATableThatHasRecordsIsMadeByAddEntry) {
  for (const char* key : {"a", "b", "c"}) ASSERT_TRUE(run(client_->put(base_, key, value("rome"))));
  EXPECT_EQ(check().problems.size(), 3u);
  connect();
  for (int times = 0; times < 2; ++times) {  // again is no error
    for (const char* key : {"a", "b", "c"}) {
      ASSERT_TRUE(
          run(retry(*client_, [&](Transaction& tx) { return people_->add_entry(tx, 0, key); })));
    }
  }
  {
    Transaction tx = client_->begin();
    EXPECT_EQ(run(people_->add_entry(tx, 0, "absent")).code(), ErrorCode::kNotFound);
    tx.abort();
  }
  EXPECT_TRUE(check().sound());
}

TEST_F(IndexedTableTest, WritersOfAnIndexThatIsBeingBuiltNeedNoOldEntry) {
  for (const char* key : {"moves", "goes", "stays", "late"}) {
    ASSERT_TRUE(run(client_->put(base_, key, value("rome"))));
  }
  EXPECT_EQ(put("moves", "oslo").code(), ErrorCode::kNotFound) << "a complete index lacks nothing";
  const std::vector<SecondaryIndex> indexes{{index_, by_city(), IndexState::kBeingBuilt}};
  people_.emplace(base_, indexes);
  EXPECT_TRUE(put("moves", "oslo"));
  EXPECT_TRUE(put("moves", "bern")) << "it has an entry now, which goes";
  EXPECT_TRUE(run(retry(*client_, [&](Transaction& tx) { return people_->erase(tx, "goes"); })));
  EXPECT_TRUE(put("new", "rome"));
  for (const char* key : {"moves", "stays", "new", "late"}) {
    EXPECT_TRUE(
        run(retry(*client_, [&](Transaction& tx) { return people_->add_entry(tx, 0, key); })));
  }
  EXPECT_TRUE(put("late", "oslo"));
  const CheckReport report = check();
  EXPECT_TRUE(report.sound()) << report.problems.front();
  EXPECT_EQ(report.index_entries, std::vector<uint64_t>{4});
}

TEST_F(IndexedTableTest, ACompleteIndexBesideOneThatIsBeingBuiltLacksNothing) {
  const TableId complete = *run(client_->create_table("complete", TableKind::kOrdered));
  people_.emplace(base_, std::vector<SecondaryIndex>{{index_, by_city(), IndexState::kBeingBuilt},
                                                     {complete, by_city(), IndexState::kComplete}});
  ASSERT_TRUE(run(client_->put(base_, "ann", value("rome"))));
  EXPECT_EQ(put("ann", "oslo").code(), ErrorCode::kNotFound);
}

// What is read of an index that is being built is validated as the records are.
TEST_F(IndexedTableTest, AnEntryThatIsAddedMeanwhileIsAConflict) {
  ASSERT_TRUE(run(client_->put(base_, "ann", value("rome"))));
  const std::vector<SecondaryIndex> indexes{{index_, by_city(), IndexState::kBeingBuilt}};
  people_.emplace(base_, indexes);
  {
    Transaction tx = client_->begin();
    const std::string oslo = value("oslo");
    ASSERT_TRUE(run(people_->put(tx, "ann", oslo)));
    ASSERT_TRUE(
        run(retry(*client_, [&](Transaction& t) { return people_->add_entry(t, 0, "ann"); })));
    EXPECT_EQ(run(tx.commit()).code(), ErrorCode::kConflict);
  }
  ASSERT_TRUE(put("ann", "oslo"));
  EXPECT_TRUE(check().sound());
}

TEST_F(IndexedTableTest, AnotherRecordsEntryOfAnIndexThatIsBeingBuiltStays) {
  const IndexDefinition unique{IndexKind::kUnique, key_of_field({0, 16})};
  const std::vector<SecondaryIndex> indexes{{index_, unique, IndexState::kBeingBuilt}};
  people_.emplace(base_, indexes);
  ASSERT_TRUE(run(client_->put(base_, "old", value("rome"))));
  ASSERT_TRUE(put("new", "rome")) << "the old one's entry is not there yet";
  ASSERT_TRUE(put("old", "oslo"));
  const CheckReport report = check({"people", "by_city", unique});
  EXPECT_TRUE(report.sound()) << report.problems.front();
  EXPECT_EQ(report.index_entries, std::vector<uint64_t>{2});
}

TEST_F(IndexedTableTest, AnIndexThatIsBeingBuiltIsNotSearched) {
  const std::vector<SecondaryIndex> indexes{{index_, by_city(), IndexState::kBeingBuilt}};
  people_.emplace(base_, indexes);
  ASSERT_TRUE(put("alice", "rome"));
  Transaction tx = client_->begin();
  EXPECT_EQ(run(people_->find(tx, 0, "rome")).code(), ErrorCode::kInvalidArgument);
  IndexScan scan = people_->scan(tx, 0, {});
  EXPECT_EQ(run(scan.next()).code(), ErrorCode::kInvalidArgument);
}

TEST_F(IndexedTableTest, EntryWithoutItsRecordIsAConflictThatNamesTheCheck) {
  ASSERT_TRUE(put("alice", "rome"));
  ASSERT_TRUE(run(client_->erase(base_, "alice")));
  Transaction tx = client_->begin();
  const std::string rome = std::string("rome").append(12, ' ');
  const auto found = run(people_->find(tx, 0, rome, 10));
  EXPECT_EQ(found.code(), ErrorCode::kConflict);
  EXPECT_NE(found.error().message.find("pool check --index"), std::string::npos);
}

}  // namespace
}  // namespace pmstore
