// The handshake, losing the connection, the lease, the end.
#include <algorithm>

#include "pmstore/layout/lock_list_layout.h"
#include "tests/unit/pmstore/client_fixture.h"

namespace pmstore {
namespace {

class ClientSession : public testing::FakeServerFixture {};

TEST_F(ClientSession, HelloNamesTheClientAndWhereRepliesGo) {
  options_.secret = ClientSecret::of_number(42);
  options_.required_discipline = LockDiscipline::kCpu;
  connect();
  ASSERT_EQ(server_->hellos.size(), 1u);
  const auto& [head, hello] = server_->hellos[0];
  EXPECT_EQ(head.client, numbered::id_of(42));
  EXPECT_EQ(head.secret, ClientSecret::of_number(42));
  EXPECT_GT(head.reply_region.bytes, 0u);
  EXPECT_EQ(hello.required_discipline, 1);
  EXPECT_EQ(client_->session().epoch, 7u);
  EXPECT_EQ(client_->session().uri, server_->uri().to_string());
}

TEST_F(ClientSession, ClientsWithoutASecretGetDifferentOnes) {
  connect();
  const ClientId first = client_->id();
  connect();
  EXPECT_TRUE(first.is_somebody());
  EXPECT_NE(client_->id(), first);
}

TEST_F(ClientSession, AnotherProtocolVersionIsVersionMismatch) {
  server_->spoil_welcome = [](service::Welcome& welcome) { welcome.version = 99; };
  const auto connected = try_connect();
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.code(), ErrorCode::kVersionMismatch);
  EXPECT_NE(connected.error().message.find("99"), std::string::npos);
}

TEST_F(ClientSession, RefusalIsPassedOn) {
  server_->refuse = true;
  server_->refusal = make_error(ErrorCode::kVersionMismatch, "too old for me");
  const auto connected = try_connect();
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.code(), ErrorCode::kVersionMismatch);
  EXPECT_NE(connected.error().message.find("too old for me"), std::string::npos);
}

struct Flaw {
  const char* name;
  void (*spoil)(ServerHello&);
};
class FlawedHello : public ClientSession, public ::testing::WithParamInterface<Flaw> {};

TEST_P(FlawedHello, IsAProtocolError) {
  server_->spoil_hello = GetParam().spoil;
  const auto connected = try_connect();
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.code(), ErrorCode::kProtocol) << connected.error().to_string();
}

void as_rnic(ServerHello& hello) {
  hello.discipline = static_cast<uint8_t>(LockDiscipline::kRnic);
  hello.owner = 1;
}

INSTANTIATE_TEST_SUITE_P(
    Every, FlawedHello,
    ::testing::Values(
        Flaw{"Discipline", [](ServerHello& h) { h.discipline = 0; }},
        Flaw{"UnknownDiscipline", [](ServerHello& h) { h.discipline = 3; }},
        Flaw{"UnknownRules",
             [](ServerHello& h) { h.padding_off = persist::PaddingRules::kOffBits + 1; }},
        Flaw{"NoBuckets", [](ServerHello& h) { h.buckets.bytes = 0; }},
        Flaw{"TooFewBuckets",
             [](ServerHello& h) { h.buckets.bytes = h.bucket_count * sizeof(Bucket) - 8; }},
        Flaw{"CountOfNoBuckets", [](ServerHello& h) { h.bucket_count = 0; }},
        Flaw{"CountOfTooManyBuckets", [](ServerHello& h) { h.bucket_count = kMostBuckets + 1; }},
        Flaw{"TooFewWords", [](ServerHello& h) { h.words.bytes -= 8; }},
        Flaw{"RnicWithoutOwner",
             [](ServerHello& h) {
               as_rnic(h);
               h.owner = 0;
             }},
        Flaw{"RnicOwnerTooLarge",
             [](ServerHello& h) {
               as_rnic(h);
               h.owner = 0x8000;
             }}),
    [](const auto& flaw) { return flaw.param.name; });

struct RingFlaw {
  const char* name;
  void (*spoil)(RingReply&);
};
class FlawedRing : public ClientSession, public ::testing::WithParamInterface<RingFlaw> {};

