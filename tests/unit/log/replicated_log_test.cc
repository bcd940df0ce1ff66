// Replicated logs while nothing fails but what a test lets fail: appends, drops, new members,
// producers that fight.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "tests/unit/log/replicated_log_fixture.h"

namespace pmstore::log {
namespace {

TEST_P(ReplicatedLogTest, AppendsAreOnAllReplicasAtTheSameLsn) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(append(1 + i % 3));
  const auto before = log_->counters();
  ASSERT_TRUE(append(4));
  const auto after = log_->counters();
  EXPECT_EQ(after.round_trips - before.round_trips, kServers) << "one to each, at the same time";
  EXPECT_TRUE(run(log_->close()));
  expect_equal();
  EXPECT_EQ(create().code(), ErrorCode::kAlreadyExists);
}

// What it has lost was acknowledged; the next entry would have two numbers.
TEST_P(ReplicatedLogTest, ReplicaThatCountsItsEntriesOtherwiseIsNotGoneOnWith) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
  uint64_t last_lsn = 0;
  for (int i = 0; i < 4; ++i) last_lsn = append()->lsn;
  ASSERT_TRUE(run(log_->close()));
  log_.reset();
  run(sleep(executor_, kSoonNs));
  ASSERT_TRUE(servers_[1]->store().close());
  servers_[1]->damage_entry("log", last_lsn);
  servers_[1]->kill();
  servers_[1]->start();
  ASSERT_EQ(servers_[1]->store().find("log")->tail_lsn, servers_[0]->store().find("log")->tail_lsn);
  ASSERT_NE(servers_[1]->store().find("log")->next_index,
            servers_[0]->store().find("log")->next_index);
  const auto taken = take();
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.code(), ErrorCode::kDamaged);
}

TEST_P(ReplicatedLogTest, AnEntryIsShownWhenEveryReplicaHasIt) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
  ASSERT_TRUE(append());
  const uint64_t acknowledged = log_->tail_lsn();
  servers_[2]->kill();
  EXPECT_EQ(append().code(), ErrorCode::kCommitUnknown);
  EXPECT_EQ(append().code(), ErrorCode::kDisconnected);
  log_.reset();
  run(sleep(executor_, 1'000'000'000));
  for (const size_t survivor : {0, 1}) {
    EXPECT_EQ(entries(survivor), (std::vector<TestEntry>{{1, text(1)}}));
    EXPECT_EQ(servers_[survivor]->store().find("log")->tail_lsn, acknowledged);
    servers_[survivor]->kill();
    servers_[survivor]->start();
    EXPECT_EQ(entries(survivor), (std::vector<TestEntry>{{1, text(1)}}));
  }
  EXPECT_FALSE(take());
  servers_[2]->start();
  ASSERT_TRUE(open());
  EXPECT_EQ(log_->next_index(), 3u) << "the longest replica's counts";
  expect_equal();
}

TEST_P(ReplicatedLogTest, OneServersShortcutsAreRefused) {
  ASSERT_TRUE(create());
  auto client = run(LogClient::connect(executor_, *fabric::parse_uri(uris()[0]), {})).value();
  const LogInfo info = run(client->open("log")).value();
  const std::string payload = "x";
  EXPECT_EQ(run(client->append(info.id, std::as_bytes(std::span(payload)))).code(),
            ErrorCode::kUnsupported);
  EXPECT_EQ(run(LogProducer::open(*client, info.id, {})).code(), ErrorCode::kUnsupported);
  EXPECT_EQ(run(LogReader::open(*client, info.id, {})).code(), ErrorCode::kUnsupported);
}

TEST_P(ReplicatedLogTest, ADropIsRecordedAndSurvivesRestarts) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
  ASSERT_TRUE(append(3));
  servers_[1]->kill();
  EXPECT_FALSE(append());
  ASSERT_TRUE(open({0}, dropping({1})));
  EXPECT_EQ(log_->membership(), 2u);
  EXPECT_EQ(log_->replicas(), uris({0, 2}));
  ASSERT_TRUE(append(2));
  log_.reset();
  for (auto& server : servers_) server->kill();
  for (auto& server : servers_) server->start();

  // The one that was dropped says that it is a replica, and is not believed.
  EXPECT_TRUE(servers_[1]->store().find("log")->replicas == uris());
  const auto found = run(open_current_replica(executor_, "log", uris({1}), {}));
  ASSERT_TRUE(found) << found.error().to_string();
  EXPECT_NE(found->client->uri().to_string(), uris()[1]);
  for (const ReplicaStatus& each :
       run(ReplicatedLog::status(executor_, "log", uris({1}), {})).servers) {
    EXPECT_EQ(each.current, each.uri != uris()[1]) << each.uri;
  }
  ASSERT_TRUE(open({1}));
  EXPECT_EQ(log_->replicas(), uris({0, 2}));
  ASSERT_TRUE(append());
  expect_equal({0, 2});
  log_.reset();
  servers_[0]->kill();
  servers_[2]->kill();
  EXPECT_FALSE(run(open_current_replica(executor_, "log", uris({1}), {})))
      << "nobody is left to say that it is current";
}

