// Replicated logs as a whole: trimmed, sealed and deleted without a producer; and what is refused.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "log/log_producer.h"
#include "tests/unit/log/replicated_log_fixture.h"

namespace pmstore::log {
namespace {

TEST_P(ReplicatedLogTest, ASealThatFailedHalfWayIsFinishedByTheNext) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
  ASSERT_TRUE(append(5));
  ASSERT_TRUE(run(log_->close()));
  // As a seal that was interrupted behind the first member.
  ASSERT_TRUE(servers_[0]->store().seal(servers_[0]->store().find("log")->id));
  EXPECT_EQ(take().code(), ErrorCode::kSealed);
  EXPECT_EQ(take({1}, stealing()).code(), ErrorCode::kSealed) << "nobody appends any more";
  servers_[2]->kill();
  EXPECT_FALSE(run(ReplicatedLog::seal(executor_, "log", uris({1}), {})));
  EXPECT_FALSE(servers_[1]->store().find("log")->sealed) << "all are asked first";
  servers_[2]->start();
  for (int times = 0; times < 2; ++times) {
    const Status sealed = run(ReplicatedLog::seal(executor_, "log", uris({1}), {}));
    ASSERT_TRUE(sealed) << sealed.error().to_string();
  }
  for (const auto& server : servers_) EXPECT_TRUE(server->store().find("log")->sealed);
  expect_equal();
}

TEST_P(ReplicatedLogTest, ASealBreaksOffAtAServerThatDies) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
  ASSERT_TRUE(append(5));
  servers_[1]->kill();
  EXPECT_FALSE(run(log_->seal()));
  log_.reset();
  servers_[1]->start();
  const Status sealed = run(ReplicatedLog::seal(executor_, "log", uris({2}), stealing()));
  ASSERT_TRUE(sealed) << sealed.error().to_string();
  for (size_t i = 0; i < kServers; ++i) {
    EXPECT_TRUE(servers_[i]->store().find("log")->sealed);
    EXPECT_EQ(entries(i), entries(0));
    EXPECT_EQ(entries(i).size(), 5u);
  }
}

TEST_P(ReplicatedLogTest, TrimmedOnAllReplicasWhileAProducerHasIt) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
  ASSERT_TRUE(append(9));
  ASSERT_TRUE(run(log_->publish()));
  const TrimPlace until{0, 4};
  const auto start = run(ReplicatedLog::trim(executor_, "log", uris({2}), until, {}));
  ASSERT_TRUE(start) << start.error().to_string();
  for (size_t i = 0; i < kServers; ++i) {
    EXPECT_EQ(servers_[i]->store().find("log")->start_lsn, *start);
    EXPECT_EQ(entries(i).front().index, 4u);
  }
  ASSERT_TRUE(append());
  const TrimPlace further{*start, 0};
  EXPECT_EQ(run(ReplicatedLog::trim(executor_, "log", uris({0}), further, {})), *start);
  servers_[1]->kill();
  EXPECT_FALSE(run(ReplicatedLog::trim(executor_, "log", uris({0}), until, {})));
}

TEST_P(ReplicatedLogTest, ADeleteThatFailedHalfWayIsFinishedByTheNext) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
  EXPECT_EQ(run(ReplicatedLog::erase(executor_, "log", uris(), {})).code(), ErrorCode::kBusy);
  ASSERT_TRUE(run(log_->close()));
  servers_[2]->kill();
  EXPECT_FALSE(run(ReplicatedLog::erase(executor_, "log", uris(), {})));
  EXPECT_TRUE(servers_[0]->store().find("log")) << "all are asked first";
  servers_[2]->start();
  ASSERT_TRUE(servers_[0]->store().erase(servers_[0]->store().find("log")->id));
  ASSERT_TRUE(run(ReplicatedLog::erase(executor_, "log", uris({1}), {})));
  for (const auto& server : servers_) EXPECT_FALSE(server->store().find("log"));
  EXPECT_EQ(run(ReplicatedLog::erase(executor_, "log", uris(), {})).code(), ErrorCode::kNotFound);
}

TEST_P(ReplicatedLogTest, AnotherLogOfThatNameIsNotTakenForAReplica) {
  ASSERT_TRUE(create({0, 1}));
  ASSERT_TRUE(create({2}));
  for (const auto& named : {uris({0, 2}), uris({2, 0})}) {
    EXPECT_EQ(run(ReplicatedLog::open(executor_, "log", named, {})).code(), ErrorCode::kConflict);
    EXPECT_EQ(run(open_current_replica(executor_, "log", named, {})).code(), ErrorCode::kConflict);
    EXPECT_EQ(run(ReplicatedLog::erase(executor_, "log", named, {})).code(), ErrorCode::kConflict);
  }
  ASSERT_TRUE(open({0}));
  EXPECT_EQ(run(log_->add(uris()[2], true)).code(), ErrorCode::kConflict);
  EXPECT_TRUE(servers_[2]->store().find("log"));
}

