// Secondary indexes: entries are written with their records.
#include <unistd.h>

#include <filesystem>
#include <random>

#include "persist/pool.h"
#include "pmstore/check.h"
#include "pmstore/indexed_table.h"
#include "tests/scenario/store/store_scenario.h"

namespace pmstore::scenario {
namespace {

using Keys = std::vector<std::string>;

constexpr uint32_t kFieldBytes = 4;

// A value: city, and a number that no other record has.
std::string value(std::string_view city, std::string_view number) {
  return std::string(city) + std::string(number) + "rest";
}
IndexDefinition by_city() { return {IndexKind::kMany, key_of_field({0, kFieldBytes})}; }
IndexDefinition by_number() {
  return {IndexKind::kUnique, key_of_field({kFieldBytes, kFieldBytes})};
}
constexpr size_t kCity = 0;
constexpr size_t kNumber = 1;

class Indexes : public StoreScenario {
 protected:
  void SetUp() override {
    setup_.path = "/dev/shm/pmstore-index-" + std::to_string(getpid());
    std::filesystem::remove(setup_.path);
    StoreScenario::SetUp();
    if (client_ == nullptr) return;
    other_ = connect();
    open();
  }
  void TearDown() override {
    if (other_ != nullptr) run(other_->close());
    other_.reset();
    StoreScenario::TearDown();
    std::filesystem::remove(setup_.path);
  }
  void open(IndexState state = IndexState::kComplete) {
    const auto ordered = [&](const char* name) {
      const auto made = run(client_->create_table(name, TableKind::kOrdered));
      return made ? *made : *run(client_->open_table(name));
    };
    people_.emplace(table(*client_, "people"),
                    std::vector<SecondaryIndex>{{ordered("by_city"), by_city(), state},
                                                {ordered("by_number"), by_number(), state}});
  }
  Status put_person(Client& client, std::string key, std::string of_value) {
    return run(retry(client, [&](Transaction& tx) { return people_->put(tx, key, of_value); }));
  }
  Keys found(Transaction& tx, size_t index, std::string_view index_key) {
    const auto records = run(people_->find(tx, index, index_key));
    EXPECT_TRUE(records) << records.error().to_string();
    Keys keys;
    if (records) {
      for (const Record& record : *records) keys.push_back(record.key);
    }
    return keys;
  }
  Keys scanned(Transaction& tx, size_t index, KeyRange range,
               ScanDirection direction = ScanDirection::kForward) {
    IndexScan scan = people_->scan(tx, index, std::move(range), direction);
    Keys keys;
    for (;;) {
      const auto page = run(scan.next(2));
      EXPECT_TRUE(page) << page.error().to_string();
      if (!page || page->empty()) return keys;
      for (const IndexMatch& match : *page) keys.push_back(match.record.key);
    }
  }
  // Of the pool whose server is gone.
  void expect_sound_indexes() {
    const auto pool = persist::Pool::view(setup_.path);
    ASSERT_TRUE(pool) << pool.error().to_string();
    const IndexToCheck indexes[] = {{"people", "by_city", by_city()},
                                    {"people", "by_number", by_number()}};
    const auto report = check_store(**pool, indexes);
    ASSERT_TRUE(report) << report.error().to_string();
    EXPECT_TRUE(report->sound()) << report->problems.front();
  }