TEST_P(ReplicatedLogTest, ADroppedReplicaIsAddedAgain) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
  ASSERT_TRUE(append(5));
  ASSERT_TRUE(open({0}, dropping({2})));
  while (log_->next_index() < 60) {
    ASSERT_TRUE(append(3));
    if (log_->next_index() != 30) continue;
    ASSERT_TRUE(run(log_->trim_below_index(30)));
  }
  EXPECT_EQ(run(log_->add(uris()[2])).code(), ErrorCode::kAlreadyExists);
  auto& old = servers_[2]->store();
  ASSERT_TRUE(old.erase(old.find("log")->id));
  const Status added = run(log_->add(uris()[2]));
  ASSERT_TRUE(added) << added.error().to_string();
  EXPECT_EQ(log_->membership(), 3u);
  EXPECT_EQ(entries(2), entries(0));
  ASSERT_TRUE(append(2));
  ASSERT_TRUE(run(log_->close()));
  servers_[2]->kill();
  servers_[2]->start();
  EXPECT_EQ(entries(2), entries(0));
  EXPECT_EQ(entries(2).front().index, 30u);
  ASSERT_TRUE(open());
  EXPECT_EQ(log_->replicas(), uris());
}

// The new member begins at the oldest entry, which nobody has published yet.
TEST_P(ReplicatedLogTest, AMemberThatIsAddedAtOnceGetsWhatWasJustAppended) {
  ASSERT_TRUE(create({0}));
  ASSERT_TRUE(open({0}));
  ASSERT_TRUE(append(2));
  ASSERT_TRUE(run(log_->add(uris()[1])));
  EXPECT_EQ(entries(1).size(), 2u);
  ASSERT_TRUE(append());
  expect_equal({0, 1});
}

// Its index was given to nobody, so the new member of an empty log must not begin behind it.
TEST_P(ReplicatedLogTest, AMemberIsAddedBehindAnAppendThatWasRefused) {
  ASSERT_TRUE(create({0}));
  ASSERT_TRUE(open({0}));
  const std::vector<std::byte> large(kMaxEntryBytes + 1);
  EXPECT_EQ(run(log_->append(large)).code(), ErrorCode::kTooLarge);
  ASSERT_TRUE(run(log_->add(uris()[1])));
  const Result<Appended> first = append();
  ASSERT_TRUE(first) << first.error().to_string();
  EXPECT_EQ(first->index, 1u);
  expect_equal({0, 1});
  ASSERT_TRUE(run(log_->close()));
  ASSERT_TRUE(open({0, 1}));
}

TEST_P(ReplicatedLogTest, TooFewMembersGoOnOnlyWhenTheOthersAreGoneForGood) {
  ASSERT_TRUE(create());
  bool only_if_gone = false;
  EXPECT_EQ(take({0}, dropping({1, 2}), &only_if_gone).code(), ErrorCode::kConflict);
  EXPECT_TRUE(only_if_gone);
  EXPECT_FALSE(take({0}, dropping({0, 1, 2}, true), &only_if_gone));
  EXPECT_FALSE(only_if_gone) << "nobody would stay";
  ASSERT_TRUE(open({0}, dropping({1, 2}, true)));
  EXPECT_EQ(log_->replicas(), uris({0}));
  ASSERT_TRUE(append());
  ASSERT_TRUE(open({1})) << "it says who the others are, and one of those knows";
  EXPECT_EQ(log_->replicas(), uris({0}));
}

// A drop that only the first one has recorded. Of those that may come after it, the one that cannot
// know whether the second one has recorded it, too, is refused.
TEST_P(ReplicatedLogTest, WhoMayNotHaveRecordedADecisionIsNotDropped) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
  ASSERT_TRUE(append());
  log_.reset();
  ASSERT_TRUE(record_at_first_alone());
  EXPECT_FALSE(servers_[0]->store().find("log")->agreed);
  bool only_if_gone = false;
  const auto refused = take({0, 2}, dropping({1}), &only_if_gone);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(only_if_gone);
  EXPECT_EQ(refused.code(), ErrorCode::kConflict);
  EXPECT_NE(refused.error().message.find("finishes it (pmstore log append)"), std::string::npos)
      << refused.error().message;
  ASSERT_TRUE(open({1, 2}, dropping({0}))) << "which has not recorded that of all three otherwise";
  EXPECT_EQ(log_->replicas(), uris({1, 2}));
  ASSERT_TRUE(append());
  expect_equal({1, 2});
  for (const size_t i : {1, 2}) EXPECT_TRUE(servers_[i]->store().find("log")->agreed);
  log_.reset();
  servers_[1]->kill();
  servers_[1]->start();
  EXPECT_TRUE(servers_[1]->store().find("log")->agreed) << "also behind a crash";
  ASSERT_TRUE(open({0}, dropping({2}))) << "the one that was left behind knows who the others are";
  EXPECT_EQ(log_->replicas(), uris({1}));
}

