// RPC over every provider: sizes, concurrency, errors, losing the target.
#include <algorithm>

#include "tests/scenario/fabric/fabric_scenario.h"

namespace pmstore::scenario {
namespace {

using fabric::Counters;
using fabric::RpcReply;

class RpcScenario : public FabricScenario {};

// Many calls at once, from as many coroutines.
struct Crowd {
  uint64_t answered = 0;
  uint64_t wrong = 0;
  std::vector<Error> errors;
};

base::Task<void> member(fabric::RpcClient& client, Crowd& crowd, uint16_t method, uint64_t seed,
                        int rounds, size_t max_bytes) {
  base::Random random(seed);
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::byte> request(8 + random.below(max_bytes));
    for (auto& b : request) b = static_cast<std::byte>(random.next());
    auto reply = co_await client.call(method, request, static_cast<uint32_t>(request.size()));
    if (!reply) {
      crowd.errors.push_back(reply.error());
      co_return;
    }
    ++crowd.answered;
    crowd.wrong += !std::ranges::equal(reply->bytes(), request);
  }
}

TEST_F(RpcScenario, EchoesFromNothingToTwoMebibytes) {
  const size_t most =
      std::min(control_->rpc->max_request_bytes(), control_->rpc->max_reply_bytes());
  EXPECT_GT(most, (2u << 20) - 256);
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{31}, size_t{32}, size_t{33}, size_t{1000},
                       size_t{65536}, size_t{1} << 20, most}) {
    fill_local(0, bytes, bytes);
    auto reply = call(*control_, kEcho, {at(0), bytes}, static_cast<uint32_t>(bytes));
    ASSERT_TRUE(reply) << bytes << " bytes: " << reply.error().to_string();
    ASSERT_EQ(reply->size(), bytes);
    ASSERT_TRUE(std::ranges::equal(*reply, std::span(at(0), bytes))) << bytes << " bytes";
  }
}

TEST_F(RpcScenario, ACallIsOneDoorbellOneRoundTripOneServerMessage) {
  expect_unharmed();
  const Counters before = control_->connection->counters();
  expect_unharmed();
  const Counters cost = control_->connection->counters() - before;
  EXPECT_EQ(cost.doorbells, 1u);
  EXPECT_EQ(cost.work_requests, 1u);
  EXPECT_EQ(cost.round_trips, 1u);
  EXPECT_EQ(cost.server_messages, 1u);
  EXPECT_EQ(cost.immediates_received, 1u);
}

TEST_F(RpcScenario, HundredsOfConcurrentCallsGetTheirOwnAnswers) {
  Crowd crowd;
  constexpr int kMembers = 300;  // more than max_calls, so that some wait for a slot
  constexpr int kRounds = 20;
  for (uint64_t i = 0; i < kMembers; ++i) {
    executor_.spawn(member(*control_->rpc, crowd, kEcho, i, kRounds, 3000));
  }
  EXPECT_TRUE(
      run_until([&] { return crowd.answered == kMembers * kRounds || !crowd.errors.empty(); },
                kPatientTimeoutNs));
  EXPECT_EQ(crowd.answered, static_cast<uint64_t>(kMembers) * kRounds);
  EXPECT_EQ(crowd.wrong, 0u);
  for (const Error& error : crowd.errors) ADD_FAILURE() << error.to_string();
}

TEST_F(RpcScenario, LargeCallsShareSmallRings) {
  fabric::RpcOptions options;
  options.request_ring_bytes = 64 << 10;
  options.reply_arena_bytes = 64 << 10;
  options.max_calls = 8;
  options.call_timeout_ns = kPatientTimeoutNs;
  auto link = connect_rpc(options);
  ASSERT_NE(link, nullptr);
  Crowd crowd;
  for (uint64_t i = 0; i < 20; ++i) {
    executor_.spawn(member(*link->rpc, crowd, kEcho, i, 30, 20'000));
  }
  EXPECT_TRUE(
      run_until([&] { return crowd.answered == 600 || !crowd.errors.empty(); }, kPatientTimeoutNs));
  EXPECT_EQ(crowd.wrong, 0u);
  for (const Error& error : crowd.errors) ADD_FAILURE() << error.to_string();
}

TEST_F(RpcScenario, AnswersMayComeInAnyOrder) {
  Crowd crowd;
  for (uint64_t i = 0; i < 50; ++i)
    executor_.spawn(member(*control_->rpc, crowd, kHold, i, 1, 500));
  // Another connection releases them, newest first, when all are there.
  auto other = connect_rpc();
  ASSERT_NE(other, nullptr);
  EXPECT_TRUE(
      run_until([&] { return call(*other, kReleaseHeld, {}).has_value() && crowd.answered == 50; },
                kPatientTimeoutNs));
  EXPECT_EQ(crowd.wrong, 0u);
}

TEST_F(RpcScenario, TheHandlersErrorComesBackAsItIs) {
  std::vector<std::byte> request(sizeof(FailRequest));
  const FailRequest fail{static_cast<uint32_t>(ErrorCode::kUnknownTable)};
  std::memcpy(request.data(), &fail, sizeof(fail));
  const std::string message = "no table 'accounts'; make it with pmstore pool create";
  for (char c : message) request.push_back(static_cast<std::byte>(c));
  auto reply = call(*control_, kFail, request, 0);
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.code(), ErrorCode::kUnknownTable);
  EXPECT_EQ(reply.error().message, message);
  expect_unharmed();
}

TEST_F(RpcScenario, AnUnansweredRequestIsAnsweredByItsDestruction) {
  auto reply = call(*control_, kDropUnanswered, {});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.code(), ErrorCode::kDisconnected);
  EXPECT_EQ(reply.error().message, "request dropped");
  EXPECT_FALSE(control_->rpc->failed());
  expect_unharmed();
}

