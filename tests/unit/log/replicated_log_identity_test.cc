// Replicated logs that were deleted and made again under their name while a server was away that
// still has something of the one before; and other servers that have another log of that name.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/log/replicated_log_fixture.h"

namespace pmstore::log {
namespace {

Task<void> open_it(base::Executor& executor, std::vector<std::string> servers,
                   Result<std::unique_ptr<ReplicatedLog>>& result, bool& done) {
  result = co_await ReplicatedLog::open(executor, "log", servers, {});
  done = true;
}

class ReplicatedLogIdentity : public ReplicatedLogTest {
 protected:
  LogInfo info(size_t server) { return servers_[server]->store().find("log").value(); }
  void erase_at(size_t server) { ASSERT_TRUE(servers_[server]->store().erase(info(server).id)); }
  // By somebody else, on this server alone.
  Status make_at(size_t server, uint64_t identity, const std::vector<size_t>& which = {0, 1, 2},
                 uint64_t membership = 1) {
    ReplicaPlace place;
    place.replicas = uris(which);
    const auto self = std::find(which.begin(), which.end(), server);
    if (self != which.end()) place.self = static_cast<size_t>(self - which.begin());
    place.membership = membership;
    const LogOptions options{kLogBytes, FullPolicy::kBackPressure, identity};
    const auto made = servers_[server]->store().create("log", options, place);
    return made ? Status{} : made.error();
  }
  void close() {
    ASSERT_TRUE(run(log_->close()));
    log_.reset();
  }
  // The third has a higher membership of the old log than there is of the new one; it runs again.
  void leave_the_third_with_an_old_log(bool of_an_earlier_version = false) {
    for (size_t i = 0; of_an_earlier_version && i < kServers; ++i) ASSERT_TRUE(make_at(i, 0));
    if (!of_an_earlier_version) {
      ASSERT_TRUE(create());
    }
    ASSERT_TRUE(open());
    ASSERT_TRUE(append(3));
    ASSERT_TRUE(open({0}, dropping({2})));
    ASSERT_TRUE(run(log_->add(uris()[2], true)));
    ASSERT_TRUE(append(6));
    close();
    servers_[2]->kill();
    ASSERT_TRUE(open({0}, dropping({2})));
    close();
    ASSERT_TRUE(run(ReplicatedLog::erase(executor_, "log", uris({0, 1}), {})));
    ASSERT_TRUE(create({0, 1}));
    ASSERT_TRUE(open({0}));
    ASSERT_TRUE(append(2));
    close();
    servers_[2]->start();
    ASSERT_EQ(info(2).membership, 3u);
    ASSERT_EQ(info(2).identity == 0, of_an_earlier_version);
  }
  // Whatever is done with it by whoever names these servers.
  void expect_conflict(const std::vector<size_t>& which, const std::string& text) {
    const auto named = uris(which);
    const auto says = [&](const auto& result) {
      EXPECT_FALSE(result);
      if (result) return;
      EXPECT_EQ(result.code(), ErrorCode::kConflict);
      EXPECT_NE(result.error().message.find(text), std::string::npos) << result.error().message;
    };
    says(take(which));
    says(run(open_current_replica(executor_, "log", named, {})));
    const TrimPlace until{0, 2};
    says(run(ReplicatedLog::trim(executor_, "log", named, until, {})));
    says(run(ReplicatedLog::seal(executor_, "log", named, {})));
  }
  // Opens the log again and again. After each turn of an open() the third replica is deleted, and
  // made again by `make`, until that open() has its lease: else it fails, and fills nothing.
  template <typename Make>
  void make_again_while_opened(Make make) {
    uint64_t turns = 0;
    for (bool replaced = true; replaced; ++turns) {
      ASSERT_TRUE(create());
      ASSERT_TRUE(open());
      ASSERT_TRUE(append(3));
      close();
      bool done = false;
      Result<std::unique_ptr<ReplicatedLog>> opened = make_error(ErrorCode::kDisconnected);
      auto task = open_it(executor_, uris(), opened, done);
      task.start();
      for (uint64_t i = 0; i < turns; ++i) executor_.run_once();
      replaced = !info(2).exclusive && !done;
      if (replaced) {
        erase_at(2);
        ASSERT_TRUE(make());
      }
      run([](base::Executor& executor, const bool& until) -> Task<void> {
        while (!until) co_await executor.sleep_for(1000);
      }(executor_, done));
      EXPECT_NE(opened.has_value(), replaced);
      opened = make_error(ErrorCode::kDisconnected);
      run(sleep(executor_, kSoonNs));
      EXPECT_EQ(info(2).next_index, replaced ? 1u : 4u) << "after " << turns << " turns";
      for (size_t i = 0; i < kServers; ++i) erase_at(i);
    }
    EXPECT_GT(turns, 5u);
  }
};

TEST_P(ReplicatedLogIdentity, WhatIsLeftOfAnOldLogIsNotMixedIntoTheNewOne) {
  leave_the_third_with_an_old_log();
  const auto old = entries(2);
  for (const std::vector<size_t>& named : {std::vector<size_t>{0, 1, 2}, {2, 0}, {1, 2}}) {
    ASSERT_TRUE(open(named));
    EXPECT_EQ(log_->replicas(), uris({0, 1}));
    ASSERT_TRUE(append());
    expect_equal({0, 1});
    close();
  }
  EXPECT_EQ(entries(0).size(), 5u);
  EXPECT_EQ(entries(2), old);
  EXPECT_EQ(info(2).membership, 3u);
  const auto status = run(ReplicatedLog::status(executor_, "log", uris(), {}));
  EXPECT_TRUE(status.agreed);
  EXPECT_EQ(status.identity, info(0).identity);
  for (const ReplicaStatus& each : status.servers) EXPECT_EQ(each.current, each.uri != uris()[2]);
}

TEST_P(ReplicatedLogIdentity, WhatAnEarlierVersionHasMadeIsAnotherLogThanTheNewOne) {
  leave_the_third_with_an_old_log(true);
  const auto old = entries(2);
  ASSERT_TRUE(open());
  EXPECT_EQ(log_->replicas(), uris({0, 1}));
  ASSERT_TRUE(append());
  expect_equal({0, 1});
  EXPECT_EQ(entries(2), old);
}

TEST_P(ReplicatedLogIdentity, WhoNamesOnlyTheStaleServerIsRefused) {
  leave_the_third_with_an_old_log();
  expect_conflict({2}, "local:replica2 and local:replica0 have different logs of that name");
  EXPECT_EQ(run(ReplicatedLog::erase(executor_, "log", uris({2}), {})).code(),
            ErrorCode::kConflict);
  EXPECT_EQ(entries(0).size(), 2u);
  EXPECT_EQ(info(0).start_lsn, 0u);
  EXPECT_EQ(entries(2).size(), 9u);
}

TEST_P(ReplicatedLogIdentity, TheStaleServerIsAddedWhenItsOldLogIsDeletedThere) {
  leave_the_third_with_an_old_log();
  ASSERT_TRUE(open({0}));
  const Status refused = run(log_->add(uris()[2], true));
  EXPECT_EQ(refused.code(), ErrorCode::kConflict);
  EXPECT_EQ(entries(2).size(), 9u) << "not this log's to be deleted";
  erase_at(2);
  ASSERT_TRUE(run(log_->add(uris()[2], true)));
  ASSERT_TRUE(append());
  close();
  ASSERT_TRUE(open({2}));
  EXPECT_EQ(log_->replicas(), uris());
  expect_equal();
  EXPECT_NE(info(2).identity, 0u);
  EXPECT_EQ(info(2).identity, info(0).identity);
}

// One of them was lost and a log of that name made there: the other two are a majority without it.
TEST_P(ReplicatedLogIdentity, OfTwoLogsThatCouldBothGoOnNoneIsChosen) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
  ASSERT_TRUE(append(3));
  close();
  erase_at(0);
  ASSERT_TRUE(make_at(0, 5, {0}));
  for (const std::vector<size_t>& named : {std::vector<size_t>{0, 1, 2}, {1}, {2, 0}}) {
    expect_conflict(named, "have different logs of that name: leave out");
  }
  ASSERT_TRUE(open({0}));
  EXPECT_EQ(log_->next_index(), 1u) << "who names only that one means it";
  log_.reset();
  ASSERT_TRUE(open({1}, dropping({0})));
  EXPECT_EQ(log_->replicas(), uris({1, 2}));
  EXPECT_EQ(log_->next_index(), 4u);
}

// The same members and the same number, but by somebody else.
TEST_P(ReplicatedLogIdentity, AMemberWithAnotherLogIsDroppedBeforeTheOthersGoOn) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
  ASSERT_TRUE(append(3));
  close();
  erase_at(2);
  ASSERT_TRUE(make_at(2, 5));
  expect_conflict({0}, "local:replica2: it has another log of that name: drop this replica");
  EXPECT_EQ(info(0).start_lsn, 0u) << "nothing was trimmed";
  ASSERT_TRUE(open({0}, dropping({2})));
  ASSERT_TRUE(append());
  close();
  EXPECT_EQ(entries(2).size(), 0u);
  ASSERT_TRUE(run(ReplicatedLog::erase(executor_, "log", uris(), {})));
  EXPECT_FALSE(servers_[0]->store().find("log"));
  EXPECT_EQ(info(2).identity, 5u);
}

