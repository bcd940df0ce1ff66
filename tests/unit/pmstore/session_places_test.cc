// Who has a client place, and for how long; and a transaction number's one use.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/file_descriptor.h"
#include "fabric/internal/frame.h"
#include "fabric/internal/handshake.h"
#include "pmstore/client/client_session.h"
#include "pmstore/client/commit_message.h"
#include "pmstore/layout/protocol.h"
#include "tests/harness/patience.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore {
namespace {

// With as many rings as places, under lock discipline rnic.
class Places : public testing::ServerFixture, public ::testing::WithParamInterface<LockDiscipline> {
 protected:
  Places() {
    format_.rings = 4;
    server_options_.most_clients = 4;
    server_options_.discipline = GetParam();
  }
  void put_something(Client& client) {
    const TableId table = *run(client.open_table("t", true));
    ASSERT_TRUE(run(client.put(table, "key", "value")));
  }
};

INSTANTIATE_TEST_SUITE_P(Locks, Places,
                         ::testing::Values(LockDiscipline::kCpu, LockDiscipline::kRnic),
                         [](const auto& param) {
                           return std::string(discipline_name(param.param));
                         });

TEST_P(Places, KilledClientsKeepNoNewOneOut) {
  for (uint64_t i = 0; i < 4; ++i) {
    auto killed = connect();
    ASSERT_NE(killed, nullptr);
    put_something(*killed);
  }  // without close(): as after a kill
  let_time_pass(1'000'000);
  for (uint64_t i = 0; i < 4; ++i) {
    auto late = connect();
    ASSERT_NE(late, nullptr) << "client " << i;
    put_something(*late);
  }
}

TEST_P(Places, ClientsBeforeAnOrderlyStopKeepNoNewOneOut) {
  std::vector<std::unique_ptr<Client>> before;
  for (int i = 0; i < 4; ++i) {
    before.push_back(connect());
    put_something(*before.back());
  }
  ASSERT_TRUE(run(server_->stop()));
  restart();
  std::vector<std::unique_ptr<Client>> after;
  for (int i = 0; i < 4; ++i) {
    after.push_back(connect());
    ASSERT_NE(after.back(), nullptr);
  }
}

TEST_P(Places, OutcomeOfAKilledClientIsKnownAfterItsPlaceHasBeenTaken) {
  TxId id;
  {
    auto killed = connect(99);
    const TableId table = *run(killed->open_table("t", true));
    Transaction tx = killed->begin();
    tx.put(table, "key", "value");
    ASSERT_TRUE(run(tx.commit()));
    id = tx.id();
  }
  let_time_pass(1'000'000);
  std::vector<std::unique_ptr<Client>> others;
  for (int i = 0; i < 4; ++i) {
    others.push_back(connect());
    put_something(*others.back());
  }
  const auto outcome = run(others.back()->outcome(id));
  ASSERT_TRUE(outcome) << outcome.error().to_string();
  EXPECT_EQ(*outcome, Outcome::kCommitted);
}

// Its earlier session has transactions to ask about.
TEST_P(Places, HelloThatIsAbandonedLeavesAClientThatComesBackItsOutcomes) {
  constexpr uint64_t kClient = 99;
  for (int turns = 1; turns < 12; ++turns) {
    TxId id;
    {
      auto killed = connect(kClient);
      const TableId table = *run(killed->open_table("t", true));
      Transaction tx = killed->begin();
      tx.put(table, "key", std::to_string(turns));
      ASSERT_TRUE(run(tx.commit()));
      id = tx.id();
    }
    let_time_pass(1'000'000'000);
    {
      ClientOptions options = client_options_;
      options.secret = ClientSecret::of_number(kClient);
      auto hello = Client::connect(executor_, uri_, options);
      hello.start();
      for (int turn = 0; turn < turns && !hello.done(); ++turn) executor_.run_once();
    }
    let_time_pass(1'000'000'000);
    ASSERT_TRUE(run(server_->stop()));
    restart();
    const auto other = connect();
    const auto outcome = run(other->outcome(id));
    ASSERT_TRUE(outcome) << turns << ": " << outcome.error().to_string();
    EXPECT_EQ(*outcome, Outcome::kCommitted);
  }
}

TEST_P(Places, AllTakenByConnectedClientsIsBackPressure) {
  std::vector<std::unique_ptr<Client>> connected;
  for (int i = 0; i < 4; ++i) connected.push_back(connect());
  const auto refused = try_connect();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), ErrorCode::kBackPressure);
}

// The pool has two rings, and what a hello changes in it is durable for many at once.
class Crowd : public testing::ServerFixture {
 protected:
  Crowd() { format_.rings = 2; }
};

TEST_F(Crowd, NeedsNoRingsAndHardlyAnyDurableWrite) {
  constexpr uint64_t kClients = 100;
  std::vector<std::unique_ptr<Client>> clients;
  clients.push_back(connect(1));
  const TableId table = *run(clients[0]->open_table("t", true));
  const uint64_t before = pool_->memory().stats().drains;
  for (uint64_t i = 2; i <= kClients; ++i) {
    clients.push_back(connect(i));
    ASSERT_NE(clients.back(), nullptr) << i;
  }
  EXPECT_LE(pool_->memory().stats().drains - before, 1u);
  for (auto& client : clients) ASSERT_TRUE(run(client->put(table, "key", "value")));
  const uint64_t at_the_end = pool_->memory().stats().drains;
  for (auto& client : clients) run(client->close());
  EXPECT_EQ(pool_->memory().stats().drains, at_the_end);
}

TEST_F(Crowd, IsRefusedUnderRnicWithoutRings) {
  ASSERT_TRUE(run(server_->stop()));
  server_.reset();
  pool_.reset();
  region_ = crash::PageBytes(kRegionBytes);
  pool_ = std::move(*persist::Pool::in_region(region_.bytes(), domain_, true));
  format_.rings = 0;
  ASSERT_TRUE(format_store(*pool_, format_));
  server_options_.discipline = LockDiscipline::kRnic;
  server_ = std::move(*run(Server::start(executor_, *pool_, server_options_)));
  const auto refused = run(server_->listen({fabric::Scheme::kLocal, "no-rings", 0}));
  ASSERT_EQ(refused.code(), ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message.find("--rings"), std::string::npos);
}

// A client that sends what it likes.
class Replays : public testing::ServerFixture {
 protected:
  void SetUp() override {
    ServerFixture::SetUp();
    auto client = connect();
    table_ = *run(client->open_table("t", true));
    run(client->close());
    session_ = open_session();
    ASSERT_TRUE(session_);
  }
  void TearDown() override {
    session_ = {};
    ServerFixture::TearDown();
  }
  internal::SessionRef open_session() {
    internal::SessionOptions options;
    options.secret = ClientSecret::of_number(7);
    options.known_through = known_;
    options.call_timeout_ns = options.connect_timeout_ns = 1'000'000'000;
    auto opened = run(internal::ClientSession::open(
        std::move(*fabric::open_device(fabric::Scheme::kLocal, executor_)),
        std::make_shared<internal::SessionBook>(), uri_, options));
    EXPECT_TRUE(opened) << opened.error().to_string();
    return opened ? std::move(*opened) : internal::SessionRef();
  }
  Status put(uint64_t number, std::string_view value) {
    std::array<std::byte, 256> room;
    MessageWriter request(room);
    request.put(session_->prefix());
    request.put(CommitRequest{number, 0, 0, 1, 0});
    internal::put_write(request, {WriteKind::kPut, table_, 0, 0, "key", value});
    const auto answer = run(session_->rpc().call(static_cast<uint16_t>(Method::kCommit),
                                                 request.message(), sizeof(CommitReply)));
    if (!answer) return Error(answer.error());
    return {};
  }
  std::string value() {
    auto client = connect();
    const std::string value = *run(client->get(table_, "key"));
    run(client->close());
    return value;
  }

