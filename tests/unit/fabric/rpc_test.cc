// RPC where timing and order matter; sizes and errors are in the fabric scenarios.
#include "fabric/local/fault_injection.h"
#include "fabric/rpc_layout.h"
#include "tests/unit/fabric/rpc_pair.h"

namespace pmstore::fabric {
namespace {

class Rpc : public RpcPair {};

TEST_F(Rpc, UnusableOptionsAreRefused) {
  for (const RpcOptions& bad :
       {RpcOptions{100, 1 << 20, 16, 1}, RpcOptions{1 << 20, 1000, 16, 1},
        RpcOptions{1 << 20, 1 << 20, 0, 1}, RpcOptions{1 << 20, 1 << 20, 70000, 1},
        RpcOptions{2048, 1 << 20, 16, 1}}) {
    auto client = RpcClient::create(*client_device_, bad);
    ASSERT_FALSE(client);
    EXPECT_EQ(client.code(), ErrorCode::kInvalidArgument);
  }
  for (const uint64_t bytes :
       {uint64_t{0}, uint64_t{4095}, uint64_t{4160 + 8}, uint64_t{2 << 20}}) {
    auto peer = RpcPeer::create(*server_device_, server_options_, {0, bytes, 0}, server_);
    ASSERT_FALSE(peer) << bytes;
    EXPECT_EQ(peer.code(), ErrorCode::kInvalidArgument);
  }
}

TEST_F(Rpc, RequestsWaitForRoomInTheSendQueue) {
  connect(options_of(2000));
  start_calls(1500, 8);
  for (int i = 0; i < 10; ++i) client_executor_.run_once();  // the server sleeps: 1024 fit
  EXPECT_EQ(connection_->counters().server_messages, 1024u);
  both(200);
  EXPECT_EQ(outcomes_.good, 1500u);
  EXPECT_EQ(connection_->counters().server_messages, 1500u);
}

TEST_F(Rpc, ASendQueueThatStaysFullIsATimeoutWithNothingInDoubt) {
  connect(options_of(2000));
  start_calls(1100, 8);
  for (int i = 0; i < 2000; ++i) {
    client_executor_.run_once();
    clock_.advance_to(clock_.now_ns() + 1000);
  }
  EXPECT_EQ(outcomes_.errors.size(), 1100u);
  for (const Error& error : outcomes_.errors) EXPECT_NE(error.code, ErrorCode::kCommitUnknown);
  EXPECT_EQ(connection_->counters().server_messages, 1024u);
}

TEST_F(Rpc, RepliesWaitForRoomInTheSendQueue) {
  connect(options_of(2000));
  hold_everything();
  start_calls(1500, 8);
  for (int i = 0; i < 500 && server_.held.size() < 1500; ++i) both();
  ASSERT_EQ(server_.held.size(), 1500u);
  for (RpcCall& call : server_.held) call.reply(call.request());
  server_.held.clear();
  for (int i = 0; i < 10; ++i) server_executor_.run_once();  // the client sleeps
  EXPECT_EQ(server_.peer->calls_in_progress(), 1500u - 1024u);
  for (int i = 0; i < 500 && outcomes_.good < 1500; ++i) both(1, 1000);
  EXPECT_EQ(outcomes_.good, 1500u);
  EXPECT_EQ(server_.peer->calls_in_progress(), 0u);
}

TEST_F(Rpc, AClientThatTakesNoRepliesIsDropped) {
  server_options_.call_timeout_ns = 5'000'000'000;
  connect(options_of(2000));
  hold_everything();
  start_calls(1100, 8);
  for (int i = 0; i < 500 && server_.held.size() < 1100; ++i) both();
  for (RpcCall& call : server_.held) call.reply(call.request());
  for (int i = 0; i < 10'000 && server_.gone.empty(); ++i) {
    server_executor_.run_once();
    clock_.advance_to(clock_.now_ns() + 1'000'000);
  }
  ASSERT_EQ(server_.gone.size(), 1u);
  EXPECT_EQ(server_.gone[0].code, ErrorCode::kTimeout);
}

TEST_F(Rpc, ACallTimesOutWithinAQuarterOfTheTimeout) {
  connect(options_of(16));
  hold_everything();
  const uint64_t before = clock_.now_ns();
  start_calls(1, 8);
  while (outcomes_.errors.empty() && clock_.now_ns() - before < 10'000'000) both(1, 1000);
  ASSERT_EQ(outcomes_.errors.size(), 1u);
  EXPECT_EQ(outcomes_.errors[0].code, ErrorCode::kTimeout);
  EXPECT_GE(clock_.now_ns() - before, 1'000'000u);
  EXPECT_LE(clock_.now_ns() - before, 1'260'000u);
  EXPECT_TRUE(client_->failed());
  // The late answer is ignored, and nothing more is sent.
  server_.held[0].reply({});
  both(3);
  start_calls(1, 8);
  both(3);
  EXPECT_EQ(outcomes_.errors.size(), 2u);
  EXPECT_EQ(connection_->counters().server_messages, 1u);
}

TEST_F(Rpc, EachChangeOfTheNoticeIsToldOnceWithTheReplyThatShowsIt) {
  connect(options_of(16));
  int told = 0;
  client_->on_notice([&] { ++told; });
  const auto call_once = [&] {
    start_calls(1, 8);
    both(5);
  };
  call_once();
  EXPECT_EQ(told, 0);
  server_.peer->set_notice(7);
  both(5);
  EXPECT_EQ(told, 0) << "there was no reply";
  call_once();
  call_once();
  EXPECT_EQ(told, 1);
  server_.peer->set_notice(8);
  server_.peer->set_notice(9);
  call_once();
  EXPECT_EQ(told, 2);
  EXPECT_EQ(outcomes_.good, 4u);
}

TEST_F(Rpc, OthersMayStillBeAnsweredAfterATimeout) {
  connect(options_of(16));
  hold_everything();
  start_calls(1, 8);
  both(500, 1000);
  start_calls(1, 8);
  while (outcomes_.errors.empty()) both(1, 1000);
  ASSERT_EQ(server_.held.size(), 2u);
  server_.held[1].reply(server_.held[1].request());
  both(3);
  EXPECT_EQ(outcomes_.good, 1u);
}

TEST_F(Rpc, NoRoomInTimeIsATimeoutThatLeavesTheConnectionUsable) {
  connect(options_of(1));
  auto keep = [](RpcClient& client, RpcReply& to) -> base::Task<void> {
    auto reply = co_await client.call(1, {}, 8);
    EXPECT_TRUE(reply);
    if (reply) to = std::move(*reply);
  };
  RpcReply kept;  // occupies the only slot
  client_executor_.spawn(keep(*client_, kept));
  both(5);
  start_calls(3, 8);
  both(3000, 1000);
  ASSERT_EQ(outcomes_.errors.size(), 3u);
  for (const Error& error : outcomes_.errors) EXPECT_EQ(error.code, ErrorCode::kTimeout);
  EXPECT_FALSE(client_->failed());
  kept = RpcReply();
  start_calls(3, 8);
  both(20);
  EXPECT_EQ(outcomes_.good, 3u);
}

TEST_F(Rpc, ADestroyedCallerLeavesNoTrace) {
  connect(options_of(1));
  hold_everything();
  {
    auto sent = one_call(*client_, outcomes_, 1, 8);
    sent.start();
    auto queued = one_call(*client_, outcomes_, 1, 8);
    queued.start();
    both(3);
    EXPECT_EQ(server_.held.size(), 1u);
  }  // one was waiting for its answer, the other for room
  server_.held[0].reply({});
  server_.held.clear();
  both(3);
  {
    auto sent = one_call(*client_, outcomes_, 1, 8);
    sent.start();
    auto granted = one_call(*client_, outcomes_, 1, 8);
    granted.start();
    both(3);
    ASSERT_EQ(server_.held.size(), 1u);
    server_.held[0].reply(server_.held[0].request());
    server_executor_.run_once();
    dynamic_cast<base::Poller&>(*client_device_).poll();
  }  // the second has been sent, and is not answered
  server_.held.clear();
  server_.serve = [](RpcPeer&, RpcCall call) { call.reply(call.request()); };
  const uint64_t good = outcomes_.good;
  start_calls(2, 8);
  both(10);
  EXPECT_EQ(outcomes_.good, good + 2);
  EXPECT_TRUE(outcomes_.errors.empty());
}

TEST_F(Rpc, AReplyMayOutliveItsClient) {
  connect(options_of(4));
  auto keep = [](RpcClient& client, RpcReply& to) -> base::Task<void> {
    auto reply = co_await client.call(1, {}, 8);
    if (reply) to = std::move(*reply);
  };
  RpcReply kept;
  client_executor_.spawn(keep(*client_, kept));
  both(5);
  connection_.reset();
  client_.reset();
}

TEST_F(Rpc, AHandlerMayOutliveItsPeer) {
  connect(options_of(4));
  hold_everything();
  start_calls(2, 100);
  both(3);
  ASSERT_EQ(server_.held.size(), 2u);
  EXPECT_EQ(server_.peer->calls_in_progress(), 2u);
  server_.peer.reset();
  EXPECT_EQ(server_.held[0].peer(), nullptr);
  EXPECT_EQ(server_.held[0].request()[99], std::byte{0x77}) << "still readable";
  server_.held[0].reply(server_.held[0].request());
  server_.held.clear();
  both(5);
  EXPECT_EQ(outcomes_.errors.size(), 2u);
}

TEST_F(Rpc, LosingTheConnectionAtEveryRequestFailsTheCallsAndNothingElse) {
  bool fired = true;
  for (uint64_t n = 1; fired; ++n) {
    for (const Fault fault : {Fault::kBreakBefore, Fault::kBreakAfter}) {
      server_.peer.reset();
      connect(options_of(4));
      outcomes_ = {};
      FailNthRequest fail(n, FaultSide::kBoth, {fault, 0});
      ScopedFaultInjector installed(fail);
      start_calls(6, 64);
      both(30);
      EXPECT_EQ(outcomes_.good + outcomes_.errors.size(), 6u) << "request " << n;
      for (const Error& error : outcomes_.errors) EXPECT_EQ(error.code, ErrorCode::kDisconnected);
      fired = fail.fired();
      if (fired && fault == Fault::kBreakBefore) {
        EXPECT_FALSE(outcomes_.errors.empty()) << "request " << n;
      }
      EXPECT_EQ(client_->failed(), fired);
      connection_.reset();
      client_.reset();
    }
  }
}

TEST_F(Rpc, AMalformedReplyFailsTheClientOnly) {
  struct Bad {
    uint32_t magic, total;
    uint16_t slot, generation, status;
    uint32_t immediate;
  };
  // The only call has slot 0 and generation 1.
  const uint32_t right = rpc_reply_immediate(0, 1);
  const Bad cases[] = {
      {kRpcReplyMagic + 1, 16, 0, 1, 0, right},
      {kRpcReplyMagic, 15, 0, 1, 0, right},
      {kRpcReplyMagic, 16 + 65, 0, 1, 0, right},
      {kRpcReplyMagic, UINT32_MAX, 0, 1, 0, right},
      {kRpcReplyMagic, 16 + 241, 0, 1, 5, right},
      {kRpcReplyMagic, 16, 1, 1, 0, right},
      {kRpcReplyMagic, 16, 0, 2, 0, right},
      {kRpcReplyMagic, 16, 0, 1, kRpcMaxStatus + 1, right},
      {kRpcReplyMagic, 16, 0, 1, 0, rpc_reply_immediate(0, 2)},
      {kRpcReplyMagic, 16, 0, 1, 0, rpc_reply_immediate(1, 1)},
      {kRpcReplyMagic, 16, 0, 1, 0, rpc_reply_immediate(0xffff, 1)},
  };
  for (const Bad& bad : cases) {
    server_.peer.reset();
    connect(options_of(4));
    outcomes_ = {};
    hold_everything();
    start_calls(1, 64);
    both(3);
    Memory from(*server_device_, 64, Access::kLocal);
    const RpcReplyHeader header{bad.magic, bad.total, bad.slot, bad.generation, bad.status, 0};
    std::memcpy(from.bytes.data(), &header, sizeof(header));
    Batch batch;
    batch.write_immediate(from.at(0, 16), client_->reply_region().at(0), bad.immediate);
    ASSERT_TRUE(server_.peer->connection()->post(batch, nullptr));
    both(3);
    ASSERT_EQ(outcomes_.errors.size(), 1u);
    EXPECT_EQ(outcomes_.errors[0].code, ErrorCode::kDisconnected);
    EXPECT_NE(outcomes_.errors[0].message.find("malformed"), std::string::npos);
    EXPECT_TRUE(client_->failed());
    server_.held.clear();
    connection_.reset();
    client_.reset();
  }
}

TEST_F(Rpc, AnErrorMessageIsOnePrintableLine) {
  connect(options_of(4));
  server_.serve = [](RpcPeer&, RpcCall call) {
    call.reply_error(make_error(ErrorCode::kFull, "two\nlines \x1b[31m" + std::string(400, 'x')));
  };
  start_calls(1, 8);
  both(5);
  ASSERT_EQ(outcomes_.errors.size(), 1u);
  EXPECT_EQ(outcomes_.errors[0].code, ErrorCode::kFull);
  EXPECT_TRUE(outcomes_.errors[0].message.starts_with("two?lines ?[31mxxx"));
  EXPECT_EQ(outcomes_.errors[0].message.size(), kRpcErrorRoom);
}

// Pages that are given back are zeros when they are looked at again.
TEST_F(Rpc, AnIdlePeerGivesBackTheRingsOfLargeRequests) {
  constexpr size_t kLargeBytes = 200'000;
  connect(options_of(4));
  std::span<const std::byte> request;
  server_.serve = [&](RpcPeer&, RpcCall call) {
    request = call.request();
    server_.held.push_back(std::move(call));
  };
  start_calls(1, kLargeBytes);
  both(5);
  ASSERT_EQ(request.size(), kLargeBytes);
  server_.peer->on_idle();
  EXPECT_EQ(request.back(), std::byte{0x77}) << "it is not answered yet";
  server_.held[0].reply(server_.held[0].request());
  server_.held.clear();
  both(5);
  EXPECT_EQ(outcomes_.good, 1u);
  server_.peer->on_idle();
  EXPECT_EQ(request[kLargeBytes / 2], std::byte{0});
  EXPECT_EQ(request.front(), std::byte{0x77}) << "the first page stays";
  start_calls(1, kLargeBytes);
  both(5);
  EXPECT_EQ(request.back(), std::byte{0x77});
  server_.held[0].reply(server_.held[0].request());
  server_.held.clear();
  both(5);
  EXPECT_EQ(outcomes_.good, 2u);
}

}  // namespace
}  // namespace pmstore::fabric
