// LogService: sessions. Producers are in log_service_producer_test.cc.
#include <sys/mman.h>

#include <deque>

#include "tests/harness/unnoticing_devices.h"
#include "tests/unit/log/log_service_fixture.h"

namespace pmstore::log {
namespace {

TEST_F(LogServiceTest, CreateOpenListSealDelete) {
  auto client = session();
  const uint64_t a = create(*client, "a");
  const uint64_t b = create(*client, "b");
  EXPECT_NE(a, b);
  EXPECT_EQ(call(*client, LogMethod::kCreate, create_request("a")).code(),
            ErrorCode::kAlreadyExists);
  const LogReply opened = open(*client, "b");
  EXPECT_EQ(opened.id, b);
  EXPECT_EQ(opened.region_bytes, kTestLog + kRingHeaderBytes);
  EXPECT_EQ(opened.next_index, 1u);
  const auto listed = call(*client, LogMethod::kList, as_bytes(ListRequest{0, 64 << 10}));
  ASSERT_TRUE(listed);
  EXPECT_EQ(listed->size(), sizeof(ListReply) + 2 * (sizeof(LogReply) + 1));
  ASSERT_TRUE(call(*client, LogMethod::kSeal, as_bytes(LogRequest{a})));
  EXPECT_EQ(append(*client, a, {"x"}).code(), ErrorCode::kSealed);
  ASSERT_TRUE(call(*client, LogMethod::kDelete, as_bytes(LogRequest{a})));
  EXPECT_EQ(call(*client, LogMethod::kDelete, as_bytes(LogRequest{a})).code(),
            ErrorCode::kNotFound);
  EXPECT_FALSE(broken(*client));
}

TEST_F(LogServiceTest, ListComesInPages) {
  auto client = session();
  for (const char* name : {"a", "b", "c", "d", "e"}) create(*client, name);
  uint32_t from = 0;
  std::string names;
  for (int pages = 0; pages < 10; ++pages) {
    const auto bytes =
        call(*client, LogMethod::kList, as_bytes(ListRequest{from, sizeof(ListReply) + 2 * 81}));
    ASSERT_TRUE(bytes);
    fabric::MessageReader reader(*bytes);
    const auto page = reader.get<ListReply>();
    EXPECT_LE(page.count, 2u);
    for (uint32_t i = 0; i < page.count; ++i) {
      names += reader.get_bytes(reader.get<LogReply>().name_bytes);
    }
    EXPECT_TRUE(reader.complete());
    from = page.next;
    if (from == 0) break;
  }
  EXPECT_EQ(names, "abcde");
  EXPECT_EQ(call(*client, LogMethod::kList, as_bytes(ListRequest{0, 20})).code(),
            ErrorCode::kTooLarge);
}

TEST_F(LogServiceTest, SharedAppendIsPublishedWhenItIsAnswered) {
  auto client = session();
  const uint64_t log = create(*client, "a");
  const auto first = append(*client, log, {"one"});
  ASSERT_TRUE(first) << first.error().to_string();
  EXPECT_EQ(first->first.index, 1u);
  const auto more = append(*client, log, {"two", "three"});
  ASSERT_TRUE(more);
  EXPECT_EQ(more->first.lsn, first->last.next_lsn);
  EXPECT_EQ(more->last.index, 3u);
  EXPECT_EQ(open(*client, "a").tail_lsn, more->last.next_lsn);
  EXPECT_EQ(entries_of(host_->store(), "a"),
            (std::vector<TestEntry>{{1, "one"}, {2, "two"}, {3, "three"}}));
}

TEST_F(LogServiceTest, AppendsThatArriveTogetherShareOneDrain) {
  std::vector<std::unique_ptr<Client>> clients;
  for (uint64_t i = 1; i <= 4; ++i) clients.push_back(session(i));
  const uint64_t log = create(*clients[0], "a");
  const auto before = pool_.pool().memory().stats();
  struct Outcome {
    int good = 0;
  } outcome;
  const auto one = [](Client& client, std::vector<std::byte> request, Outcome& out) -> Task<void> {
    auto reply = co_await client.rpc->call(static_cast<uint16_t>(LogMethod::kAppend),
                                           with_prefix(client, request), 256);
    out.good += reply.has_value();
  };
  for (int i = 0; i < 32; ++i) {
    executor_.spawn(one(*clients[i % 4], append_request(log, {"entry"}), outcome));
  }
  let_time_pass(1);
  EXPECT_EQ(outcome.good, 32);
  EXPECT_EQ(counters().shared_appends, 32u);
  EXPECT_LE(counters().group_commits, 2u);
  EXPECT_EQ(pool_.pool().memory().stats().drains - before.drains, counters().group_commits);
  const auto entries = entries_of(host_->store(), "a");
  ASSERT_EQ(entries.size(), 32u);
  for (size_t i = 0; i < entries.size(); ++i) EXPECT_EQ(entries[i].index, i + 1);
}

class LogServiceOnAFile : public LogServiceTest {
 protected:
  LogServiceOnAFile() : LogServiceTest(persist::Domain::kNone) {
    options_.host.observer = &observer_;
  }
  void TearDown() override { host_.reset(); }

