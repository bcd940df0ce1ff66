// Group commit under lock discipline cpu: what shares an msync, and what must not come between.
#include <nlohmann/json.hpp>
#include <vector>

#include "pmstore/client/client_session.h"
#include "pmstore/shard/cpu_commit.h"
#include "tests/unit/pmstore/lost_page.h"
#include "tests/unit/pmstore/server_fixture.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore {
namespace {

using nlohmann::json;

class CommitGroupTest : public testing::ClientFixture {
 protected:
  CommitGroupTest() {
    domain_ = persist::Domain::kNone;
    server_options_.group_above_ns = 0;
    server_options_.observer = &observed_;
    client_options_.one_sided_reads = false;
  }
  void SetUp() override {
    ClientFixture::SetUp(LockDiscipline::kCpu, 100);
    for (uint64_t i = 0; i < 6; ++i) others_.push_back(connect(200 + i));
  }
  void TearDown() override {
    for (auto& client : others_) {
      if (client != nullptr) run(client->close());
    }
    others_.clear();
    ClientFixture::TearDown();
  }

  uint64_t msyncs() const { return pool_->memory().stats().msyncs; }
  json groups() const { return json::parse(server_->stat_json()).at("group_commit"); }
  // It runs from the next turn on.
  void begin_put(Client& client, std::string key, std::string value, std::optional<Status>& over) {
    executor_.spawn([](Client& by, TableId table, std::string k, std::string v,
                       std::optional<Status>& end) -> Task<void> {
      end = co_await by.put(table, k, v);
    }(client, table_, std::move(key), std::move(value), over));
  }
  void wait_for(const std::vector<std::optional<Status>>& all) {
    for (const auto& each : all) {
      for (int i = 0; i < 1000 && !each; ++i) let_time_pass(1000);
      ASSERT_TRUE(each.has_value());
    }
  }
  std::string value_of(Client& client, const char* key) {
    auto got = run(client.get(table_, key));
    return got ? *got : got.error().to_string();
  }