TEST_P(ReplicatedLogIdentity, ADeleteLeavesAnotherLogOfAMember) {
  ASSERT_TRUE(create());
  erase_at(2);
  ASSERT_TRUE(make_at(2, 5));
  ASSERT_TRUE(run(ReplicatedLog::erase(executor_, "log", uris({0}), {})));
  EXPECT_FALSE(servers_[0]->store().find("log"));
  EXPECT_FALSE(servers_[1]->store().find("log"));
  EXPECT_EQ(info(2).identity, 5u);
}

// It was a member by another URI, so its list and number may be those of the new log.
TEST_P(ReplicatedLogIdentity, AStaleServerUnderAnotherNameIsNotRead) {
  ASSERT_TRUE(create({0, 1}));
  ASSERT_TRUE(make_at(2, 5, {0, 1}));
  const auto at = run(open_current_replica(executor_, "log", uris({2, 0}), {}));
  ASSERT_TRUE(at) << at.error().to_string();
  EXPECT_EQ(at->info.identity, info(0).identity);
  for (const ReplicaStatus& each :
       run(ReplicatedLog::status(executor_, "log", uris({2, 0}), {})).servers) {
    EXPECT_EQ(each.current, each.uri != uris()[2]);
  }
}

// A replica is deleted and made again while somebody opens the log, after each of his turns, until
// he has its lease. What is there then is not filled.
TEST_P(ReplicatedLogIdentity, AReplicaThatIsMadeAgainWhileTheLogIsOpenedIsNotFilled) {
  make_again_while_opened([this] { return make_at(2, 5); });
}