  class Failures final : public SessionObserver {
   public:
    void on_session(const SessionName&) override {}
    void on_refused(const SessionName&, const Error&) override {}
    void on_ended(const SessionName&, SessionEnd) override {}
    void on_failure(const Error&) override { ++count; }
    int count = 0;
  };
  Failures observer_;
};

TEST_F(LogServiceOnAFile, SharedAppendIsNotAcknowledgedWhenAPageIsLost) {
  const auto client = session();
  const uint64_t log = create(*client, "a");
  ASSERT_TRUE(append(*client, log, {"kept"}));
  // msync of a hole in the address space is ENOMEM.
  std::byte* const lost = pool_.bytes().data() + pool_.bytes().size() - 4096;
  pool_.pool().memory().flush(lost, 1);
  ASSERT_EQ(munmap(lost, 4096), 0);
  EXPECT_EQ(observer_.count, 0);
  EXPECT_EQ(append(*client, log, {"lost"}).code(), ErrorCode::kIo);
  EXPECT_EQ(observer_.count, 1) << "the service of the pool has ended";
  EXPECT_EQ(open(*client, "a").next_index, 2u);
  ASSERT_NE(
      mmap(lost, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
      MAP_FAILED);
}

TEST_F(LogServiceOnAFile, ASealThatIsNotDurableEndsTheServiceOfThePool) {
  const auto client = session();
  const uint64_t log = create(*client, "a");
  std::byte* const lost = pool_.bytes().data() + pool_.bytes().size() - 4096;
  pool_.pool().memory().flush(lost, 1);
  ASSERT_EQ(munmap(lost, 4096), 0);
  EXPECT_EQ(observer_.count, 0);
  EXPECT_EQ(call(*client, LogMethod::kSeal, as_bytes(LogRequest{log})).code(), ErrorCode::kIo);
  EXPECT_EQ(observer_.count, 1);
  ASSERT_NE(
      mmap(lost, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
      MAP_FAILED);
}

TEST_F(LogServiceTest, TrimByEntryAndByIndex) {
  auto client = session();
  const uint64_t log = create(*client, "a");
  const auto range = append(*client, log, {"one", "two", "three"});
  ASSERT_TRUE(range);
  EXPECT_EQ(call(*client, LogMethod::kTrim, as_bytes(TrimRequest{log, 8, 0})).code(),
            ErrorCode::kInvalidArgument);
  ASSERT_TRUE(call(*client, LogMethod::kTrim, as_bytes(TrimRequest{log, 0, 2})));
  EXPECT_EQ(entries_of(host_->store(), "a").size(), 2u);
  ASSERT_TRUE(call(*client, LogMethod::kTrim, as_bytes(TrimRequest{log, range->last.next_lsn, 0})));
  EXPECT_TRUE(entries_of(host_->store(), "a").empty());
  EXPECT_EQ(open(*client, "a").start_lsn, range->last.next_lsn);
}

TEST_F(LogServiceTest, SessionsAreBounded) {
  std::vector<std::unique_ptr<Client>> clients;
  for (uint64_t i = 1; i <= 4; ++i) clients.push_back(session(i));
  EXPECT_EQ(try_session(9).code(), ErrorCode::kBackPressure);
  clients.pop_back();
  let_time_pass(1);
  EXPECT_TRUE(try_session(9));
}

// It holds nothing, and its end would be noticed.
TEST_F(LogServiceTest, SilentSessionStays) {
  auto silent = session(1);
  auto busy = session(2);
  EXPECT_EQ(silent->link->welcome().lease_ms, 0u);
  for (int i = 0; i < 20; ++i) {
    let_time_pass(kLeaseMs / 5);
    ASSERT_TRUE(call(*busy, service::kPingMethod, {}));
  }
  let_time_pass(1000 * kLeaseMs);
  EXPECT_TRUE(call(*silent, service::kPingMethod, {}));
}

class OnAnUnnoticingFabric : public LogServiceTest {
 protected:
  void SetUp() override {
    options_.host.devices = &devices_;
    LogServiceTest::SetUp();
  }
  void TearDown() override { host_.reset(); }
  harness::UnnoticingDevices devices_;
};

TEST_F(OnAnUnnoticingFabric, SilentSessionIsEnded) {
  auto silent = session(1);
  auto alive = session(2);
  for (int i = 0; i < 10; ++i) {
    let_time_pass(kLeaseMs / 5);
    ASSERT_TRUE(call(*alive, service::kPingMethod, {}));
  }
  EXPECT_TRUE(silent->connection->broken());
  EXPECT_FALSE(alive->connection->broken());
}

TEST_F(LogServiceTest, SessionOfAClientThatComesBackEndsTheOneBefore) {
  const auto hello = as_bytes(SessionHello{77});
  const auto first = std::move(*try_session(1, hello));
  const auto another = session(1);
  const auto again = std::move(*try_session(1, hello));
  EXPECT_TRUE(broken(*first)) << "an append of it could still arrive";
  EXPECT_FALSE(broken(*another)) << "another program of the same client";
  EXPECT_FALSE(broken(*again));
  const auto stranger = std::move(*try_session(2, hello));
  EXPECT_FALSE(broken(*again));
}

TEST_F(LogServiceTest, ForeignHellosAreRefused) {
  EXPECT_EQ(try_session(1, {std::byte{0}}).code(), ErrorCode::kProtocol);
  const uint64_t log = create(*session(), "a");
  const ProducerHello good{log, 1, Takeover::kIfFree, {}};
  ProducerHello other = good;
  other.takeover = static_cast<Takeover>(2);
  EXPECT_EQ(producer(1, other).code(), ErrorCode::kProtocol);
  other = good;
  other.padding[6] = 1;
  EXPECT_EQ(producer(1, other).code(), ErrorCode::kProtocol);
  for (const size_t bytes : {sizeof good - 1, sizeof good + 1}) {
    auto resized = as_bytes(good);
    resized.resize(bytes);
    EXPECT_EQ(connect(1, service::ServiceId::kProducer, resized, &Client::producer).code(),
              ErrorCode::kProtocol);
  }
  EXPECT_TRUE(producer(1, good));
  const auto other_service = connect(1, service::ServiceId::kStore, {}, &Client::session);
  EXPECT_EQ(other_service.error().message, "only logs are served here: start pmstored for tables");
}

TEST_F(LogServiceTest, RequestOfAnotherEpochIsRefused) {
  const auto client = session();
  const uint64_t log = create(*client, "a");
  const auto first = producer(7, log);
  const auto kAppend = static_cast<uint16_t>(LogMethod::kAppend);
  auto request = with_prefix(*client, append_request(log, {"of a server before"}));
  request[0] ^= std::byte{1};
  EXPECT_EQ(call_raw(*client, kAppend, request).code(), ErrorCode::kDisconnected);
  auto room = with_prefix(**first, as_bytes(MakeRoomRequest{64}));
  room[0] ^= std::byte{1};
  EXPECT_EQ(call_raw(**first, static_cast<uint16_t>(LogMethod::kMakeRoom), room).code(),
            ErrorCode::kDisconnected);
  EXPECT_EQ(open(*client, "a").next_index, 1u);
  EXPECT_FALSE(broken(*client));
}

TEST_F(LogServiceTest, MalformedRequestsCostTheConnectionAndNothingElse) {
  auto good = session(1);
  const uint64_t log = create(*good, "a");
  ASSERT_TRUE(append(*good, log, {"safe"}));
  std::deque<std::pair<LogMethod, std::vector<std::byte>>> bad;
  bad.emplace_back(static_cast<LogMethod>(0x0299), std::vector<std::byte>{});
  bad.emplace_back(LogMethod{service::kPingMethod}, std::vector<std::byte>(1));
  bad.emplace_back(LogMethod::kCreate, std::vector<std::byte>(8));
  auto create_bad = create_request("b");
  create_bad.pop_back();
  bad.emplace_back(LogMethod::kCreate, create_bad);
  create_bad = create_request("b");
  create_bad[8] = std::byte{9};  // policy
  bad.emplace_back(LogMethod::kCreate, create_bad);
  bad.emplace_back(LogMethod::kOpen, std::vector<std::byte>(kMaxLogNameBytes + 1));
  bad.emplace_back(LogMethod::kList, std::vector<std::byte>(9));
  bad.emplace_back(LogMethod::kTrim, std::vector<std::byte>(7));
  bad.emplace_back(LogMethod::kSeal, std::vector<std::byte>(7));
  bad.emplace_back(LogMethod::kDelete, std::vector<std::byte>(16));
  bad.emplace_back(LogMethod::kMakeRoom, as_bytes(MakeRoomRequest{64}));  // not in a session
  bad.emplace_back(LogMethod::kAppend, as_bytes(AppendRequest{log, 1, 0, 0}));
  bad.emplace_back(LogMethod::kAppend, as_bytes(AppendRequest{log, 1, 1, 0}));
  bad.emplace_back(LogMethod::kAppend, as_bytes(AppendRequest{log, 1, kMaxBatchEntries + 1, 0}));
  auto append_bad = append_request(log, {"abc"});
  std::memset(append_bad.data() + offsetof(AppendRequest, number), 0, sizeof(uint64_t));
  bad.emplace_back(LogMethod::kAppend, append_bad);
  append_bad = append_request(log, {"abc"});
  append_bad.push_back(std::byte{0});
  bad.emplace_back(LogMethod::kAppend, append_bad);
  append_bad = append_request(log, {"abc"});
  append_bad.resize(append_bad.size() - 1);
  bad.emplace_back(LogMethod::kAppend, append_bad);
  const uint64_t before = counters().malformed;
  uint64_t sent = 0;
  for (auto& [method, bytes] : bad) {
    auto client = session(2);
    const auto reply = call(*client, method, bytes);
    EXPECT_FALSE(reply) << sent;
    EXPECT_TRUE(broken(*client)) << sent;
    EXPECT_EQ(counters().malformed, before + ++sent);
  }
  ASSERT_TRUE(append(*good, log, {"more"}));
  EXPECT_EQ(entries_of(host_->store(), "a").size(), 2u);
}

}  // namespace
}  // namespace pmstore::log