  testing::Failures observed_;
  std::vector<std::unique_ptr<Client>> others_;
};

TEST_F(CommitGroupTest, TransactionsThatWaitShareAnMsync) {
  const uint64_t before = msyncs();
  std::vector<std::optional<Status>> over(others_.size());
  for (size_t i = 0; i < over.size(); ++i) begin_put(*others_[i], std::to_string(i), "1", over[i]);
  wait_for(over);
  for (const auto& each : over) EXPECT_TRUE(*each);
  // The first record of a table claims a slab.
  EXPECT_LE(msyncs() - before, 3u);
  EXPECT_EQ(groups().at("transactions"), over.size());
  EXPECT_GT(groups().at("largest"), 3u);
  for (size_t i = 0; i < over.size(); ++i) {
    EXPECT_EQ(value_of(*client_, std::to_string(i).c_str()), "1");
  }
}

TEST_F(CommitGroupTest, OneTransactionAtATimeIsOneMsyncEach) {
  ASSERT_TRUE(run(client_->put(table_, "k", "0")));
  const uint64_t before = msyncs();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(run(client_->put(table_, "k", std::string(300, 'x'))));
  ASSERT_TRUE(run(client_->put(table_, "k", std::string(300, 'y'))));
  // The larger value has moved to a new slot, whose slab was claimed.
  EXPECT_EQ(msyncs() - before, 7u);
  EXPECT_EQ(groups().at("largest"), 1u);
}

TEST_F(CommitGroupTest, WritesOfOneKeyShareAnMsync) {
  ASSERT_TRUE(run(client_->put(table_, "k", "0")));
  const uint64_t before = msyncs();
  std::vector<std::optional<Status>> over(others_.size());
  for (size_t i = 0; i < over.size(); ++i) {
    begin_put(*others_[i], "k", std::to_string(i + 1), over[i]);
  }
  wait_for(over);
  for (const auto& each : over) EXPECT_TRUE(*each);
  EXPECT_LE(msyncs() - before, 2u);
  EXPECT_EQ(value_of(*client_, "k"), std::to_string(over.size()));
}

TEST_F(CommitGroupTest, WhoMeetsAGroupsLockGetsItsResult) {
  ASSERT_TRUE(run(client_->put(table_, "k", "0")));
  std::vector<std::optional<Status>> over(others_.size());
  for (size_t i = 0; i < over.size(); ++i) {
    begin_put(*others_[i], "k", std::to_string(i + 1), over[i]);
  }
  std::string seen;
  executor_.spawn([](Client& client, TableId table, std::string& value) -> Task<void> {
    value = *co_await client.get(table, "k");
  }(*client_, table_, seen));
  wait_for(over);
  for (const auto& each : over) EXPECT_TRUE(*each) << "a put waits, it does not conflict";
  EXPECT_EQ(seen, std::to_string(over.size())) << "its message came behind theirs";
  EXPECT_EQ(json::parse(server_->stat_json()).at("conflicts"), 0u);
  EXPECT_EQ(json::parse(server_->stat_json()).at("gets"), 1u) << "it is not sent away to try again";
}

TEST_F(CommitGroupTest, ReadOfWhatTheGroupChangesIsAConflict) {
  ASSERT_TRUE(run(client_->put(table_, "a", "1")));
  ASSERT_TRUE(run(client_->put(table_, "b", "1")));
  // Each reads what the other one writes.
  Transaction first = others_[0]->begin();
  Transaction second = others_[1]->begin();
  ASSERT_TRUE(run(first.get(table_, "a")));
  ASSERT_TRUE(run(second.get(table_, "b")));
  first.put(table_, "b", "0");
  second.put(table_, "a", "0");
  std::vector<std::optional<Status>> over(2);
  const auto commit = [](Transaction& tx, std::optional<Status>& end) -> Task<void> {
    end = co_await tx.commit();
  };
  executor_.spawn(commit(first, over[0]));
  executor_.spawn(commit(second, over[1]));
  wait_for(over);
  EXPECT_TRUE(*over[0]);
  EXPECT_EQ(over[1]->code(), ErrorCode::kConflict);
}

TEST_F(CommitGroupTest, WhoNeedsASlotThatTheGroupGivesBackGetsIt) {
  const std::string value(10'000, 'v');
  uint64_t records = 0;
  while (records < 100'000 && run(client_->put(table_, std::to_string(records), value))) ++records;
  ASSERT_EQ(run(client_->put(table_, "new", value)).code(), ErrorCode::kFull);
  std::vector<std::optional<Status>> over(2);
  executor_.spawn([](Client& by, TableId table, std::optional<Status>& end) -> Task<void> {
    end = co_await by.erase(table, "0");
  }(*others_[0], table_, over[0]));
  begin_put(*others_[1], "new", value, over[1]);
  wait_for(over);
  for (const auto& each : over) EXPECT_TRUE(*each) << each->error().to_string();
  EXPECT_EQ(groups().at("largest"), 1u) << "the erase was in place before the put joined";
}

TEST_F(CommitGroupTest, OutcomeAskedAmidAGroupIsThatOfItsDrain) {
  Transaction first = others_[0]->begin();
  first.put(table_, "k", "0");
  ASSERT_TRUE(run(first.commit()));
  std::vector<std::optional<Status>> over(1);
  begin_put(*others_[0], "k", "1", over[0]);
  const TxId next{first.id().client, first.id().sequence + 1};
  Result<Outcome> outcome = make_error(ErrorCode::kTimeout);
  executor_.spawn([](Client& client, TxId id, Result<Outcome>& result) -> Task<void> {
    result = co_await client.outcome(id);
  }(*client_, next, outcome));
  wait_for(over);
  EXPECT_TRUE(*over[0]);
  ASSERT_TRUE(outcome) << outcome.error().to_string();
  EXPECT_EQ(*outcome, Outcome::kCommitted);
}

TEST_F(CommitGroupTest, MoreThanAGroupHoldsAreSeveralGroups) {
  constexpr size_t kPuts = internal::CpuCommit::kMostPrepared + 20;
  std::vector<std::optional<Status>> over(kPuts);
  for (size_t i = 0; i < kPuts; ++i) {
    begin_put(*others_[i % others_.size()], std::to_string(i), "1", over[i]);
  }
  wait_for(over);
  for (const auto& each : over) EXPECT_TRUE(*each);
  EXPECT_EQ(groups().at("transactions"), kPuts);
  EXPECT_LE(groups().at("largest"), internal::CpuCommit::kMostPrepared);
  EXPECT_GT(groups().at("largest"), 20u);
}

TEST_F(CommitGroupTest, NewClientAmidAGroupWaitsForItsEnd) {
  for (unsigned turns = 0; turns < 8; ++turns) {
    std::vector<std::optional<Status>> over(2);
    begin_put(*others_[0], "k", std::to_string(turns), over[0]);
    begin_put(*others_[1], "other", std::to_string(turns), over[1]);
    for (unsigned i = 0; i < turns; ++i) executor_.run_once();
    const auto another = connect(900 + turns);
    wait_for(over);
    EXPECT_TRUE(*over[0] && *over[1]);
    ASSERT_NE(another, nullptr);
    EXPECT_EQ(value_of(*another, "k"), std::to_string(turns));
    run(another->close());
  }
}

TEST_F(CommitGroupTest, GoodbyeBehindAWaitingTransactionComesAfterItsGroup) {
  internal::SessionOptions options;
  options.secret = ClientSecret::of_number(7);
  options.call_timeout_ns = options.connect_timeout_ns = 1'000'000'000;
  auto opened = run(internal::ClientSession::open(
      std::move(*fabric::open_device(fabric::Scheme::kLocal, executor_)),
      std::make_shared<internal::SessionBook>(), uri_, options));
  ASSERT_TRUE(opened);
  internal::SessionRef session = std::move(*opened);
  const auto request = [&](std::span<const std::byte> body) {
    const RequestPrefix prefix = session->prefix();
    const auto head = std::as_bytes(std::span(&prefix, 1));
    std::vector<std::byte> message(head.begin(), head.end());
    message.insert(message.end(), body.begin(), body.end());
    return message;
  };
  const auto body = internal::TransactionMessage(session->hello().next_sequence)
                        .write(WriteKind::kPut, table_, "k", "1")
                        .message();
  const auto commit = request(body);
  const auto goodbye = request({});
  {
    auto first = session->rpc().call(static_cast<uint16_t>(Method::kCommit), commit, 64);
    auto second = session->rpc().call(static_cast<uint16_t>(Method::kGoodbye), goodbye, 64);
    first.start();
    second.start();
  }
  session = {};
  let_time_pass(10'000'000);
  const std::string now = value_of(*client_, "k");
  const bool arrived = groups().at("transactions") == 1;
  EXPECT_EQ(now, arrived ? "1" : value_of(*client_, "nobody's"));
}

TEST_F(CommitGroupTest, DropOfATableComesBehindItsGroup) {
  std::vector<std::optional<Status>> over(1);
  begin_put(*others_[0], "k", "1", over[0]);
  Status dropped;
  executor_.spawn([](Client& client, Status& status) -> Task<void> {
    status = co_await client.drop_table("t");
  }(*client_, dropped));
  wait_for(over);
  EXPECT_TRUE(*over[0]);
  EXPECT_TRUE(dropped);
  let_time_pass(10'000'000);
  EXPECT_EQ(json::parse(server_->stat_json()).at("live_records"), 0u);
}

TEST_F(CommitGroupTest, ClientThatComesBackAmidItsGroupFindsItsTransaction) {
  ASSERT_TRUE(run(client_->put(table_, "k", "0")));
  for (unsigned turns = 0; turns < 12; ++turns) {
    std::vector<std::optional<Status>> over(2);
    const std::string value = std::to_string(turns + 1);
    begin_put(*others_[0], "k", value, over[0]);
    begin_put(*others_[1], "other", value, over[1]);
    for (unsigned i = 0; i < turns; ++i) executor_.run_once();
    auto again = connect(200);  // the server ends the old session
    wait_for(over);
    ASSERT_NE(again, nullptr);
    const std::string now = value_of(*again, "k");
    if (*over[0]) {
      EXPECT_EQ(now, value);
    }
    EXPECT_EQ(value_of(*again, "other"), value);
    run(others_[0]->close());
    others_[0] = std::move(again);
  }
}

TEST_F(CommitGroupTest, ServerThatGoesAwayAmidAGroupTellsNobody) {
  for (unsigned turns = 0; turns < 8; ++turns) {
    std::vector<std::optional<Status>> over(others_.size());
    for (size_t i = 0; i < over.size(); ++i) {
      begin_put(*others_[i], std::to_string(i), std::to_string(turns), over[i]);
    }
    for (unsigned i = 0; i < turns; ++i) executor_.run_once();
    server_.reset();
    wait_for(over);
    for (auto& client : others_) run(client->close());
    run(client_->close());
    restart();
    client_ = connect(100);
    for (size_t i = 0; i < others_.size(); ++i) others_[i] = connect(200 + i);
    for (size_t i = 0; i < over.size(); ++i) {
      if (!*over[i]) continue;
      EXPECT_EQ(value_of(*client_, std::to_string(i).c_str()), std::to_string(turns));
    }
  }
}

class QuickDrains : public CommitGroupTest {
 protected:
  QuickDrains() { server_options_.group_above_ns = ServerOptions{}.group_above_ns; }
};

// Each msync lasts so long.
class SlowDisk final : public persist::Observer {
 public:
  SlowDisk(persist::Memory& memory, base::Clock& clock) : memory_(memory), clock_(clock) {
    memory_.set_observer(this);
  }
  ~SlowDisk() override { memory_.set_observer(nullptr); }
  void on_store(const void*, const void*, size_t, bool) override {}
  void on_flush(const void*, size_t) override {}
  void on_drain() override { clock_.advance_to(clock_.now_ns() + kNs); }
  static constexpr uint64_t kNs = 1'000'000;

 private:
  persist::Memory& memory_;
  base::Clock& clock_;
};

TEST_F(QuickDrains, SlowOnesAreSharedFromTheThirdOn) {
  const SlowDisk slow(pool_->memory(), clock_);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(run(client_->put(table_, "k", "1")));
  const uint64_t began_ns = executor_.now_ns();
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(run(client_->put(table_, "k", "1")));
  EXPECT_LT(executor_.now_ns() - began_ns, 10 * SlowDisk::kNs + 50'000) << "it waited for nobody";
  EXPECT_GE(groups().at("groups"), 10u);
  EXPECT_EQ(groups().at("largest"), 1u);
}

TEST_F(CommitGroupTest, ClientsOfTheLastGroupsAreWaitedFor) {
  for (size_t i = 0; i < 2; ++i) ASSERT_TRUE(run(others_[i]->put(table_, std::to_string(i), "0")));
  const SlowDisk slow(pool_->memory(), clock_);
  constexpr int kPuts = 20;
  const uint64_t before = groups().at("groups");
  int running = 2;
  for (size_t i = 0; i < 2; ++i) {
    executor_.spawn([](Executor& executor, Client& client, TableId table, std::string key,
                       uint64_t pause_ns, int& left) -> Task<void> {
      for (int put = 0; put < kPuts; ++put) {
        if (pause_ns > 0) co_await executor.sleep_for(pause_ns);
        EXPECT_TRUE(co_await client.put(table, key, "1"));
      }
      --left;
    }(executor_, *others_[i], table_, std::to_string(i), i * 20'000, running));
  }
  while (running > 0) let_time_pass(100'000);
  EXPECT_LE(groups().at("groups").get<uint64_t>() - before, kPuts + 6u);
  EXPECT_EQ(groups().at("largest"), 2u);
}

TEST_F(QuickDrains, AreNotShared) {
  std::vector<std::optional<Status>> over(others_.size());
  for (size_t i = 0; i < over.size(); ++i) begin_put(*others_[i], std::to_string(i), "1", over[i]);
  wait_for(over);
  for (const auto& each : over) EXPECT_TRUE(*each);
  EXPECT_EQ(groups().at("groups"), 0u);
}

TEST_F(CommitGroupTest, AFailedMsyncEndsTheServiceOfThePool) {
  ASSERT_TRUE(run(client_->put(table_, "k", "0")));
  const testing::LostPage lost(pool_->memory());
  std::vector<std::optional<Status>> over(others_.size());
  for (size_t i = 0; i < over.size(); ++i) begin_put(*others_[i], std::to_string(i), "1", over[i]);
  wait_for(over);
  EXPECT_EQ(over[0]->code(), ErrorCode::kCommitUnknown);
  for (const auto& each : over) EXPECT_FALSE(*each);
  const uint64_t tried = msyncs();
  EXPECT_EQ(observed_.failures, 1);
  EXPECT_EQ(run(client_->get(table_, "k")).code(), ErrorCode::kIo);
  EXPECT_EQ(run(client_->put(table_, "k", "2")).code(), ErrorCode::kIo);
  EXPECT_FALSE(try_connect(300));
  others_.clear();
  EXPECT_EQ(run(server_->stop()).code(), ErrorCode::kIo);
  EXPECT_EQ(msyncs(), tried) << "a failed msync is not repeated";
  EXPECT_EQ(observed_.failures, 1);
  client_.reset();
  server_.reset();
}

}  // namespace
}  // namespace pmstore