TEST_P(FlawedRing, IsAProtocolErrorOfTheCommitThatNeedsIt) {
  server_->spoil_hello = as_rnic;
  connect();
  server_->answer = [](const testing::FakeServer::Request& request, fabric::RpcCall call) {
    ASSERT_EQ(request.method, Method::kRing);
    RingReply granted;
    granted.ring = {0x1000, 64 * 1024, 1};
    granted.lock_lists = {0x1000, kLockListsBytes, 1};
    GetParam().spoil(granted);
    call.reply(service::bytes_of(granted));
  };
  const Status put = run(client_->put(kTable, "a", "1"));
  EXPECT_EQ(put.code(), ErrorCode::kProtocol) << put.error().to_string();
}

INSTANTIATE_TEST_SUITE_P(
    Every, FlawedRing,
    ::testing::Values(RingFlaw{"FewLockLists", [](RingReply& r) { r.lock_lists.bytes -= 8; }},
                      RingFlaw{"Tiny", [](RingReply& r) { r.ring.bytes = 256; }},
                      RingFlaw{"TailBeforeStart", [](RingReply& r) { r.start_lsn = 512; }},
                      RingFlaw{"TailTooFar", [](RingReply& r) { r.tail_lsn = 1 << 20; }},
                      RingFlaw{"NumbersBeyondAll",
                               [](RingReply& r) { r.next_sequence = UINT64_MAX; }}),
    [](const auto& flaw) { return flaw.param.name; });

TEST_F(ClientSession, ShortHelloIsAProtocolError) {
  for (const size_t bytes : {size_t{0}, size_t{4}, size_t{8}, sizeof(service::Welcome) - 1,
                             sizeof(service::Welcome), server_->hello_bytes - 1}) {
    server_->hello_bytes = bytes;
    const auto connected = try_connect();
    ASSERT_FALSE(connected) << bytes;
    EXPECT_EQ(connected.code(), ErrorCode::kProtocol) << bytes;
  }
}

TEST_F(ClientSession, AnotherDisciplineThanRequiredIsUnsupported) {
  options_.required_discipline = LockDiscipline::kRnic;
  const auto connected = try_connect();
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.code(), ErrorCode::kUnsupported);
}

TEST_F(ClientSession, LostConnectionIsReplacedByTheNextOperation) {
  options_.secret = ClientSecret::of_number(42);
  connect();
  ASSERT_TRUE(put("a", "1"));
  server_->break_connections();
  let_time_pass(1000);
  ASSERT_TRUE(put("b", "2"));
  ASSERT_EQ(server_->hellos.size(), 2u);
  EXPECT_EQ(server_->hellos[1].first.client, numbered::id_of(42))
      << "so that the server finds what belongs to it";
  EXPECT_EQ(client_->session().reconnects, 1u);
}

TEST_F(ClientSession, SequencesGoOnAfterAReconnect) {
  server_->hello.next_sequence = 100;
  connect();
  ASSERT_TRUE(put("a", "1"));
  EXPECT_EQ(testing::DecodedCommit(server_->requests[0].body).counts.sequence, 100u);
  server_->break_connections();
  let_time_pass(1000);
  server_->hello.next_sequence = 7;  // nothing of this client was kept
  ASSERT_TRUE(put("a", "2"));
  EXPECT_EQ(testing::DecodedCommit(server_->requests[1].body).counts.sequence, 101u);
}

TEST_F(ClientSession, ServerThatNumbersFarBelowThisClientIsRefused) {
  server_->hello.next_sequence = uint64_t{10} << 32;
  connect();
  ASSERT_TRUE(put("a", "1"));
  server_->break_connections();
  let_time_pass(1000);
  server_->hello.next_sequence = uint64_t{9} << 32;  // an old copy of the pool
  EXPECT_EQ(put("a", "2").code(), ErrorCode::kProtocol);
  server_->hello.next_sequence = UINT64_MAX - 5;
  EXPECT_EQ(put("a", "2").code(), ErrorCode::kProtocol);
  server_->hello.next_sequence = uint64_t{11} << 32;
  EXPECT_TRUE(put("a", "2"));
}

TEST_F(ClientSession, ManyOperationsReconnectOnce) {
  connect();
  server_->break_connections();
  let_time_pass(1000);
  std::vector<Task<Status>> puts;
  for (int i = 0; i < 10; ++i) puts.push_back(client_->put(kTable, "key", "value"));
  for (auto& task : puts) task.start();
  let_time_pass(1'000'000);
  for (auto& task : puts) {
    ASSERT_TRUE(task.done());
    EXPECT_TRUE(task.take());
  }
  EXPECT_EQ(server_->hellos.size(), 2u);
}

