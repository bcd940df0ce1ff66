// Setting connections up, with good peers and bad ones.
#include <cstring>
#include <thread>

#include "fabric/verbs/internal/handshake_layout.h"
#include "tests/unit/fabric/verbs/fixture.h"
#include "tests/unit/fabric/verbs/raw_peer.h"

namespace pmstore::fabric::verbs {
namespace {

class VerbsHandshake : public VerbsFixture {
 protected:
  static std::vector<std::byte> preamble(uint32_t magic, uint16_t version) {
    const Preamble value{magic, version, 0};
    std::vector<std::byte> bytes(sizeof(value));
    std::memcpy(bytes.data(), &value, sizeof(value));
    return bytes;
  }
  static std::vector<std::byte> good_preamble() {
    return preamble(kPreambleMagic, kHandshakeVersion);
  }
  // Runs `body`, which blocks, beside the polling.
  template <typename Body>
  void beside(Body body) {
    std::atomic<bool> done = false;
    std::thread thread([&] {
      body();
      done = true;
    });
    const bool ended = run_until([&] { return done.load(); });
    EXPECT_TRUE(ended) << "the raw peer hangs";
    thread.join();
  }
};

TEST_F(VerbsHandshake, HellosReachBothSides) {
  const auto hello = to_bytes("it is me");
  ConnectOptions options;
  options.hello = hello;
  connect_both(options);
  EXPECT_EQ(acceptor_.hellos, std::vector<std::string>{"it is me"});
  EXPECT_EQ(to_text(connection_->peer_hello()), "welcome");
  EXPECT_EQ(to_text(acceptor_.connections[0]->peer_hello()), "it is me");
  EXPECT_EQ(acceptor_.abandoned, 0);
}

TEST_F(VerbsHandshake, LargestHelloFitsAndLargerIsRefusedAtTheSender) {
  const std::vector<std::byte> largest(kMaxHelloBytes, std::byte{7});
  acceptor_.answer = largest;
  ConnectOptions options;
  options.hello = largest;
  connect_both(options);
  EXPECT_EQ(connection_->peer_hello().size(), kMaxHelloBytes);
  EXPECT_EQ(acceptor_.hellos[0].size(), kMaxHelloBytes);

  const std::vector<std::byte> larger(kMaxHelloBytes + 1);
  options.hello = larger;
  EXPECT_EQ(connect(options).code(), ErrorCode::kInvalidArgument);
}

TEST_F(VerbsHandshake, RefusalComesWithItsCodeAndMessage) {
  acceptor_.refusal = make_error(ErrorCode::kUnsupported, "lock discipline rnic is not offered");
  const auto connection = connect();
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.code(), ErrorCode::kUnsupported);
  EXPECT_EQ(connection.error().message, "lock discipline rnic is not offered");
  EXPECT_TRUE(acceptor_.connections.empty());
}

TEST_F(VerbsHandshake, NobodyListening) {
  const Uri uri = listener_->uri();
  listener_.reset();
  const auto connection = executor_.run(client_->connect(uri, {{}, kPatienceNs}));
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.code(), ErrorCode::kDisconnected) << connection.error().message;
  EXPECT_NE(connection.error().message.find("nobody listens"), std::string::npos)
      << connection.error().message;
}

TEST_F(VerbsHandshake, AddressInUseOrNotOursIsIo) {
  EXPECT_EQ(server_->listen(listener_->uri(), acceptor_).code(), ErrorCode::kIo);
  const auto foreign = server_->listen(Uri{Scheme::kVerbs, "192.0.2.1", 0}, acceptor_);
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.code(), ErrorCode::kIo);
}

TEST_F(VerbsHandshake, UnreachableAddressIsDisconnected) {
  ConnectOptions options;
  options.timeout_ns = kPatienceNs;
  const Uri uri{Scheme::kVerbs, "127.0.0.1", 4321};
  const auto connection = executor_.run(client_->connect(uri, options));
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.code(), ErrorCode::kDisconnected) << connection.error().message;
}

TEST_F(VerbsHandshake, ClientOfAnotherVersionIsToldSo) {
  RawPeer peer;
  bool connected = true;
  beside([&] {
    ASSERT_TRUE(peer.resolve(host_, listener_->uri().port));
    connected = peer.connect(preamble(kPreambleMagic, kHandshakeVersion + 1));
  });
  EXPECT_FALSE(connected);
  EXPECT_EQ(peer.last_event(), RDMA_CM_EVENT_REJECTED);
  Preamble answer{};
  ASSERT_GE(peer.peer_private_data().size(), sizeof(answer));
  std::memcpy(&answer, peer.peer_private_data().data(), sizeof(answer));
  EXPECT_EQ(answer.magic, kPreambleMagic);
  EXPECT_EQ(answer.version, kHandshakeVersion);
  EXPECT_EQ(answer.rejection, static_cast<uint16_t>(Rejection::kVersion));
  EXPECT_TRUE(acceptor_.hellos.empty());
}

