// A flood of sockets, of hellos or of clients from one address does not keep those of another one
// out, and whoever is refused is told why.
#include <deque>

#include "fabric/tcp/internal/multiplexer_set.h"
#include "tests/harness/no_descriptors.h"
#include "tests/unit/fabric/open_files.h"
#include "tests/unit/fabric/tcp_peer.h"

namespace pmstore::fabric::tcp {
namespace {

using internal::HandshakeMessage;
using internal::MessageKind;
using internal::Newcomers;

std::vector<std::byte> hello() { return internal::encode({MessageKind::kHello, {}, {}, {}}); }

class TcpFlood : public TcpPeer {
 protected:
  explicit TcpFlood(rlim_t open_files = RLIM_INFINITY) : open_files_(open_files) {}

  void TearDown() override {
    for (const int socket : flood_) close(socket);
    flood_.clear();
    TcpPeer::TearDown();
  }
  const MultiplexerSet& set() { return *MultiplexerSet::of(executor_); }

  // socket_ is a new one, which comes from 127.0.0.`host`.
  void come_from(uint32_t host) {
    make_socket();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl((127u << 24) + host);
    ASSERT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    knock();
  }
  // More sockets from 127.0.0.1, of which the youngest `most` stay open.
  void flood(size_t count, size_t most, bool with_hello = false) {
    for (size_t i = 0; i < count; ++i) {
      come_from(1);
      if (with_hello) send_message(hello());
      flood_.push_back(std::exchange(socket_, -1));
      if (i % 32 == 0) run_turns(0);
    }
    run_turns(0);
    for (; flood_.size() > most; flood_.pop_front()) close(flood_.front());
  }
  // An honest client from 127.0.0.2.
  void serve_one() {
    come_from(2);
    shake_hands();
    served_.keep();
    hang_up();
  }
  // `count` hellos on socket_, on the channels from 1 on.
  void send_hellos(uint32_t count) {
    std::string all;
    const auto message = hello();
    for (uint32_t channel = 1; channel <= count; ++channel) {
      FrameHeader header{};
      header.kind = FrameKind::kHandshake;
      header.bytes = static_cast<uint32_t>(message.size());
      header.channel = channel;
      all.append(reinterpret_cast<const char*>(&header), sizeof header);
      all.append(reinterpret_cast<const char*>(message.data()), message.size());
    }
    send_bytes(all.data(), all.size());
  }