TEST_F(ClientSession, WithoutAServerTheOperationFailsAtOnce) {
  connect();
  server_->stop_listening();
  server_->break_connections();
  let_time_pass(1000);
  const uint64_t before = clock_.now_ns();
  EXPECT_EQ(put("a", "1").code(), ErrorCode::kDisconnected);
  EXPECT_EQ(get("a").code(), ErrorCode::kDisconnected);
  EXPECT_EQ(clock_.now_ns(), before);
}

TEST_F(ClientSession, ReconnectTimeoutBoundsTheTrying) {
  options_.reconnect_timeout_ns = 3'000'000'000;
  connect();
  server_->stop_listening();
  server_->break_connections();
  let_time_pass(1000);
  const uint64_t before = clock_.now_ns();
  EXPECT_EQ(put("a", "1").code(), ErrorCode::kDisconnected);
  const uint64_t took_ns = clock_.now_ns() - before;
  EXPECT_GT(took_ns, 2'500'000'000u);
  EXPECT_LE(took_ns, 3'000'000'000u);
}

TEST_F(ClientSession, AServerThatIsStillResolvingIsAskedAgain) {
  connect();
  server_->break_connections();
  let_time_pass(1000);
  server_->refuse = true;
  server_->refusal = make_error(ErrorCode::kBackPressure, "still resolving");
  Task<Status> writing = client_->put(kTable, "a", "1");
  writing.start();
  let_time_pass(20'000'000);
  EXPECT_FALSE(writing.done());
  server_->refuse = false;
  let_time_pass(500'000'000);
  ASSERT_TRUE(writing.done());
  EXPECT_TRUE(writing.take());
}

TEST_F(ClientSession, LeaseIsKeptWhileNothingIsSent) {
  opens_table_ = false;
  server_->welcome.lease_ms = 3000;
  connect();
  let_time_pass(10'500'000'000);
  EXPECT_EQ(server_->count(Method::kPing), 10u);
  EXPECT_EQ(server_->requests[0].epoch, 7u);
}

TEST_F(ClientSession, RequestsKeepTheLeaseThemselves) {
  server_->welcome.lease_ms = 3000;
  connect();
  for (int i = 0; i < 20; ++i) {
    let_time_pass(500'000'000);
    ASSERT_TRUE(put("a", "1"));
  }
  EXPECT_EQ(server_->count(Method::kPing), 0u);
}

TEST_F(ClientSession, ClientGoesWhileItsPingIsUnanswered) {
  opens_table_ = false;
  server_->welcome.lease_ms = 3000;
  std::vector<fabric::RpcCall> kept;
  server_->answer = [&](const auto&, fabric::RpcCall call) { kept.push_back(std::move(call)); };
  connect();
  let_time_pass(1'100'000'000);
  ASSERT_EQ(kept.size(), 1u);
  client_.reset();
  kept.clear();
  let_time_pass(10'000'000'000);
}

TEST_F(ClientSession, OrderlyEndSaysGoodbye) {
  connect();
  ASSERT_TRUE(put("a", "1"));
  run(client_->close());
  EXPECT_EQ(server_->count(Method::kGoodbye), 1u);
  EXPECT_EQ(put("a", "1").code(), ErrorCode::kDisconnected);
  run(client_->close());
  EXPECT_EQ(server_->count(Method::kGoodbye), 1u);
}

TEST_F(ClientSession, NoGoodbyeWhileSomethingIsInDoubt) {
  connect();
  server_->answer = [&](const auto& request, fabric::RpcCall call) {
    if (request.method == Method::kCommit) return server_->break_connections();
    testing::FakeServer::answer_plainly(request, std::move(call));
  };
  ASSERT_EQ(put("a", "1").code(), ErrorCode::kCommitUnknown);
  EXPECT_EQ(get("a").code(), ErrorCode::kNotFound) << "reconnected";
  run(client_->close());
  EXPECT_EQ(server_->count(Method::kGoodbye), 0u) << "somebody may ask for the outcome";
}

TEST_F(ClientSession, CountersGoOnAfterAReconnect) {
  opens_table_ = false;
  connect();
  ASSERT_TRUE(put("a", "1"));
  server_->break_connections();
  let_time_pass(1000);
  ASSERT_TRUE(put("a", "1"));
  EXPECT_EQ(client_->counters().server_messages, 2u);
}

}  // namespace
}  // namespace pmstore