TEST_F(RpcScenario, TooLargeNamesTheLimitAndSendsNothing) {
  const uint32_t most = control_->rpc->max_request_bytes();
  const std::vector<std::byte> request(most + 1);
  const Counters before = control_->connection->counters();
  auto reply = call(*control_, kEcho, request, 8);
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.code(), ErrorCode::kTooLarge);
  EXPECT_NE(reply.error().message.find(std::to_string(most)), std::string::npos);
  auto room = call(*control_, kEcho, {}, control_->rpc->max_reply_bytes() + 1);
  ASSERT_FALSE(room);
  EXPECT_EQ(room.code(), ErrorCode::kTooLarge);
  EXPECT_EQ((control_->connection->counters() - before).doorbells, 0u);
}

TEST_F(RpcScenario, AReplyThatDoesNotFitIsTooLarge) {
  const std::vector<std::byte> request(1000);
  auto reply = call(*control_, kEcho, request, 999);
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.code(), ErrorCode::kTooLarge);
  EXPECT_TRUE(call(*control_, kEcho, request, 1000));
}

TEST_F(RpcScenario, ACallWithoutAnswerTimesOutAndTheConnectionIsUnusable) {
  fabric::RpcOptions options;
  options.call_timeout_ns = 200'000'000;
  auto link = connect_rpc(options);
  ASSERT_NE(link, nullptr);
  const uint64_t before = clock_.now_ns();
  auto reply = call(*link, kNeverAnswer, {});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.code(), ErrorCode::kTimeout);
  EXPECT_GE(clock_.now_ns() - before, options.call_timeout_ns);
  EXPECT_LT(clock_.now_ns() - before, with_patience(5 * options.call_timeout_ns));
  EXPECT_TRUE(link->rpc->failed());
  EXPECT_FALSE(call(*link, kEcho, {}));
  expect_unharmed();
}

TEST_F(RpcScenario, AHandlerMayDestroyThePeerItServes) {
  fabric::RpcOptions options;
  options.call_timeout_ns = short_timeout_ns();
  operation_timeout_ns_ = short_timeout_ns();
  auto link = connect_rpc(options);
  ASSERT_NE(link, nullptr);
  auto reply = call(*link, kDestroyMe, {});
  ASSERT_FALSE(reply);
  EXPECT_TRUE(reply.code() == ErrorCode::kDisconnected || reply.code() == ErrorCode::kTimeout);
  EXPECT_TRUE(link->rpc->failed());
  expect_unharmed();
}

TEST_F(RpcScenario, AMalformedRequestCostsTheSenderItsConnectionAndNothingElse) {
  operation_timeout_ns_ = short_timeout_ns();
  fabric::RpcOptions options;
  options.call_timeout_ns = short_timeout_ns();
  auto hostile = connect_rpc(options);
  ASSERT_NE(hostile, nullptr);
  const uint64_t lost = live().lost;
  fill_local(0, 64, 666);
  fabric::Batch batch;
  batch.write_immediate(local(0, 64), hostile->hello.requests.at(0), 0);
  ASSERT_TRUE(hostile->connection->post(batch, nullptr));
  EXPECT_TRUE(
      run_until([&] { return live().lost == lost + 1; }, with_patience(4 * short_timeout_ns())));
  auto reply = call(*hostile, kEcho, {});
  EXPECT_FALSE(reply);
  expect_unharmed();
}

TEST_F(RpcScenario, AKilledTargetFailsEveryOutstandingCallWithinTheTimeout) {
  operation_timeout_ns_ = short_timeout_ns();
  fabric::RpcOptions options;
  options.call_timeout_ns = short_timeout_ns();
  auto link = connect_rpc(options);
  ASSERT_NE(link, nullptr);
  Crowd crowd;
  constexpr size_t kMembers = 100;
  for (uint64_t i = 0; i < kMembers; ++i) {
    executor_.spawn(member(*link->rpc, crowd, kNeverAnswer, i, 1, 100));
  }
  run_until([] { return false; }, 50'000'000);
  EXPECT_EQ(crowd.errors.size(), 0u);
  target_->kill();
  EXPECT_TRUE(run_until([&] { return crowd.errors.size() == kMembers; },
                        with_patience(4 * short_timeout_ns())));
  for (const Error& error : crowd.errors) {
    EXPECT_TRUE(error.code == ErrorCode::kDisconnected || error.code == ErrorCode::kTimeout)
        << error.to_string();
  }
  EXPECT_TRUE(link->rpc->failed());
  control_.reset();
}

TEST_F(RpcScenario, DestroyingTheClientFailsItsCalls) {
  auto link = connect_rpc();
  ASSERT_NE(link, nullptr);
  Crowd crowd;
  for (uint64_t i = 0; i < 10; ++i) {
    executor_.spawn(member(*link->rpc, crowd, kNeverAnswer, i, 1, 100));
  }
  run_until([] { return false; }, 10'000'000);
  link.reset();
  EXPECT_TRUE(run_until([&] { return crowd.errors.size() == 10; }, kPatientTimeoutNs));
  expect_unharmed();
}

}  // namespace
}  // namespace pmstore::scenario
