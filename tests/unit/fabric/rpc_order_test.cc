// RPC: requests are sent in the order of the calls, whatever they wait for.
#include "tests/unit/fabric/rpc_pair.h"

namespace pmstore::fabric {
namespace {

// The order of calls, as the server sees it.
class RpcOrder : public RpcPair {
 protected:
  void note_methods() {
    server_.serve = [this](RpcPeer&, RpcCall call) {
      methods_.push_back(call.method());
      server_.held.push_back(std::move(call));
    };
  }
  void answer_all() {
    for (RpcCall& call : server_.held) call.reply(call.request());
    server_.held.clear();
  }
  void start_call(uint16_t method, size_t bytes) {
    client_executor_.spawn(one_call(*client_, outcomes_, method, bytes));
  }
  // A ring in which there is room for two requests of 5,000 bytes.
  void connect_small() {
    RpcOptions options = options_of(16);
    options.request_ring_bytes = 16 * 1024;
    connect(options);
  }

  std::vector<uint16_t> methods_;
};

TEST_F(RpcOrder, AnAnsweredCallerDoesNotGetInFrontOfACallThatWaitedForRoom) {
  connect_small();
  note_methods();
  start_call(1, 5000);
  client_executor_.spawn([](RpcClient& client, Outcomes& outcomes) -> base::Task<void> {
    const std::vector<std::byte> request(5000);
    const auto kept = co_await client.call(2, request, 5000);
    EXPECT_TRUE(kept);
    co_await one_call(client, outcomes, 4, 100);
  }(*client_, outcomes_));
  start_call(3, 7000);
  both(5);
  ASSERT_EQ(methods_, (std::vector<uint16_t>{1, 2})) << "there is no room for the third";
  answer_all();
  both(5);
  EXPECT_EQ(methods_, (std::vector<uint16_t>{1, 2, 3, 4}));
  answer_all();
  both(5);
  EXPECT_EQ(outcomes_.good, 3u);
}

TEST_F(RpcOrder, CallsThatWaitForTheSendQueueStayInFrontOfLaterOnes) {
  connect(options_of(2000));
  note_methods();
  for (uint64_t time = 1; time <= 2; ++time) {
    methods_.clear();
    for (int i = 0; i < 1024; ++i) start_call(1, 8);
    start_call(2, 8);
    start_call(3, 8);
    for (int i = 0; i < 3; ++i) client_executor_.run_once();
    ASSERT_EQ(connection_->counters().server_messages, 1027 * (time - 1) + 1024);
    server_executor_.run_once();  // there is room again, and the client does not know yet
    auto late = one_call(*client_, outcomes_, 4, 8);
    late.start();
    both(20);
    ASSERT_EQ(methods_.size(), 1027u);
    EXPECT_EQ(std::vector<uint16_t>(methods_.end() - 3, methods_.end()),
              (std::vector<uint16_t>{2, 3, 4}));
    answer_all();
    both(200);
    EXPECT_EQ(outcomes_.good, 1027 * time);
  }
}

TEST_F(RpcOrder, ACallMayWaitForASlotAndThenForTheSendQueue) {
  connect(options_of(1030));
  note_methods();
  for (int i = 0; i < 6; ++i) start_call(1, 8);
  both(3);
  ASSERT_EQ(server_.held.size(), 6u);
  for (int i = 0; i < 1024; ++i) start_call(1, 8);
  start_call(2, 8);
  client_executor_.run_once();
  server_.held[0].reply(server_.held[0].request());
  for (int i = 0; i < 3; ++i) client_executor_.run_once();
  EXPECT_EQ(outcomes_.good, 1u);
  EXPECT_EQ(connection_->counters().server_messages, 1030u);
  both(20);
  ASSERT_EQ(methods_.size(), 1031u);
  EXPECT_EQ(methods_.back(), 2);
  server_.held.erase(server_.held.begin());
  answer_all();
  both(200);
  EXPECT_EQ(outcomes_.good, 1031u);
}

TEST_F(RpcOrder, WhenTheFirstCallThatWaitsIsDestroyedTheNextGoesOn) {
  connect_small();
  note_methods();
  start_call(1, 8000);
  start_call(2, 5000);
  both(3);
  {
    auto large = one_call(*client_, outcomes_, 3, 7000);
    large.start();
    start_call(4, 100);
    both(3);
    ASSERT_EQ(methods_, (std::vector<uint16_t>{1, 2}));
  }
  both(3);
  EXPECT_EQ(methods_, (std::vector<uint16_t>{1, 2, 4}));
  answer_all();
  both(5);
  EXPECT_EQ(outcomes_.good, 3u);
}

TEST_F(RpcOrder, WhenTheFirstCallThatWaitsForTheSendQueueIsDestroyedTheNextGoesOn) {
  RpcOptions options = options_of(2000);
  options.request_ring_bytes = 128 * 1024;
  connect(options);
  note_methods();
  for (int i = 0; i < 1024; ++i) start_call(1, 8);
  client_executor_.run_once();
  {
    auto first = one_call(*client_, outcomes_, 2, 8);
    first.start();
    start_call(3, 8);
    client_executor_.run_once();
  }
  both(20);
  ASSERT_EQ(methods_.size(), 1025u);
  EXPECT_EQ(methods_.back(), 3);
  answer_all();
  both(200);
  EXPECT_EQ(outcomes_.good, 1025u);
  // Its room is free again: what stays in use delays all that is behind it.
  for (int times = 0; times < 3; ++times) {
    for (int i = 0; i < 1000; ++i) start_call(1, 8);
    both(20);
    answer_all();
    both(200);
  }
  EXPECT_EQ(outcomes_.good, 4025u);
}

TEST_F(RpcOrder, WhenTheFirstCallThatWaitsExpiresTheNextGoesOn) {
  RpcOptions options = options_of(16);
  options.reply_arena_bytes = 16 * 1024;
  connect(options);
  std::vector<RpcReply> kept;  // so that there is no room for the reply of 7,000 bytes
  for (int i = 0; i < 2; ++i) {
    client_executor_.spawn([](RpcClient& client, std::vector<RpcReply>& to) -> base::Task<void> {
      auto reply = co_await client.call(1, {}, 5000);
      if (reply) to.push_back(std::move(*reply));
    }(*client_, kept));
  }
  both(5);
  ASSERT_EQ(kept.size(), 2u);
  start_call(2, 7000);
  both(500, 1000);
  start_call(3, 100);
  both(5);
  EXPECT_EQ(outcomes_.good, 0u);
  both(800, 1000);
  EXPECT_EQ(outcomes_.good, 1u);
  ASSERT_EQ(outcomes_.errors.size(), 1u);
  EXPECT_EQ(outcomes_.errors[0].code, ErrorCode::kTimeout);
  EXPECT_FALSE(client_->failed());
  kept.clear();
}

}  // namespace
}  // namespace pmstore::fabric