  const OpenFiles open_files_;
  std::deque<int> flood_;
};

TEST_F(TcpFlood, SilentSocketsOfOneAddressLetAllOthersIn) {
  hang_up();
  const size_t most = set().silent().most();
  flood(most + 100, most + 100);
  EXPECT_LE(set().silent().size(), most);
  for (int i = 0; i < 100; ++i) {
    flood(3, most + 100);
    ASSERT_NO_FATAL_FAILURE(serve_one()) << "client " << i;
    EXPECT_LE(set().silent().size(), most);
  }
}

// Each of them has said hello and waits.
TEST_F(TcpFlood, HalfHandshakesOfOneAddressLetAllOthersIn) {
  hang_up();
  const size_t many = OpenFiles::at_most(Newcomers::kMost + 100, 2);
  flood(many, many, true);
  for (int i = 0; i < 30; ++i) {
    flood(3, many, true);
    ASSERT_NO_FATAL_FAILURE(serve_one()) << "client " << i;
  }
}

// All of them knock before the first one says hello.
TEST_F(TcpFlood, AHostMayStartManyClientsAtTheSameMoment) {
  hang_up();
  const size_t many =
      std::min(OpenFiles::at_most(Newcomers::kMostOfOrigin * 5, 2), set().silent().most());
  flood(many, many);
  for (const int socket : flood_) {
    socket_ = socket;
    send_message(hello());
  }
  socket_ = -1;
  run_a_while();
  for (const int socket : flood_) {
    socket_ = socket;
    const auto accept = receive_message();
    ASSERT_TRUE(accept);
    EXPECT_EQ(accept->kind, MessageKind::kAccept);
  }
  socket_ = -1;
}

// Whoever is turned away hears of it, whatever it waits for.
TEST_F(TcpFlood, TooManyHandshakesAreRefusedWithTheReason) {
  constexpr uint32_t kTooMany = 76;
  constexpr uint32_t kMany = Newcomers::kMost + kTooMany;
  send_hellos(kMany);
  uint32_t accepted = 0;
  uint32_t refused = 0;
  while (accepted + refused < kMany) {
    const FrameHeader header = receive_frame();
    ASSERT_NE(header.channel, 0u);
    const std::string bytes = receive_bytes(header.bytes);
    if (header.kind != FrameKind::kHandshake) continue;
    const auto message = internal::decode(std::as_bytes(std::span(bytes)));
    ASSERT_TRUE(message);
    if (message->kind == MessageKind::kAccept) {
      ++accepted;
      continue;
    }
    ++refused;
    EXPECT_EQ(header.channel, refused) << "the oldest ones";
    EXPECT_EQ(message->to_error().code, ErrorCode::kBackPressure);
    EXPECT_NE(message->to_error().message.find("try again"), std::string::npos);
  }
  EXPECT_EQ(refused, kTooMany);
}

// Silence ends by itself after some seconds: once in a few times it must not last so long.
TEST_F(TcpFlood, WithoutADescriptorASilentSocketMakesRoom) {
  constexpr uint64_t kSoonNs = 4'000'000'000;
  bool soon = false;
  for (int i = 0; i < 3 && !soon; ++i) {
    ASSERT_TRUE(run_until([&] { return set().silent().size() == 1; }));
    const int silent = std::exchange(socket_, -1);
    make_socket();
    {
      const harness::NoDescriptors none;
      const uint64_t since_ns = clock_.now_ns();
      knock();
      char byte = 0;
      ASSERT_TRUE(run_until([&] { return recv(silent, &byte, 1, MSG_DONTWAIT) == 0; }));
      soon = clock_.now_ns() - since_ns < kSoonNs;
      run_for(200'000'000);
      EXPECT_EQ(set().silent().size(), 1u) << "nobody waits any more";
      shake_hands();
    }
    close(silent);
    served_.keep();
    hang_up();
    dial();
  }
  EXPECT_TRUE(soon);
}

class TcpFewFiles : public TcpFlood {
 protected:
  TcpFewFiles() : TcpFlood(200) {}
};

TEST_F(TcpFewFiles, MoreClientsThanDescriptorsAreRefusedWithTheReason) {
  hang_up();
  const size_t most = MultiplexerSet::most_served();
  ASSERT_LT(most, 200u);
  // The clients' ends need descriptors, too.
  const OpenFiles enough(2000);
  const auto refused = [&] {
    come_from(2);
    send_message(hello());
    const auto answer = receive_message();
    hang_up();
    EXPECT_TRUE(answer);
    if (!answer || answer->kind != MessageKind::kRefuse) return false;
    EXPECT_EQ(answer->to_error().code, ErrorCode::kBackPressure);
    EXPECT_NE(answer->to_error().message.find("limit of open files"), std::string::npos)
        << answer->to_error().message;
    return true;
  };
  for (size_t i = 0; i < most; ++i) {
    come_from(1);
    ASSERT_NO_FATAL_FAILURE(shake_hands());
    served_.keep();
    flood_.push_back(std::exchange(socket_, -1));
  }
  EXPECT_EQ(set().served(), most);
  EXPECT_TRUE(refused());
  EXPECT_TRUE(refused()) << "nor do refused ones take a place";
  close(flood_.front());
  flood_.pop_front();
  ASSERT_TRUE(run_until([&] { return served_.kept.front()->broken(); }));
  served_.kept.erase(served_.kept.begin());
  come_from(2);
  shake_hands();
}

// A server that does as the test says.
class TcpBareServer : public TcpPeer {
 protected:
  // Connects a client to it. socket_ is its end.
  base::Task<Result<std::unique_ptr<Connection>>> connect(uint64_t operation_timeout_ns) {
    hang_up();
    auto here = resolve("127.0.0.1", 0, true);
    listening_ = *Socket::listen(here->front());
    ConnectOptions options = patient();
    options.operation_timeout_ns = operation_timeout_ns;
    auto connecting = device_->connect(Uri{Scheme::kTcp, "127.0.0.1", *listening_.port()}, options);
    connecting.start();
    EXPECT_TRUE(run_until([&] { return listening_.has_client(); }));
    socket_ = ::accept(listening_.fd(), nullptr, nullptr);
    const auto hello_message = receive_message();
    EXPECT_TRUE(hello_message && hello_message->kind == MessageKind::kHello);
    return connecting;
  }
  static void append(std::string& bytes, const std::vector<std::byte>& message) {
    FrameHeader header{};
    header.kind = FrameKind::kHandshake;
    header.bytes = static_cast<uint32_t>(message.size());
    header.channel = 1;
    bytes.append(reinterpret_cast<const char*>(&header), sizeof header);
    bytes.append(reinterpret_cast<const char*>(message.data()), message.size());
  }