  TableId table_{};
  const std::shared_ptr<uint64_t> known_ = std::make_shared<uint64_t>(0);
  internal::SessionRef session_;
};

TEST_F(Replays, CommitFrameThatIsSentAgainIsNotExecutedAgain) {
  const uint64_t first = session_->hello().next_sequence;
  ASSERT_TRUE(put(first, "one"));
  ASSERT_TRUE(put(first + 1, "two"));
  EXPECT_EQ(put(first, "one").code(), ErrorCode::kProtocol);
  EXPECT_EQ(value(), "two");
}

// Else the server would forget the outcome of what it executes.
TEST_F(Replays, CommitWhoseOutcomeItsClientHasCalledKnownIsNotExecuted) {
  const uint64_t first = session_->hello().next_sequence;
  *known_ = first;
  ASSERT_TRUE(put(first + 1, "one"));
  *known_ = first + 2;
  EXPECT_EQ(put(first + 2, "two").code(), ErrorCode::kProtocol);
  EXPECT_EQ(value(), "one");
}

TEST_F(Replays, NumbersMayComeOutOfOrder) {
  const uint64_t first = session_->hello().next_sequence;
  for (const uint64_t number : {5, 3, 4, 9000, 8999, 8000}) {
    ASSERT_TRUE(put(first + number, std::to_string(number)));
  }
  EXPECT_EQ(value(), "8000");
}

TEST_F(Replays, NumberFarBelowTheHighestCountsAsUsed) {
  const uint64_t first = session_->hello().next_sequence;
  ASSERT_TRUE(put(first + 10'000, "late"));
  EXPECT_EQ(put(first + 1, "early").code(), ErrorCode::kProtocol);
  EXPECT_EQ(value(), "late");
}

TEST_F(Replays, NumberOfALaterSessionIsNotExecuted) {
  const uint64_t first = session_->hello().next_sequence;
  ASSERT_TRUE(put(first + kSessionSequences - 1, "last"));
  EXPECT_EQ(put(first + kSessionSequences, "of the next").code(), ErrorCode::kProtocol);
  EXPECT_EQ(value(), "last");
}

// A client that comes back over a new connection may rely on it that the old one does nothing more.
TEST_F(Replays, NextSessionOfAClientEndsTheOneBefore) {
  const uint64_t first = session_->hello().next_sequence;
  ASSERT_TRUE(put(first, "of the first session"));
  const internal::SessionRef next = open_session();
  ASSERT_TRUE(next);
  EXPECT_EQ(put(first + 1, "too late").code(), ErrorCode::kDisconnected);
  EXPECT_EQ(value(), "of the first session");
  session_ = next;
  EXPECT_TRUE(put(session_->hello().next_sequence, "of the next session"));
  EXPECT_EQ(value(), "of the next session");
}

// Over tcp, in real time: a socket that says hello, and nothing else.
class Hellos : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(format_store(*pool_, {}));
    start();
  }
  void start() {
    ServerOptions options;
    options.most_clients = 8;
    server_ = std::move(*executor_.run(Server::start(executor_, *pool_, options)));
    uri_ = *executor_.run(server_->listen({fabric::Scheme::kTcp, "127.0.0.1", 0}));
  }
  void TearDown() override { EXPECT_TRUE(executor_.run(server_->stop())); }
  base::FileDescriptor say_hello(uint64_t client) {
    base::FileDescriptor fd(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(uri_.port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    service::Hello hello;
    hello.secret = ClientSecret::of_number(client);
    hello.client = hello.secret.id();
    hello.reply_region.bytes = 4096;
    hello.service = service::ServiceId::kStore;
    const std::vector<std::byte> body = service::encode(hello, service::bytes_of(ClientHello{}));
    const auto message =
        fabric::internal::encode({fabric::internal::MessageKind::kHello, {}, body, {}});
    fabric::internal::FrameHeader frame{};
    frame.kind = fabric::internal::FrameKind::kHandshake;
    frame.bytes = static_cast<uint32_t>(message.size());
    frame.channel = 1;
    EXPECT_EQ(send(fd.get(), &frame, sizeof frame, 0), ssize_t{sizeof frame});
    EXPECT_EQ(send(fd.get(), message.data(), message.size(), 0),
              static_cast<ssize_t>(message.size()));
    return fd;
  }
  uint64_t stat(const std::string& name) const {
    const std::string text = server_->stat_json();
    const std::string key = '"' + name + "\": ";
    return std::stoull(text.substr(text.find(key) + key.size()));
  }
  void pump_until(const std::string& name, uint64_t value) {
    const uint64_t deadline_ns = clock_.now_ns() + harness::patience_ns();
    while (stat(name) != value && clock_.now_ns() < deadline_ns) pump(1'000'000);
    ASSERT_EQ(stat(name), value) << name;
  }
  void pump(uint64_t ns) {
    executor_.run([](Executor& executor, uint64_t for_ns) -> Task<void> {
      co_await executor.sleep_for(for_ns);
    }(executor_, ns));
  }
  void expect_let_in() {
    auto client = executor_.run(Client::connect(executor_, uri_, {}));
    ASSERT_TRUE(client) << client.error().to_string();
    executor_.run((*client)->close());
  }

  base::RealClock clock_;
  Executor executor_{clock_};
  crash::PageBytes region_{16 << 20};
  std::unique_ptr<persist::Pool> pool_ =
      std::move(*persist::Pool::in_region(region_.bytes(), persist::Domain::kCpuCache, true));
  std::unique_ptr<Server> server_;
  fabric::Uri uri_;
};

TEST_F(Hellos, WhoseSocketsCloseKeepNoClientOut) {
  for (uint64_t i = 0; i < 8; ++i) {
    {
      const base::FileDescriptor fd = say_hello(1000 + i);
      pump_until("sessions", 1);
    }
    pump_until("sessions", 0);
  }
  expect_let_in();
}

TEST_F(Hellos, WhoseSocketsStayOpenKeepNoClientOut) {
  std::vector<base::FileDescriptor> open;
  for (uint64_t i = 0; i < 8; ++i) {
    open.push_back(say_hello(1000 + i));
    pump_until("sessions", i + 1);
  }
  expect_let_in();
}

// Of a client that has a session nobody else can say what will become of its transactions.
TEST_F(Hellos, OldestGivesItsPlaceToANewOne) {
  std::vector<base::FileDescriptor> open;
  for (uint64_t i = 0; i < 9; ++i) {
    open.push_back(say_hello(1000 + i));
    pump_until(i < 8 ? "sessions" : "fenced", i < 8 ? i + 1 : 1);
  }
  auto next = std::move(*executor_.run(Client::connect(executor_, uri_, {})));
  const TableId table = *executor_.run(next->open_table("t", true));
  Transaction tx = next->begin();
  tx.put(table, "key", "value");
  ASSERT_TRUE(executor_.run(tx.commit()));
  for (uint64_t i = 0; i < 9; ++i) {
    const auto outcome =
        executor_.run(next->outcome({numbered::id_of(1000 + i), tx.id().sequence}));
    if (i < 2) {
      EXPECT_EQ(outcome, Outcome::kAborted) << i << ": it has no session any more";
    } else {
      EXPECT_EQ(outcome.code(), ErrorCode::kCommitUnknown) << i;
    }
  }
  executor_.run(next->close());
}

}  // namespace
}  // namespace pmstore