// It has the log's identity and number, and names other members: whoever asks later would find no
// membership that all agree upon.
TEST_P(ReplicatedLogIdentity, AReplicaWhoseRecordNamesOtherMembersIsNotFilled) {
  make_again_while_opened([this] { return make_at(2, info(0).identity, {2, 0, 1}); });
}

TEST_P(ReplicatedLogIdentity, AFollowerOfADeletedLogDoesNotGoOnInTheNewOne) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
  ASSERT_TRUE(append());
  close();
  CurrentReplica at = run(open_current_replica(executor_, "log", uris({0}), {})).value();
  auto reader = follower(at);
  ASSERT_TRUE(run(reader->follow(kSoonNs)));
  ASSERT_TRUE(run(ReplicatedLog::erase(executor_, "log", uris(), {})));
  ASSERT_TRUE(create());
  ASSERT_TRUE(open({0}, dropping({2})));
  ASSERT_TRUE(append(2));
  EXPECT_EQ(run(reader->follow(kSoonNs)).code(), ErrorCode::kInvalidArgument);
  ASSERT_GT(info(0).membership, at.info.membership);
  const Status moved = run(move_to_current_replica({}, {}, at, reader));
  EXPECT_EQ(moved.code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(moved.error().message.find("was deleted"), std::string::npos);
}