  Socket listening_;
};

// The client has not looked at the answer to its hello when the refusal comes.
TEST_F(TcpBareServer, ThatRefusesAfterItHasAcceptedIsHeard) {
  auto connecting = connect(patience_ns());
  std::string answers;
  append(answers, internal::encode({MessageKind::kAccept, {}, {}, {}}));
  append(answers, internal::encode_refusal(make_error(ErrorCode::kBackPressure, "too many")));
  send_bytes(answers.data(), answers.size());
  hang_up();
  ASSERT_TRUE(run_until([&] { return connecting.done(); }));
  const auto connection = connecting.take();
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.code(), ErrorCode::kBackPressure) << connection.error().to_string();
}

// After a time in which nothing was outstanding.
TEST_F(TcpBareServer, ThatDoesNotAnswerIsNoticedInTime) {
  auto connecting = connect(100'000'000);
  send_message(internal::encode({MessageKind::kAccept, {}, {}, {}}));
  const auto ready = receive_message();
  ASSERT_TRUE(ready && ready->kind == MessageKind::kReady);
  send_message(internal::encode({MessageKind::kWelcome, {}, {}, {}}));
  ASSERT_TRUE(run_until([&] { return connecting.done(); }));
  auto connection = connecting.take();
  ASSERT_TRUE(connection) << connection.error().to_string();
  run_for(200'000'000);
  EXPECT_FALSE((*connection)->broken());
  Batch batch;
  batch.read({memory_.data(), 8, region_.get()}, {1, 1});
  Completion completion;
  ASSERT_TRUE((*connection)->post(batch, &completion));
  ASSERT_TRUE(run_until([&] { return completion.done(); }));
  EXPECT_EQ((*connection)->why_broken().code, ErrorCode::kTimeout);
}

TEST(TcpOrigin, AnIpv4AddressOrTheNetworkOfAnIpv6Address) {
  const auto of = [](const char* host) {
    const auto addresses = resolve(host, 7000, false);
    EXPECT_TRUE(addresses && addresses->size() == 1);
    return origin_of(addresses->front());
  };
  EXPECT_NE(of("10.0.0.1"), of("10.0.0.2"));
  EXPECT_EQ(of("10.0.0.1"), of("::ffff:10.0.0.1")) << "of a socket for both";
  EXPECT_NE(of("::ffff:10.0.0.1"), of("::ffff:10.0.0.2"));
  EXPECT_EQ(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::2"));
  EXPECT_NE(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
  EXPECT_NE(of("::1"), of("0.0.0.0"));
}

}  // namespace
}  // namespace pmstore::fabric::tcp