TEST_F(VerbsHandshake, ServerOfAnotherVersionIsVersionMismatch) {
  for (const auto& private_data :
       {preamble(kPreambleMagic, kHandshakeVersion + 1), preamble(1234, kHandshakeVersion)}) {
    RawPeer peer;
    const uint16_t port = peer.listen(host_);
    ASSERT_NE(port, 0);
    std::thread accepts([&] { peer.accept_one(private_data); });
    const Uri uri{Scheme::kVerbs, host_, port};
    const auto connection = executor_.run(client_->connect(uri, {{}, kPatienceNs}));
    peer.give_up();
    accepts.join();
    ASSERT_FALSE(connection);
    EXPECT_EQ(connection.code(), ErrorCode::kVersionMismatch) << connection.error().message;
  }
}

TEST_F(VerbsHandshake, SilentServerIsTimeout) {
  // On a slow machine a client may give up before its request is at the server: then again, with
  // more patience.
  bool accepted = false;
  for (uint64_t timeout_ns = 4'000'000'000; !accepted; timeout_ns *= 2) {
    ASSERT_LE(timeout_ns, kPatienceNs) << "the raw peer is never reached";
    RawPeer peer;
    const uint16_t port = peer.listen(host_);
    std::thread accepts([&] { accepted = peer.accept_one(good_preamble()); });
    const uint64_t start_ns = executor_.now_ns();
    const auto connection =
        executor_.run(client_->connect(Uri{Scheme::kVerbs, host_, port}, {{}, timeout_ns}));
    const uint64_t took_ns = executor_.now_ns() - start_ns;
    peer.give_up();
    accepts.join();
    ASSERT_FALSE(connection);
    EXPECT_EQ(connection.code(), ErrorCode::kTimeout) << connection.error().message;
    EXPECT_GE(took_ns, timeout_ns);
    EXPECT_LT(took_ns, timeout_ns + kPatienceNs);
  }
}

TEST_F(VerbsHandshake, MalformedHelloNeverReachesTheAcceptor) {
  HelloHeader lies{kHelloMagic, kHandshakeVersion, 0, 100, 0};  // says 100 bytes, brings none
  HelloHeader other{kHelloMagic, kHandshakeVersion + 1, 0, 0, 0};
  const auto bytes = std::as_bytes(std::span(&lies, 1));
  const auto other_version = std::as_bytes(std::span(&other, 1));
  for (const auto message : {bytes, other_version, bytes.first(3)}) {
    RawPeer peer;
    beside([&] {
      ASSERT_TRUE(peer.resolve(host_, listener_->uri().port));
      ASSERT_TRUE(peer.connect(good_preamble()));
      ASSERT_TRUE(peer.send(message));
    });
  }
  EXPECT_FALSE(run_until([&] { return !acceptor_.hellos.empty(); }, 100'000'000));
  connect_both();  // and the listener is none the worse
  EXPECT_TRUE(acceptor_.connections[0]);
}

TEST_F(VerbsHandshake, ClientThatSaysNothingIsForgotten) {
  {
    RawPeer peer;
    beside([&] {
      ASSERT_TRUE(peer.resolve(host_, listener_->uri().port));
      ASSERT_TRUE(peer.connect(good_preamble()));
    });
    EXPECT_FALSE(run_until([&] { return !acceptor_.hellos.empty(); }, 100'000'000));
  }
  listener_.reset();  // with the handshake still there
  EXPECT_TRUE(acceptor_.hellos.empty());
}

TEST_F(VerbsHandshake, AbandonedConnectLeavesNothingBehind) {
  {
    auto task = client_->connect(listener_->uri(), {});
    task.start();
    for (int i = 0; i < 3; ++i) executor_.run_once();
  }
  connect_both();
  EXPECT_TRUE(connection_);
}

TEST_F(VerbsHandshake, ManyConnectionsShareTheDevice) {
  constexpr size_t kMany = 20;  // more than the first completion queue has room for
  std::vector<std::unique_ptr<Connection>> all;
  for (size_t i = 0; i < kMany; ++i) {
    auto connection = connect();
    ASSERT_TRUE(connection) << connection.error().to_string();
    all.push_back(std::move(*connection));
  }
  ASSERT_TRUE(run_until([&] { return acceptor_.connections.size() == kMany; }));
  Buffer target(*server_, 4096, kAll);
  Buffer source(*client_, 4096, Access::kLocal);
  for (size_t i = 0; i < kMany; ++i) {
    source.word(8 * i) = i + 1;
    Batch batch;
    batch.write(source.local(8 * i, 8), target.remote(8 * i));
    ASSERT_TRUE(execute(*all[i], batch));
  }
  for (size_t i = 0; i < kMany; ++i) EXPECT_EQ(target.word(8 * i), i + 1);
}

}  // namespace
}  // namespace pmstore::fabric::verbs