// Of a replica that was away when all others were deleted, and made again.
TEST_P(ReplicatedLogIdentity, AFollowerOfAReplicaThatWasLeftBehindIsToldThatItsLogIsNoMore) {
  leave_the_third_with_an_old_log();
  const auto client = run(LogClient::connect(executor_, *fabric::parse_uri(uris()[2]), {})).value();
  const LogInfo old = run(client->open("log")).value();
  LogReaderOptions reading;
  reading.current_replica = true;
  const auto reader = run(LogReader::open(*client, old.id, reading)).value();
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(run(reader->follow(kSoonNs)));
  const auto told = run(reader->follow(kLaterNs));
  ASSERT_FALSE(told);
  EXPECT_EQ(told.code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(told.error().message.find("deleted and made again"), std::string::npos)
      << told.error().message;
}

// Their lists have nobody in common.
TEST_P(ReplicatedLogIdentity, WhoWasDroppedLongAgoIsStillOfTheLog) {
  ASSERT_TRUE(create({0}));
  ASSERT_TRUE(open({0}));
  ASSERT_TRUE(append(2));
  ASSERT_TRUE(run(log_->add(uris()[1])));
  ASSERT_TRUE(open({1}, dropping({0}, true)));
  ASSERT_TRUE(run(log_->add(uris()[2])));
  ASSERT_TRUE(open({2}, dropping({1}, true)));
  ASSERT_TRUE(append());
  close();
  EXPECT_EQ(info(0).replicas, uris({0, 1}));
  ASSERT_TRUE(open({0, 2}));
  EXPECT_EQ(log_->replicas(), uris({2}));
  ASSERT_TRUE(run(log_->add(uris()[0], true))) << "it has nothing else than this log";
  expect_equal({0, 2});
}

TEST_P(ReplicatedLogIdentity, ALogThatWasHalfMadeIsFinishedWithTheIdentityThatItHas) {
  ASSERT_TRUE(make_at(0, 5));
  ASSERT_TRUE(create());
  for (size_t i = 0; i < kServers; ++i) EXPECT_EQ(info(i).identity, 5u);
  ASSERT_TRUE(open());
}

// What is left of a delete that was interrupted: a create begins at the other end.
TEST_P(ReplicatedLogIdentity, AnEmptyReplicaBehindOneThatIsMissingIsNoHalfMadeLog) {
  ASSERT_TRUE(make_at(2, 5));
  EXPECT_EQ(create().code(), ErrorCode::kAlreadyExists);
  EXPECT_FALSE(servers_[0]->store().find("log")) << "nothing was made";
  ASSERT_TRUE(run(ReplicatedLog::erase(executor_, "log", uris(), {})));
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
}

TEST_P(ReplicatedLogIdentity, LogsOfOneServerHaveOneToo) {
  const auto client = run(LogClient::connect(executor_, *fabric::parse_uri(uris()[0]), {})).value();
  const LogInfo one = run(client->create("one", {.bytes = kLogBytes})).value();
  const LogInfo other = run(client->create("other", {.bytes = kLogBytes})).value();
  const LogInfo given = run(client->create("given", {.bytes = kLogBytes, .identity = 7})).value();
  EXPECT_NE(one.identity, 0u);
  EXPECT_NE(one.identity, other.identity);
  EXPECT_EQ(given.identity, 7u);
  EXPECT_EQ(run(client->open("one")).value().identity, one.identity);
  const auto listed = run(client->list()).value();
  ASSERT_EQ(listed.size(), 3u);
  EXPECT_EQ(listed[1].identity, other.identity);
  servers_[0]->kill();
  servers_[0]->start();
  EXPECT_EQ(servers_[0]->store().find("one")->identity, one.identity);
}

INSTANTIATE_TEST_SUITE_P(Domain, ReplicatedLogIdentity,
                         testing::Values(persist::Domain::kCpuCache,
                                         persist::Domain::kMemoryController),
                         domain_of);

}  // namespace
}  // namespace pmstore::log
