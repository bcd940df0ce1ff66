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
    auto reply = co_await client.rpc->call(static_cast<uint16_t>(LogMethod::kAppend), request, 256);
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
  LogServiceOnAFile() : LogServiceTest(persist::Domain::kNone) {}
};

TEST_F(LogServiceOnAFile, SharedAppendIsNotAcknowledgedWhenAPageIsLost) {
  const auto client = session();
  const uint64_t log = create(*client, "a");
  ASSERT_TRUE(append(*client, log, {"kept"}));
  // msync of a hole in the address space is ENOMEM.
  std::byte* const lost = pool_.bytes().data() + pool_.bytes().size() - 4096;
  pool_.pool().memory().flush(lost, 1);
  ASSERT_EQ(munmap(lost, 4096), 0);
  EXPECT_EQ(append(*client, log, {"lost"}).code(), ErrorCode::kIo);
  EXPECT_EQ(open(*client, "a").next_index, 2u);
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
  LogHello hello;
  hello.client = 9;
  EXPECT_EQ(connect(hello).code(), ErrorCode::kBackPressure);
  clients.pop_back();
  let_time_pass(1);
  EXPECT_TRUE(connect(hello));
}

TEST_F(LogServiceTest, HellosThatNeverConnectKeepNoSessionOut) {
  const auto rpc = std::move(*fabric::RpcClient::create(*device_, {1 << 20, 1 << 20, 64}));
  LogHello hello;
  hello.client = 9;
  hello.reply_region = rpc->reply_region();
  const auto say_hello = [&](uint64_t token) {
    return host_->service().on_hello(0, token, as_bytes(hello));
  };
  constexpr uint64_t kFirst = 1'000'000;  // beyond those of the listener
  for (uint64_t token = kFirst; token < kFirst + 4; ++token) ASSERT_TRUE(say_hello(token));
  const auto first = session(1);
  ASSERT_NE(first, nullptr);
  EXPECT_FALSE(host_->service().has_handshake(0, kFirst)) << "the oldest gives way";
  EXPECT_TRUE(host_->service().has_handshake(0, kFirst + 1));
  // Those that are connected do not.
  const std::unique_ptr<Client> others[] = {session(2), session(3), session(4)};
  EXPECT_EQ(say_hello(kFirst + 4).code(), ErrorCode::kBackPressure);
  EXPECT_FALSE(first->connection->broken());
}

// It holds nothing, and its end would be noticed.
TEST_F(LogServiceTest, SilentSessionStays) {
  auto silent = session(1);
  auto busy = session(2);
  EXPECT_EQ(silent->session.lease_ms, 0u);
  for (int i = 0; i < 20; ++i) {
    let_time_pass(kLeaseMs / 5);
    ASSERT_TRUE(call(*busy, LogMethod::kPing, {}));
  }
  let_time_pass(1000 * kLeaseMs);
  EXPECT_TRUE(call(*silent, LogMethod::kPing, {}));
}

class OnAnUnnoticingFabric : public LogServiceTest {
 protected:
  void SetUp() override {
    options_.devices = &devices_;
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
    ASSERT_TRUE(call(*alive, LogMethod::kPing, {}));
  }
  EXPECT_TRUE(silent->connection->broken());
  EXPECT_FALSE(alive->connection->broken());
}

TEST_F(LogServiceTest, ForeignHellosAreRefused) {
  const auto refused = [&](std::vector<std::byte> bytes) {
    auto client = std::make_unique<Client>();
    client->rpc = std::move(*fabric::RpcClient::create(*device_, {1 << 20, 1 << 20, 64}));
    if (bytes.size() >= sizeof(LogHello)) {
      std::memcpy(bytes.data() + offsetof(LogHello, reply_region), &client->rpc->reply_region(),
                  sizeof(fabric::RemoteRegion));
    }
    auto made = run(connect_bytes(std::move(bytes), std::move(client)));
    return made ? "accepted" : std::string(base::error_name(made.code()));
  };
  LogHello good;
  good.client = 1;
  EXPECT_EQ(refused(as_bytes(good)), "accepted");
  LogHello other = good;
  other.version = kLogProtocolVersion + 1;
  EXPECT_EQ(refused(as_bytes(other)), "VersionMismatch");
  other = good;
  other.client = 0;
  EXPECT_EQ(refused(as_bytes(other)), "InvalidArgument");
  other = good;
  other.kind = static_cast<LogConnectionKind>(3);
  EXPECT_EQ(refused(as_bytes(other)), "Protocol");
  other = good;
  other.padding[5] = 1;
  EXPECT_EQ(refused(as_bytes(other)), "Protocol");
  auto longer = as_bytes(good);
  longer.resize(longer.size() + 8);
  EXPECT_EQ(refused(longer), "Protocol");
  auto shorter = as_bytes(good);
  shorter.resize(6);
  EXPECT_EQ(refused(shorter), "VersionMismatch");
  EXPECT_EQ(refused({std::byte{1}}), "Unsupported");
}

TEST_F(LogServiceTest, MalformedRequestsCostTheConnectionAndNothingElse) {
  auto good = session(1);
  const uint64_t log = create(*good, "a");
  ASSERT_TRUE(append(*good, log, {"safe"}));
  std::deque<std::pair<LogMethod, std::vector<std::byte>>> bad;
  bad.emplace_back(static_cast<LogMethod>(0x0299), std::vector<std::byte>{});
  bad.emplace_back(LogMethod::kPing, std::vector<std::byte>(1));
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
  bad.emplace_back(LogMethod::kAppend, as_bytes(AppendRequest{log, 0, 0}));
  bad.emplace_back(LogMethod::kAppend, as_bytes(AppendRequest{log, 1, 0}));
  bad.emplace_back(LogMethod::kAppend, as_bytes(AppendRequest{log, kMaxBatchEntries + 1, 0}));
  auto append_bad = append_request(log, {"abc"});
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