// The same decision, finished: then the second one may be lost.
TEST_P(ReplicatedLogTest, ADecisionThatWasFinishedMayBeFollowedByAnother) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(record_at_first_alone());
  ASSERT_TRUE(open());
  EXPECT_EQ(log_->replicas(), uris({0, 1}));
  log_.reset();
  servers_[1]->kill();
  ASSERT_TRUE(open({0}, dropping({1})));
  EXPECT_EQ(log_->replicas(), uris({0}));
  LogStore& first = servers_[0]->store();
  EXPECT_EQ(first.agree(first.find("log")->id, 2).code(), ErrorCode::kConflict);
}

TEST_P(ReplicatedLogTest, AFullLogPushesBackAndGoesOn) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
  Result<Appended> last = append(3);
  while (last) last = append(3);
  EXPECT_EQ(last.code(), ErrorCode::kBackPressure);
  const uint64_t next = log_->next_index();
  EXPECT_FALSE(append(3));
  ASSERT_TRUE(run(log_->trim_below_index(next / 2)));
  ASSERT_TRUE(append(3));
  EXPECT_EQ(log_->next_index(), next + 3) << "no index was used up";
  ASSERT_TRUE(run(log_->close()));
  EXPECT_EQ(entries(0), entries(1));
  EXPECT_EQ(entries(0), entries(2));
}

TEST_P(ReplicatedLogTest, SealedEverywhere) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
  ASSERT_TRUE(append(3));
  ASSERT_TRUE(run(log_->seal()));
  expect_equal();
  EXPECT_EQ(take().code(), ErrorCode::kSealed);
}

// ---- producers that fight ----

TEST_P(ReplicatedLogTest, OfTwoProducersOneWinsAndTheOtherIsFencedEverywhere) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
  ASSERT_TRUE(append(2));
  EXPECT_EQ(take().code(), ErrorCode::kBusy);
  auto other = take({0, 1, 2}, stealing());
  ASSERT_TRUE(other) << other.error().to_string();
  EXPECT_EQ(append().code(), ErrorCode::kFenced);
  EXPECT_EQ(append().code(), ErrorCode::kFenced);
  log_ = std::move(*other);
  ASSERT_TRUE(append(2));
  ASSERT_TRUE(run(log_->close()));
  expect_equal();
}

Task<void> fight(base::Executor& executor, std::vector<std::string> servers, uint64_t wait_ns,
                 Result<std::unique_ptr<ReplicatedLog>>& result, int& left) {
  ReplicatedLogOptions options;
  options.producer.takeover = Takeover::kSteal;
  if (wait_ns > 0) co_await executor.sleep_for(wait_ns);
  result = co_await ReplicatedLog::open(executor, "log", servers, options);
  --left;
}
Task<void> until_zero(base::Executor& executor, const int& left) {
  while (left > 0) co_await executor.sleep_for(1000);
}

TEST_P(ReplicatedLogTest, TwoThatTakeOverAtTheSameTimeNeverBothAppend) {
  ASSERT_TRUE(create());
  for (uint64_t wait_ns = 0; wait_ns < 30; ++wait_ns) {
    std::array<Result<std::unique_ptr<ReplicatedLog>>, 2> logs = {
        make_error(ErrorCode::kDisconnected), make_error(ErrorCode::kDisconnected)};
    int left = 2;
    auto one = fight(executor_, uris(), 0, logs[0], left);
    auto two = fight(executor_, uris(), wait_ns, logs[1], left);
    one.start();
    two.start();
    run(until_zero(executor_, left));
    size_t appended = 0;
    for (auto& each : logs) {
      if (!each) {
        EXPECT_EQ(each.code(), ErrorCode::kFenced) << each.error().to_string();
        continue;
      }
      const auto done = run(append_task(**each, (*each)->next_index(), 1));
      appended += done ? 1 : 0;
      EXPECT_TRUE(done || done.code() == ErrorCode::kFenced);
    }
    EXPECT_EQ(appended, 1u) << "after " << wait_ns << " ns";
    logs[0] = make_error(ErrorCode::kDisconnected);
    logs[1] = make_error(ErrorCode::kDisconnected);
    ASSERT_TRUE(open({0}, stealing()));
    expect_equal();
    log_.reset();
  }
}

INSTANTIATE_TEST_SUITE_P(Domain, ReplicatedLogTest,
                         testing::Values(persist::Domain::kCpuCache,
                                         persist::Domain::kMemoryController),
                         domain_of);

}  // namespace
}  // namespace pmstore::log
