// Gets that wait together at a server: their memory is asked for before the first is answered, and
// nothing else is different.
#include "pmstore/server/expected_reads.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "pmstore/client/client_session.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore {
namespace {

using internal::ClientSession;
using internal::ExpectedReads;
using internal::SessionRef;
using nlohmann::json;

class ExpectedReadsTest : public testing::ClientFixture {
 protected:
  void SetUp() override {
    client_options_.one_sided_reads = false;
    ClientFixture::SetUp(LockDiscipline::kCpu);
  }
  void put(std::string_view key, std::string_view value) {
    ASSERT_TRUE(run(client_->put(table_, key, value)));
  }
  // They reach the server in one turn.
  std::vector<Result<std::string>> get_together(TableId table,
                                                const std::vector<std::string>& keys) {
    std::vector<Task<Result<std::string>>> gets;
    for (const std::string& key : keys) gets.push_back(client_->get(table, key));
    for (auto& get : gets) get.start();
    std::vector<Result<std::string>> all;
    for (auto& get : gets) all.push_back(finish(std::move(get)));
    return all;
  }
  // A session whose requests the test writes.
  SessionRef open_by_hand() {
    internal::SessionOptions options;
    options.secret = ClientSecret::of_number(7);
    auto opened =
        run(ClientSession::open(std::move(*fabric::open_device(fabric::Scheme::kLocal, executor_)),
                                std::make_shared<internal::SessionBook>(), uri_, options));
    EXPECT_TRUE(opened);
    return opened ? std::move(*opened) : SessionRef{};
  }
  // Well-formed where `key_bytes` are 5.
  std::vector<std::byte> get_of_alice(const ClientSession& session, uint16_t key_bytes) {
    std::vector<std::byte> room(64);
    MessageWriter writer(room);
    writer.put(session.prefix());
    writer.put(GetRequest{raw(table_), key_bytes, {}});
    writer.put_bytes("alice");
    room.resize(writer.bytes());
    return room;
  }
  uint64_t count(const char* name) const { return json::parse(server_->stat_json()).at(name); }
  uint64_t expected() const { return count("gets_expected"); }
};

TEST_F(ExpectedReadsTest, GetsThatWaitTogetherAreExpected) {
  constexpr size_t kMany = ExpectedReads::kMost + 4;
  std::vector<std::string> keys;
  for (size_t i = 0; i < kMany; ++i) {
    keys.push_back("key" + std::to_string(i));
    put(keys.back(), std::string(i * 150, 'v'));  // in several size classes
  }
  const auto got = get_together(table_, keys);
  for (size_t i = 0; i < kMany; ++i) EXPECT_EQ(got[i], std::string(i * 150, 'v'));
  EXPECT_EQ(expected(), kMany);
  EXPECT_EQ(count("gets"), kMany);
}

TEST_F(ExpectedReadsTest, AGetAloneIsNot) {
  put("alice", "1");
  EXPECT_EQ(run(client_->get(table_, "alice")), "1");
  EXPECT_EQ(run(client_->get(table_, "absent")).code(), ErrorCode::kNotFound);
  EXPECT_EQ(count("gets"), 2u);
  EXPECT_EQ(expected(), 0u);
}

TEST_F(ExpectedReadsTest, AKeyThatIsNotThereIsExpectedToo) {
  put("alice", "1");
  const auto got = get_together(table_, {"absent", "alice"});
  EXPECT_EQ(got[0].code(), ErrorCode::kNotFound);
  EXPECT_EQ(got[1], "1");
  EXPECT_EQ(expected(), 2u);
}

TEST_F(ExpectedReadsTest, KeysOfAnOrderedTableAreNot) {
  const TableId ordered = *run(client_->create_table("o", TableKind::kOrdered));
  ASSERT_TRUE(run(client_->put(ordered, "alice", "1")));
  const auto got = get_together(ordered, {"alice", "bob"});
  EXPECT_EQ(got[0], "1");
  EXPECT_EQ(got[1].code(), ErrorCode::kNotFound);
  EXPECT_EQ(count("gets"), 2u);
  EXPECT_EQ(expected(), 0u);
}

TEST_F(ExpectedReadsTest, WhatChangesBeforeTheirTurnIsSeen) {
  put("alice", "1");
  put("bob", "1");
  auto erased = client_->erase(table_, "alice");
  const std::string large(5000, 'b');
  auto moved = client_->put(table_, "bob", large);
  erased.start();
  moved.start();
  const auto got = get_together(table_, {"alice", "bob"});
  EXPECT_TRUE(finish(std::move(erased)));
  EXPECT_TRUE(finish(std::move(moved)));
  EXPECT_EQ(expected(), 2u) << "they waited behind the changes";
  EXPECT_EQ(got[0].code(), ErrorCode::kNotFound);
  EXPECT_EQ(got[1], large);
}

// Gets that were expected, and whose session has ended before their turn.
TEST_F(ExpectedReadsTest, AMalformedRequestThatWaitsIsRefusedInItsTurn) {
  put("alice", "1");
  const SessionRef session = open_by_hand();
  ASSERT_TRUE(session);
  const auto method = static_cast<uint16_t>(Method::kGet);
  const std::vector<std::byte> good = get_of_alice(*session, 5);
  const std::vector<std::byte> bad = get_of_alice(*session, 6);
  std::vector<Task<Result<fabric::RpcReply>>> calls;
  for (const auto* each : {&good, &bad, &good}) {
    calls.push_back(session->rpc().call(method, *each, 256));
  }
  for (auto& call : calls) call.start();
  const auto first = finish(std::move(calls[0]));
  ASSERT_TRUE(first) << first.error().to_string();
  EXPECT_EQ(finish(std::move(calls[1])).code(), ErrorCode::kProtocol);
  EXPECT_FALSE(finish(std::move(calls[2])));
  EXPECT_EQ(expected(), 2u) << "the first and the third";
  EXPECT_EQ(count("gets"), 1u);
  EXPECT_EQ(count("malformed"), 1u);
  EXPECT_EQ(run(client_->get(table_, "alice")), "1") << "others are served";
}

// More of those than wait together.
TEST_F(ExpectedReadsTest, ThoseOfASessionThatEndedLeaveRoomForOthers) {
  put("alice", "1");
  const SessionRef session = open_by_hand();
  ASSERT_TRUE(session);
  const std::vector<std::byte> good = get_of_alice(*session, 5);
  const std::vector<std::byte> bad = get_of_alice(*session, 6);
  std::vector<Task<Result<fabric::RpcReply>>> calls;
  for (size_t i = 0; i < fabric::kToldTogether; ++i) {
    calls.push_back(
        session->rpc().call(static_cast<uint16_t>(Method::kGet), i == 0 ? bad : good, 256));
  }
  for (auto& call : calls) call.start();
  for (auto& call : calls) EXPECT_FALSE(finish(std::move(call)));
  EXPECT_EQ(expected(), fabric::kToldTogether - 1);
  const auto got = get_together(table_, {"alice", "alice", "absent"});
  EXPECT_EQ(got[0], "1");
  EXPECT_EQ(got[1], "1");
  EXPECT_EQ(got[2].code(), ErrorCode::kNotFound);
  EXPECT_EQ(expected(), fabric::kToldTogether - 1 + 3);
}

// It may look like a get.
TEST_F(ExpectedReadsTest, ARequestOfAnotherMethodIsNot) {
  put("alice", "1");
  const SessionRef session = open_by_hand();
  ASSERT_TRUE(session);
  const std::vector<std::byte> get = get_of_alice(*session, 5);
  auto first = session->rpc().call(static_cast<uint16_t>(Method::kGet), get, 256);
  auto second = session->rpc().call(static_cast<uint16_t>(Method::kReserve), get, 256);
  first.start();
  second.start();
  EXPECT_TRUE(finish(std::move(first)));
  EXPECT_EQ(finish(std::move(second)).code(), ErrorCode::kUnsupported) << "lock discipline cpu";
  EXPECT_EQ(expected(), 1u);
}

}  // namespace
}  // namespace pmstore