  std::unique_ptr<Client> other_;
  std::optional<IndexedTable> people_;
  std::string value_;  // of the insert that runs
};
PMSTORE_STORE_SCENARIOS(Indexes);

TEST_P(Indexes, RecordsAreFoundByTheirIndexKeys) {
  ASSERT_TRUE(put_person(*client_, "ann", value("rome", "0004")));
  ASSERT_TRUE(put_person(*client_, "bob", value("oslo", "0003")));
  ASSERT_TRUE(put_person(*client_, "cid", value("rome", "0002")));
  ASSERT_TRUE(put_person(*client_, "dot", "-"));  // in no index
  Transaction tx = other_->begin();
  EXPECT_EQ(found(tx, kCity, "rome"), (Keys{"ann", "cid"}));
  EXPECT_EQ(found(tx, kCity, "rom"), Keys{});
  EXPECT_EQ(found(tx, kNumber, "0003"), Keys{"bob"});
  EXPECT_EQ(scanned(tx, kCity, {}), (Keys{"bob", "ann", "cid"}));
  EXPECT_EQ(scanned(tx, kCity, {}, ScanDirection::kBackward), (Keys{"cid", "ann", "bob"}));
  EXPECT_EQ(scanned(tx, kNumber, {"0003", ""}), (Keys{"bob", "ann"}));
  EXPECT_TRUE(run(tx.commit()));
  // Ann moves, Bob stays and changes otherwise, Cid goes.
  ASSERT_TRUE(put_person(*other_, "ann", value("oslo", "0004")));
  ASSERT_TRUE(put_person(*other_, "bob", value("oslo", "0003") + " and more"));
  ASSERT_TRUE(run(retry(*other_, [&](Transaction& t) { return people_->erase(t, "cid"); })));
  Transaction after = client_->begin();
  EXPECT_EQ(found(after, kCity, "oslo"), (Keys{"ann", "bob"}));
  EXPECT_EQ(found(after, kCity, "rome"), Keys{});
  EXPECT_EQ(found(after, kNumber, "0002"), Keys{});
  EXPECT_EQ(scanned(after, kNumber, {}), (Keys{"bob", "ann"}));
  EXPECT_TRUE(run(after.commit()));
}

TEST_P(Indexes, OfAKeyThatNoEntryCanHaveNoneIsFound) {
  ASSERT_TRUE(put_person(*client_, "ann", value("rome", "0004")));
  Transaction tx = other_->begin();
  for (const size_t index : {kCity, kNumber}) {
    for (const size_t bytes : {509, 510, 511, 512, 513, 600}) {
      EXPECT_EQ(found(tx, index, std::string(bytes, 'r')), Keys{}) << bytes;
    }
    EXPECT_EQ(found(tx, index, std::string(300, '\0')), Keys{});
  }
  EXPECT_EQ(found(tx, kCity, "rome"), Keys{"ann"});
  EXPECT_TRUE(run(tx.commit()));
}

TEST_P(Indexes, UniqueIndexKeyBelongsToOneRecord) {
  ASSERT_TRUE(put_person(*client_, "ann", value("rome", "0001")));
  EXPECT_EQ(put_person(*other_, "bob", value("oslo", "0001")).code(), ErrorCode::kAlreadyExists);
  EXPECT_EQ(run(other_->get(people_->base(), "bob")).code(), ErrorCode::kNotFound);
  EXPECT_TRUE(put_person(*client_, "ann", value("oslo", "0001"))) << "it keeps its own";
  const auto insert = [&](Transaction& tx) {
    return people_->insert(tx, "ann", value_ = value("rome", "0007"));
  };
  EXPECT_EQ(run(retry(*other_, insert)).code(), ErrorCode::kAlreadyExists);
  // One gives it up, and then another takes it.
  Transaction tx = client_->begin();
  const std::string ann = value("oslo", "0002");
  const std::string bob = value("oslo", "0001");
  ASSERT_TRUE(run(people_->put(tx, "ann", ann)));
  ASSERT_TRUE(run(people_->put(tx, "bob", bob)));
  EXPECT_EQ(found(tx, kNumber, "0001"), Keys{"bob"});
  ASSERT_TRUE(run(tx.commit()));
  Transaction after = other_->begin();
  EXPECT_EQ(found(after, kNumber, "0001"), Keys{"bob"});
  EXPECT_EQ(found(after, kNumber, "0002"), Keys{"ann"});
}

TEST_P(Indexes, NoRecordComesUnderAnIndexKeyThatWasSearched) {
  Transaction tx = client_->begin();
  EXPECT_EQ(found(tx, kCity, "rome"), Keys{});
  tx.put(people_->base(), "nobody is in rome", "-");
  ASSERT_TRUE(put_person(*other_, "ann", value("rome", "0001")));
  EXPECT_EQ(run(tx.commit()).code(), ErrorCode::kConflict);
}

Task<void> change_people(Client& client, const IndexedTable& people, uint64_t seed, int changes,
                         uint64_t& done, bool until_killed) {
  std::mt19937_64 random(seed);
  const std::string cities[] = {"rome", "oslo", "bern", "-"};
  for (int i = 0; i < changes || until_killed; ++i) {
    const std::string key = "p" + std::to_string(random() % 40);
    const std::string number = std::to_string(1000 + random() % 200);
    std::string record = value(cities[random() % 4], number);
    if (random() % 4 == 0) record += std::string(random() % 300, 'x');
    const bool erase = random() % 4 == 0;
    const auto body = [&](Transaction& tx) {
      return erase ? people.erase(tx, key) : people.put(tx, key, record);
    };
    const Status changed = co_await retry(client, body);
    if (changed) {
      ++done;
      continue;
    }
    const ErrorCode why = changed.code();
    const bool refused = why == ErrorCode::kNotFound || why == ErrorCode::kAlreadyExists;
    if (refused) continue;
    EXPECT_TRUE(until_killed) << changed.error().to_string();
    co_return;
  }
}

TEST_P(Indexes, WritersAtTheSameTimeKeepIndexesAndTableTheSame) {
  uint64_t done = 0;
  std::vector<Task<void>> tasks;
  for (uint64_t i = 0; i < 6; ++i) {
    Client& client = i % 2 == 0 ? *client_ : *other_;
    tasks.push_back(change_people(client, *people_, i, times(60, 6), done, false));
  }
  run_together(std::move(tasks));
  EXPECT_GT(done, 0u);
  run(client_->close());
  client_.reset();
  run(other_->close());
  other_.reset();
  target_.reset();
  expect_sound_indexes();
}

// Those of the records of change_people().
Task<void> add_entries(Client& client, const IndexedTable& people, size_t index) {
  for (int i = 0; i < 40; ++i) {
    const std::string key = "p" + std::to_string(i);
    const auto body = [&](Transaction& tx) { return people.add_entry(tx, index, key); };
    const Status added = co_await retry(client, body);
    EXPECT_TRUE(added || added.code() == ErrorCode::kNotFound) << added.error().to_string();
  }
}

TEST_P(Indexes, AreBuiltWhileWritersWork) {
  for (int i = 0; i < 40; ++i) {
    const std::string record = value("rome", std::to_string(9000 + i));
    ASSERT_TRUE(run(client_->put(people_->base(), "p" + std::to_string(i), record)));
  }
  open(IndexState::kBeingBuilt);
  uint64_t done = 0;
  std::vector<Task<void>> tasks;
  for (uint64_t i = 0; i < 4; ++i) {
    Client& client = i % 2 == 0 ? *client_ : *other_;
    tasks.push_back(change_people(client, *people_, i, times(60, 6), done, false));
  }
  for (const size_t index : {kCity, kNumber}) {
    tasks.push_back(add_entries(*other_, *people_, index));
  }
  run_together(std::move(tasks));
  EXPECT_GT(done, 0u);
  run(client_->close());
  client_.reset();
  run(other_->close());
  other_.reset();
  target_.reset();
  expect_sound_indexes();
}

TEST_P(Indexes, AreSoundAfterTheServersDeath) {
  ClientOptions options;
  options.call_timeout_ns = short_timeout_ns();
  for (auto* client : {&client_, &other_}) {
    run((*client)->close());
    *client = connect(options);
  }
  for (uint64_t death = 0; death < static_cast<uint64_t>(times(4, 2)); ++death) {
    uint64_t done = 0;
    std::vector<Task<void>> tasks;
    for (uint64_t i = 0; i < 6; ++i) {
      Client& client = i % 2 == 0 ? *client_ : *other_;
      tasks.push_back(change_people(client, *people_, 100 * death + i, 0, done, true));
    }
    run_until_killed(std::move(tasks), done, 60 + 13 * death);
    client_.reset();
    other_.reset();
    target_.reset();
    expect_sound_indexes();
    start_server();
    ASSERT_FALSE(HasFailure());
    client_ = connect(options);
    other_ = connect(options);
    open();
    Transaction tx = client_->begin();
    scanned(tx, kCity, {});
    EXPECT_TRUE(run(tx.commit()));
  }
}

}  // namespace
}  // namespace pmstore::scenario
