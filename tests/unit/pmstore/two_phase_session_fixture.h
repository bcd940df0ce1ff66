// A coordinator that is driven by hand, at one of its servers.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "pmstore/client/client_session.h"
#include "pmstore/client/commit_message.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/layout/shard_record.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore::testing {

using internal::ClientSession;
using internal::CommitView;
using internal::CommitWrite;
using internal::CommitWrites;
using internal::SessionRef;
using nlohmann::json;

constexpr uint64_t kMs = 1'000'000;

class TwoPhaseSession : public ClientFixture {
 protected:
  void SetUp() override {
    ClientFixture::SetUp(LockDiscipline::kCpu);
    ASSERT_TRUE(run(client_->put(table_, "alice", "1")));
    coordinator_ = open_session(7);
    other_ = open_session(8);
  }
  void TearDown() override {
    coordinator_ = other_ = {};
    ClientFixture::TearDown();
  }
  SessionRef open_session(uint64_t number) {
    internal::SessionOptions options;
    options.secret = ClientSecret::of_number(number);
    options.call_timeout_ns = options.connect_timeout_ns = 1000 * kMs;
    auto opened =
        run(ClientSession::open(std::move(*fabric::open_device(fabric::Scheme::kLocal, executor_)),
                                std::make_shared<internal::SessionBook>(), uri_, options));
    PMSTORE_CHECK(opened.has_value(), opened ? "" : opened.error().message.c_str());
    return std::move(*opened);
  }
  TxId id(uint64_t number = 0) const {
    return {numbered::id_of(7), coordinator_->hello().next_sequence + number};
  }
  Result<fabric::RpcReply> send(const SessionRef& session, Method method,
                                const MessageWriter& request) {
    return run(session->rpc().call(static_cast<uint16_t>(method), request.message(), 4096));
  }
  Status lock(std::string_view key, uint64_t number = 0, uint16_t participants = 1) {
    std::array<std::byte, 512> room;
    MessageWriter request(room);
    RequestPrefix prefix = coordinator_->prefix();
    prefix.known_through = known_through_;
    request.put(prefix);
    request.put(LockRequest{participants, {}});
    request.put(ShardParticipant{99, {5, 6}, 7, 8, 0, 0, 0});
    const CommitWrite write{WriteKind::kPut, table_, 0, 0, key, "2"};
    put_commit(
        request,
        CommitView{
            id().client, id(number).sequence, {}, {}, CommitWrites(std::span(&write, 1)), 1});
    const auto answer = send(coordinator_, Method::kLock, request);
    return answer ? Status() : Status(answer.error());
  }
  Status prepare(uint64_t number = 0) {
    std::array<std::byte, 128> room;
    MessageWriter request(room);
    request.put(coordinator_->prefix());
    request.put(PrepareRequest{id(number).sequence, 0, 0});
    const auto answer = send(coordinator_, Method::kPrepare, request);
    return answer ? Status() : Status(answer.error());
  }
  Status decide(const SessionRef& session, Decision decision, uint64_t number = 0) {
    return decide(session, decision, id(number));
  }
  Status decide(const SessionRef& session, Decision decision, TxId name) {
    std::array<std::byte, 128> room;
    MessageWriter request(room);
    request.put(session->prefix());
    request.put(DecideRequest{name.client, name.sequence, decision, {}});
    const auto answer = send(session, Method::kDecide, request);
    return answer ? Status() : Status(answer.error());
  }
  Result<Vote> vote(TxId name) {
    std::array<std::byte, 128> room;
    MessageWriter request(room);
    request.put(other_->prefix());
    request.put(VoteRequest{name.client, name.sequence});
    const auto answer = send(other_, Method::kVote, request);
    if (!answer) return answer.error();
    MessageReader reader(answer->bytes());
    return reader.get<VoteReply>().vote;
  }
  size_t listed() {
    std::array<std::byte, 128> room;
    MessageWriter request(room);
    request.put(other_->prefix());
    request.put(UndecidedRequest{});
    const auto answer = send(other_, Method::kUndecided, request);
    EXPECT_TRUE(answer);
    MessageReader reader(answer->bytes());
    const auto reply = reader.get<UndecidedReply>();
    for (uint32_t i = 0; i < reply.count; ++i) {
      EXPECT_EQ(reader.get<UndecidedItem>().participants, 1u);
      EXPECT_EQ(reader.get<ShardParticipant>().name(), (TxId{{5, 6}, 7}));
    }
    EXPECT_TRUE(reader.complete());
    return reply.count;
  }
  json two_phase() const { return json::parse(server_->stat_json()).at("two_phase"); }
  std::string alice() {
    const auto found = run(client_->get(table_, "alice"));
    return found ? *found : found.error().to_string().substr(0, 8);
  }

  SessionRef coordinator_;
  SessionRef other_;
  uint64_t known_through_ = 0;
};

}  // namespace pmstore::testing
