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

// The client has not looked at the answer to its hello when the refusal comes.
TEST_F(TcpFlood, AClientThatIsTurnedAwayReadsTheReason) {
  hang_up();
  auto client = *open_tcp_device(executor_);
  auto connecting = client->connect(listener_->uri(), patient());
  connecting.start();
  ASSERT_TRUE(run_until([&] { return served_.hellos == 1; }));
  come_from(1);
  send_hellos(Newcomers::kMost);
  ASSERT_TRUE(run_until([&] { return connecting.done(); }));
  const auto connection = connecting.take();
  if (connection) return;  // it was faster
  EXPECT_EQ(connection.code(), ErrorCode::kBackPressure) << connection.error().to_string();
}

TEST_F(TcpFlood, WithoutADescriptorASilentSocketMakesRoom) {
  ASSERT_TRUE(run_until([&] { return set().silent().size() == 1; }));
  const int silent = std::exchange(socket_, -1);
  make_socket();
  {
    const harness::NoDescriptors none;
    knock();
    char byte = 0;
    ASSERT_TRUE(run_until([&] { return recv(silent, &byte, 1, MSG_DONTWAIT) == 0; }));
    run_for(200'000'000);
    EXPECT_EQ(set().silent().size(), 1u) << "nobody waits any more";
    shake_hands();
  }
  close(silent);
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