TEST_P(ReplicatedLogTest, AReaderMovesToAReplicaThatIsCurrentAndGoesOnThere) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
  ASSERT_TRUE(append(2));
  run(sleep(executor_, 1'000'000));
  CurrentReplica at = run(open_current_replica(executor_, "log", uris({2}), {})).value();
  auto reader = follower(at);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(run(reader->follow(kSoonNs)));
  ASSERT_TRUE(open({0}, dropping({2})));
  ASSERT_TRUE(append());
  ASSERT_EQ(run(reader->follow(kLaterNs)).code(), ErrorCode::kConflict);
  ASSERT_TRUE(run(move_to_current_replica({}, {}, at, reader)));
  const auto entry = run(reader->follow(kSoonNs));
  ASSERT_TRUE(entry) << entry.error().to_string();
  EXPECT_EQ(entry->index, 3u);
  EXPECT_EQ(at.info.membership, 2u);
}

// Deleted and made again is another log; and a server may say of a log what its words do not.
TEST_P(ReplicatedLogTest, AReaderWhoseReplicaWasNotDroppedDoesNotMove) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
  ASSERT_TRUE(append());
  ASSERT_TRUE(run(log_->close()));
  CurrentReplica at = run(open_current_replica(executor_, "log", uris({2}), {})).value();
  auto reader = follower(at);
  ASSERT_TRUE(run(reader->follow(kSoonNs)));
  ASSERT_TRUE(run(ReplicatedLog::erase(executor_, "log", uris(), {})));
  ASSERT_TRUE(create());
  ASSERT_EQ(run(reader->follow(kSoonNs)).code(), ErrorCode::kInvalidArgument);
  const Status moved = run(move_to_current_replica({}, {}, at, reader));
  ASSERT_FALSE(moved) << "it is another log";
  EXPECT_EQ(moved.code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(moved.error().message.find("was deleted"), std::string::npos);
  EXPECT_EQ(run(reader->follow(kSoonNs)).code(), ErrorCode::kInvalidArgument) << "as before";

  reader.reset();
  at = run(open_current_replica(executor_, "log", uris({2}), {})).value();
  reader = follower(at);
  for (auto& server : servers_) std::ranges::fill(server->store().words(), std::byte{0});
  ASSERT_EQ(run(reader->follow(kSoonNs)).code(), ErrorCode::kInvalidArgument);
  const Status again = run(move_to_current_replica({}, {}, at, reader));
  ASSERT_FALSE(again) << "it would be told the same there";
  EXPECT_EQ(again.code(), ErrorCode::kInvalidArgument);
}

TEST_P(ReplicatedLogTest, APoolUnderTwoNamesIsOneReplica) {
  const std::string one = uris()[0];
  ASSERT_TRUE(servers_[0]->listen_also("local:alias"));
  EXPECT_EQ(
      run(ReplicatedLog::create(executor_, "log", {.bytes = kLogBytes}, {one, "local:alias"}, {}))
          .code(),
      ErrorCode::kInvalidArgument);
  EXPECT_FALSE(servers_[0]->store().find("log")) << "nothing was made";
  ASSERT_TRUE(create({0, 1}));
  ASSERT_TRUE(open({0}));
  EXPECT_EQ(run(log_->add("local:alias", true)).code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(servers_[0]->store().find("log"));
}

TEST_P(ReplicatedLogTest, WhatADroppedMemberStillHasIsReplaced) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
  ASSERT_TRUE(append(5));
  ASSERT_TRUE(open({0}, dropping({2})));
  ASSERT_TRUE(append(5));
  const Status added = run(log_->add(uris()[2], true));
  ASSERT_TRUE(added) << added.error().to_string();
  EXPECT_EQ(log_->membership(), 3u);
  ASSERT_TRUE(append());
  ASSERT_TRUE(run(log_->close()));
  expect_equal();
}

// Two decisions of one number, of which the lost member could tell which one went on: the others
// know, for only what was agreed upon went on. In whatever order they are named.
class OfTwoDecisions : public ReplicatedLogTest {
 protected:
  void the_one_that_went_on_counts(const std::vector<size_t>& named) {
    ASSERT_TRUE(create());
    ASSERT_TRUE(open());
    ASSERT_TRUE(append());
    log_.reset();
    ASSERT_TRUE(record_at_first_alone());
    servers_[0]->kill();
    ASSERT_TRUE(open({1, 2}, dropping({0})));
    ASSERT_TRUE(append(5));
    ASSERT_TRUE(run(log_->close()));
    log_.reset();
    servers_[0]->start();
    servers_[1]->kill();
    ASSERT_TRUE(open(named, dropping({1}, true)));
    EXPECT_EQ(log_->replicas(), uris({2}));
    EXPECT_EQ(log_->next_index(), 7u);
  }
};
INSTANTIATE_TEST_SUITE_P(Domain, OfTwoDecisions,
                         testing::Values(persist::Domain::kCpuCache,
                                         persist::Domain::kMemoryController),
                         domain_of);

TEST_P(OfTwoDecisions, TheOneThatWentOnCounts) { the_one_that_went_on_counts({2, 0}); }
TEST_P(OfTwoDecisions, TheOneThatWentOnCountsWhenItIsNamedLast) {
  the_one_that_went_on_counts({0, 2});
}

// The same when neither was agreed upon: nobody can know, not even who says that the third is gone.
TEST_P(ReplicatedLogTest, OfTwoDecisionsThatNobodyKnowsOfNoneCounts) {
  ASSERT_TRUE(create());
  ReplicaPlace place;
  place.membership = 2;
  for (const std::vector<size_t>& pair : {std::vector<size_t>{0, 1}, {1, 2}}) {
    const size_t only = pair.front() == 0 ? 0 : 2;
    place.replicas = uris(pair);
    place.self = only == 0 ? 0 : 1;
    LogStore& store = servers_[only]->store();
    ASSERT_TRUE(store.set_membership(store.find("log")->id, 1, place));
  }
  const auto refused = take({0, 2}, dropping({1}, true));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), ErrorCode::kConflict);
  EXPECT_NE(refused.error().message.find("membership 2 may be local:replica0 local:replica1 or"),
            std::string::npos)
      << refused.error().message;
}

TEST_P(ReplicatedLogTest, WhoWasFencedDoesNotReplaceAMember) {
  ASSERT_TRUE(create({0, 1}));
  ASSERT_TRUE(open({0, 1}));
  ASSERT_TRUE(append(2));
  const auto stale = std::move(log_);
  ASSERT_TRUE(open({0, 1}, stealing()));
  ASSERT_TRUE(run(log_->add(uris()[2], true)));
  ASSERT_TRUE(append(3));
  const Status refused = run(stale->add(uris()[2], true));
  EXPECT_EQ(refused.code(), ErrorCode::kFenced);
  ASSERT_TRUE(append());
  expect_equal();
}

TEST_P(ReplicatedLogTest, StatusSaysWhatIsNotAgreedUpon) {
  ASSERT_TRUE(create());
  auto status = run(ReplicatedLog::status(executor_, "log", uris({0}), {}));
  EXPECT_TRUE(status.agreed);
  EXPECT_EQ(status.membership, 1u);
  EXPECT_EQ(status.replicas, uris());
  servers_[1]->kill();
  status = run(ReplicatedLog::status(executor_, "log", uris({0}), {}));
  EXPECT_FALSE(status.agreed);
  ASSERT_TRUE(status.why_not);
  EXPECT_NE(status.why_not->message.find(uris()[1]), std::string::npos);
  EXPECT_EQ(status.replicas, uris());
  EXPECT_EQ(status.servers.size(), kServers);
}

class OneReplica : public ReplicatedLogTest {
 protected:
  // Of one server alone, as of a ReplicatedLog that comes no further.
  std::unique_ptr<LogProducer> producer_at(size_t server) {
    auto client =
        run(LogClient::connect(executor_, *fabric::parse_uri(servers_[server]->uri()), {}));
    clients_.push_back(std::move(*client));
    const auto info = run(clients_.back()->open("log"));
    LogProducerOptions options;
    options.replica = true;
    options.membership = info->membership;
    auto opened = run(LogProducer::open(*clients_.back(), info->id, options));
    EXPECT_TRUE(opened) << opened.error().to_string();
    return opened ? std::move(*opened) : nullptr;
  }
  std::vector<std::unique_ptr<LogClient>> clients_;
};
INSTANTIATE_TEST_SUITE_P(Domain, OneReplica,
                         testing::Values(persist::Domain::kCpuCache,
                                         persist::Domain::kMemoryController),
                         domain_of);

// It would get them under other numbers than the replicas that have lost none.
TEST_P(OneReplica, ThatHasLostAnEntryGetsNoneOfTheNextOnes) {
  ASSERT_TRUE(create());
  ASSERT_TRUE(open());
  uint64_t last_lsn = 0;
  for (int i = 0; i < 3; ++i) last_lsn = append()->lsn;
  ASSERT_TRUE(run(log_->close()));
  log_.reset();
  run(sleep(executor_, kSoonNs));
  // Of a producer that is gone, the next one has come to the first replica only.
  auto producer = producer_at(0);
  ASSERT_NE(producer, nullptr);
  const std::string next = text(4);
  const std::span<const std::byte> payloads[] = {std::as_bytes(std::span(next))};
  ASSERT_TRUE(run(producer->append_batch_at(payloads, 4)));
  ASSERT_TRUE(run(producer->close()));
  ASSERT_TRUE(servers_[1]->store().close());
  servers_[1]->damage_entry("log", last_lsn);
  servers_[1]->kill();
  servers_[1]->start();
  const LogInfo before = *servers_[1]->store().find("log");
  ASSERT_NE(before.next_index, 4u);
  EXPECT_EQ(take().code(), ErrorCode::kDamaged);
  run(sleep(executor_, kSoonNs));
  producer = producer_at(1);
  ASSERT_NE(producer, nullptr);
  EXPECT_EQ(producer->tail_lsn(), before.tail_lsn);
  EXPECT_EQ(producer->next_index(), before.next_index);
  EXPECT_TRUE(run(producer->close()));
}

}  // namespace
}  // namespace pmstore::log
