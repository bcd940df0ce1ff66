// What a tcp connection does with frames that no end of ours would send, and with those that come
// in pieces: the test is the peer, by a bare socket.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "base/clock.h"
#include "base/executor.h"
#include "base/random.h"
#include "fabric/internal/handshake.h"
#include "fabric/tcp/internal/frame.h"
#include "fabric/tcp/tcp_device.h"

namespace pmstore::fabric::tcp {
namespace {

constexpr size_t kBytes = 1u << 20;

// The listener's side: one connection.
struct Served final : Acceptor, Receiver {
  std::unique_ptr<Connection> connection;
  std::vector<std::unique_ptr<Connection>> kept;
  std::vector<uint32_t> immediates;
  std::optional<Error> disconnected;
  int hellos = 0;

  void keep() {
    if (!connection) return;
    connection->set_receiver(nullptr);
    kept.push_back(std::move(connection));
  }

  Result<std::vector<std::byte>> on_hello(uint64_t, std::span<const std::byte>) override {
    ++hellos;
    return std::vector<std::byte>(3, std::byte{9});
  }
  void on_connected(uint64_t, std::unique_ptr<Connection> made) override {
    connection = std::move(made);
    connection->set_receiver(this);
  }
  void on_abandoned(uint64_t) override {}
  void on_immediate(uint32_t immediate) override { immediates.push_back(immediate); }
  void on_disconnect(const Error& why) override { disconnected = why; }
};

class TcpFrames : public testing::Test {
 protected:
  void SetUp() override {
    auto device = open_tcp_device(executor_);
    ASSERT_TRUE(device);
    device_ = std::move(*device);
    region_ =
        std::move(*device_->register_memory(memory_, Access::kRemoteRead | Access::kRemoteWrite));
    auto listener = device_->listen(Uri{Scheme::kTcp, "127.0.0.1", 0}, served_);
    ASSERT_TRUE(listener) << listener.error().to_string();
    listener_ = std::move(*listener);
    dial();
  }
  void TearDown() override {
    hang_up();
    served_.connection.reset();
    served_.kept.clear();
    region_.reset();
    listener_.reset();
  }

  void dial() {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(listener_->uri().port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  void hang_up() {
    if (socket_ >= 0) close(std::exchange(socket_, -1));
  }

  bool run_until(const std::function<bool()>& condition) {
    const uint64_t deadline = clock_.now_ns() + 10'000'000'000;
    while (!condition()) {
      if (clock_.now_ns() > deadline) return false;
      executor_.run_once();
    }
    return true;
  }
  // Long enough that whatever has been sent is served.
  void run_a_while() {
    const uint64_t end = clock_.now_ns() + 20'000'000;
    run_until([&] { return clock_.now_ns() > end; });
  }

  void send_bytes(const void* bytes, size_t count) {
    ASSERT_EQ(::send(socket_, bytes, count, MSG_NOSIGNAL), static_cast<ssize_t>(count));
  }
  void send_message(const std::vector<std::byte>& message, uint32_t channel = 1) {
    FrameHeader header{};
    header.kind = FrameKind::kHandshake;
    header.bytes = static_cast<uint32_t>(message.size());
    header.channel = channel;
    send_frame(header, {reinterpret_cast<const char*>(message.data()), message.size()});
  }
  void send_frame(const FrameHeader& header, const std::string& body = {}) {
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
    bytes += body;
    send_bytes(bytes.data(), bytes.size());
  }
  // The next `count` bytes that it sends; fewer when it closes, or says nothing for ten seconds.
  std::string receive_bytes(size_t count) {
    std::string bytes;
    run_until([&] {
      char buffer[4096];
      const ssize_t got =
          recv(socket_, buffer, std::min(sizeof buffer, count - bytes.size()), MSG_DONTWAIT);
      if (got > 0) bytes.append(buffer, static_cast<size_t>(got));
      return bytes.size() == count || got == 0 || (got < 0 && errno != EAGAIN);
    });
    return bytes;
  }
  FrameHeader receive_frame() {
    FrameHeader header{};
    const std::string bytes = receive_bytes(sizeof header);
    if (bytes.size() == sizeof header) std::memcpy(&header, bytes.data(), sizeof header);
    return header;
  }
  Result<internal::HandshakeMessage> receive_message(uint32_t channel = 1) {
    const FrameHeader header = receive_frame();
    EXPECT_EQ(header.kind, FrameKind::kHandshake);
    EXPECT_EQ(header.channel, channel);
    const std::string bytes = receive_bytes(header.bytes);
    return internal::decode(std::as_bytes(std::span(bytes)));
  }
  // The connection that was there before is kept, but nobody hears of it.
  void shake_hands(uint32_t channel = 1) {
    served_.keep();
    send_message(internal::encode({internal::MessageKind::kHello, {}, {}, {}}), channel);
    auto accept = receive_message(channel);
    ASSERT_TRUE(accept) << accept.error().to_string();
    ASSERT_EQ(accept->kind, internal::MessageKind::kAccept);
    send_message(internal::encode({internal::MessageKind::kReady, {}, {}, {}}), channel);
    auto welcome = receive_message(channel);
    ASSERT_TRUE(welcome) << welcome.error().to_string();
    ASSERT_NE(served_.connection, nullptr);
  }

  FrameHeader frame(FrameKind kind, uint32_t bytes, uint64_t offset, uint8_t flags = 0) const {
    FrameHeader header{};
    header.kind = kind;
    header.flags = flags;
    header.bytes = bytes;
    header.channel = 1;
    header.address = region_->remote().at(offset).address;
    header.key = region_->remote().key;
    return header;
  }
  void expect_cut_off(ErrorCode code) {
    ASSERT_TRUE(run_until([&] { return served_.disconnected.has_value(); }));
    EXPECT_EQ(served_.disconnected->code, code) << served_.disconnected->message;
  }

  base::RealClock clock_;
  base::Executor executor_{clock_};
  std::unique_ptr<Device> device_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kBytes);
  std::unique_ptr<MemoryRegion> region_;
  Served served_;
  std::unique_ptr<Listener> listener_;
  int socket_ = -1;
};

std::string text_at(const std::vector<std::byte>& memory, size_t offset, size_t count) {
  return {reinterpret_cast<const char*>(memory.data()) + offset, count};
}

TEST_F(TcpFrames, AWriteThatAsksForItIsAnsweredWhenItHasLanded) {
  shake_hands();
  send_frame(frame(FrameKind::kWrite, 5, 64, kAnswerWhenDone), "hello");
  const FrameHeader done = receive_frame();
  EXPECT_EQ(done.kind, FrameKind::kDone);
  EXPECT_EQ(done.bytes, 1u);
  EXPECT_EQ(text_at(memory_, 64, 5), "hello");
}

TEST_F(TcpFrames, OneFrameAnswersWhatCameTogether) {
  shake_hands();
  std::string three;
  for (int i = 0; i < 3; ++i) {
    const FrameHeader header = frame(FrameKind::kWrite, 1, i, kAnswerWhenDone);
    three.append(reinterpret_cast<const char*>(&header), sizeof header).append("x");
  }
  send_bytes(three.data(), three.size());
  const FrameHeader done = receive_frame();
  EXPECT_EQ(done.kind, FrameKind::kDone);
  EXPECT_EQ(done.bytes, 3u);
}

TEST_F(TcpFrames, FramesMayComeByteByByte) {
  shake_hands();
  FrameHeader header = frame(FrameKind::kWriteImmediate, 3, 10);
  header.immediate = 77;
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes += "abc";
  for (char byte : bytes) {
    EXPECT_TRUE(served_.immediates.empty());
    EXPECT_EQ(text_at(memory_, 10, 3), std::string(3, '\0')) << "a small body is placed as a whole";
    send_bytes(&byte, 1);
    for (int i = 0; i < 20; ++i) executor_.run_once();
  }
  ASSERT_TRUE(run_until([&] { return served_.immediates.size() == 1; }));
  EXPECT_EQ(served_.immediates[0], 77u);
  EXPECT_EQ(text_at(memory_, 10, 3), "abc");
}

TEST_F(TcpFrames, ALargeBodyIsPlacedAsItComes) {
  shake_hands();
  const std::string body(300'000, 'q');
  send_frame(frame(FrameKind::kWrite, 300'000, 8), body.substr(0, 1000));
  ASSERT_TRUE(run_until([&] { return memory_[8 + 999] == std::byte{'q'}; }));
  EXPECT_EQ(memory_[8 + 1000], std::byte{0});
  for (size_t sent = 1000; sent < body.size();) {
    const ssize_t more =
        ::send(socket_, body.data() + sent, body.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (more > 0) sent += static_cast<size_t>(more);
    executor_.run_once();
  }
  ASSERT_TRUE(run_until([&] { return memory_[8 + 299'999] == std::byte{'q'}; }));
  EXPECT_EQ(text_at(memory_, 8, 300'000), body);
}

TEST_F(TcpFrames, AReadGetsItsBytes) {
  shake_hands();
  std::memcpy(memory_.data() + 500, "durable", 7);
  send_frame(frame(FrameKind::kRead, 7, 500));
  const FrameHeader answer = receive_frame();
  EXPECT_EQ(answer.kind, FrameKind::kReadData);
  EXPECT_EQ(answer.bytes, 7u);
  EXPECT_EQ(receive_bytes(7), "durable");
}

TEST_F(TcpFrames, NothingIsWrittenBeforeAHello) {
  send_frame(frame(FrameKind::kWrite, 5, 0), "early");
  EXPECT_EQ(receive_bytes(1), "") << "closed without a word";
  EXPECT_EQ(memory_[0], std::byte{0});
  EXPECT_EQ(served_.hellos, 0);
}

TEST_F(TcpFrames, SomethingElseThanPmstoreIsClosed) {
  const std::string text = "GET / HTTP/1.1\r\nHost: example\r\n\r\n";
  send_bytes(text.data(), text.size());
  EXPECT_EQ(receive_bytes(1), "");
}

TEST_F(TcpFrames, NothingIsWrittenBetweenHelloAndReady) {
  send_message(internal::encode({internal::MessageKind::kHello, {}, {}, {}}));
  ASSERT_TRUE(receive_message());
  send_frame(frame(FrameKind::kWrite, 5, 0), "early");
  run_a_while();
  EXPECT_EQ(memory_[0], std::byte{0});
  EXPECT_EQ(served_.connection, nullptr);
}

TEST_F(TcpFrames, AnotherVersionIsToldSo) {
  auto hello = internal::encode({internal::MessageKind::kHello, {}, {}, {}});
  hello[4] = std::byte{99};
  send_message(hello);
  auto refusal = receive_message();
  ASSERT_TRUE(refusal) << refusal.error().to_string();
  EXPECT_EQ(refusal->kind, internal::MessageKind::kRefuse);
  EXPECT_EQ(refusal->to_error().code, ErrorCode::kVersionMismatch);
}

TEST_F(TcpFrames, AForbiddenRequestIsRefusedAndChangesNothing) {
  shake_hands();
  send_frame(frame(FrameKind::kWrite, 8, kBytes - 7), "12345678");
  EXPECT_EQ(receive_frame().kind, FrameKind::kRefused);
  expect_cut_off(ErrorCode::kAccess);
  EXPECT_EQ(memory_[kBytes - 1], std::byte{0});
}

TEST_F(TcpFrames, AReadOfNoBytesIsRefused) {
  shake_hands();
  send_frame(frame(FrameKind::kRead, 0, 0));
  EXPECT_EQ(receive_frame().kind, FrameKind::kRefused);
}

TEST_F(TcpFrames, WhatNobodyAskedForCostsTheConnection) {
  for (const FrameKind kind :
       {FrameKind::kReadData, FrameKind::kDone, FrameKind{0}, FrameKind{9}, FrameKind{255}}) {
    shake_hands();
    FrameHeader header{};
    header.kind = kind;
    header.bytes = 1;
    header.channel = 1;
    send_frame(header, "x");
    expect_cut_off(ErrorCode::kProtocol);
    served_.disconnected.reset();
    served_.connection.reset();
    hang_up();
    dial();
  }
}

TEST_F(TcpFrames, AHandshakeMessageAfterTheHandshakeCostsTheConnection) {
  shake_hands();
  send_message(internal::encode({internal::MessageKind::kHello, {}, {}, {}}));
  expect_cut_off(ErrorCode::kProtocol);
}

TEST_F(TcpFrames, AnswersOfTheWrongSizeOrKindCostTheConnection) {
  shake_hands();
  std::vector<std::byte> buffer(64);
  auto own = *device_->register_memory(buffer, Access::kLocal);
  Batch batch;
  batch.read({buffer.data(), 16, own.get()}, {1, 1});
  Completion completion;
  ASSERT_TRUE(served_.connection->post(batch, &completion));
  EXPECT_EQ(receive_frame().kind, FrameKind::kRead);
  FrameHeader answer{};
  answer.kind = FrameKind::kReadData;
  answer.channel = 1;
  answer.bytes = 17;
  send_frame(answer, std::string(17, 'z'));
  expect_cut_off(ErrorCode::kProtocol);
  EXPECT_TRUE(completion.done() && !completion.ok());
  EXPECT_EQ(buffer[0], std::byte{0});
}

TEST_F(TcpFrames, ADoneDoesNotAnswerARead) {
  shake_hands();
  std::vector<std::byte> buffer(64);
  auto own = *device_->register_memory(buffer, Access::kLocal);
  Batch batch;
  batch.read({buffer.data(), 16, own.get()}, {1, 1});
  Completion completion;
  ASSERT_TRUE(served_.connection->post(batch, &completion));
  EXPECT_EQ(receive_frame().kind, FrameKind::kRead);
  FrameHeader answer{};
  answer.kind = FrameKind::kDone;
  answer.channel = 1;
  answer.bytes = 1;
  send_frame(answer);
  expect_cut_off(ErrorCode::kProtocol);
  EXPECT_FALSE(completion.ok());
}

// It asks and asks, and takes nothing: the answers that wait are bounded.
TEST_F(TcpFrames, APeerThatTakesNoAnswersIsCutOff) {
  shake_hands();
  const FrameHeader read = frame(FrameKind::kRead, kBytes, 0);
  for (int i = 0; i < 20'000 && !served_.disconnected; ++i) {
    if (::send(socket_, &read, sizeof read, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) break;
    executor_.run_once();
  }
  expect_cut_off(ErrorCode::kProtocol);
}

TEST_F(TcpFrames, ARegionThatIsWithdrawnWhileABodyArrivesIsNotTouchedAgain) {
  shake_hands();
  send_frame(frame(FrameKind::kWrite, 100'000, 0), std::string(1000, 'a'));
  ASSERT_TRUE(run_until([&] { return memory_[999] == std::byte{'a'}; }));
  region_.reset();
  const std::string rest(99'000, 'b');
  send_bytes(rest.data(), rest.size());
  expect_cut_off(ErrorCode::kAccess);
  EXPECT_EQ(memory_[1000], std::byte{0});
}

TEST_F(TcpFrames, ARegionThatIsWithdrawnWhileItIsBeingReadIsNotSentAnyMore) {
  shake_hands();
  for (int i = 0; i < 100; ++i) send_frame(frame(FrameKind::kRead, kBytes, 0));
  run_a_while();
  ASSERT_FALSE(served_.disconnected);
  region_.reset();
  expect_cut_off(ErrorCode::kAccess);
}

// Whatever comes, after the handshake, nothing outside the region changes and nothing crashes.
TEST_F(TcpFrames, DamagedFramesNeverReachBeyondTheRegion) {
  base::Random random(5);
  std::vector<std::byte> guarded(4096 * 3);
  auto middle = *device_->register_memory(std::span(guarded).subspan(4096, 4096),
                                          Access::kRemoteRead | Access::kRemoteWrite);
  size_t served = 0;
  for (int round = 0; round < 300; ++round) {
    shake_hands();
    for (int i = 0; i < 4 && !served_.disconnected; ++i) {
      FrameHeader header{};
      header.kind = static_cast<FrameKind>(1 + random.below(3));
      header.channel = 1;
      header.bytes = static_cast<uint32_t>(1 + random.below(600));
      header.address = middle->remote().at(random.below(4096)).address;
      header.key = middle->remote().key;
      std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
      if (header.kind != FrameKind::kRead) bytes += std::string(header.bytes, '\xee');
      for (uint64_t flips = random.below(3); flips > 0; --flips) {
        bytes[random.below(sizeof header)] ^= static_cast<char>(1u << random.below(8));
      }
      static_cast<void>(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
      for (int turns = 0; turns < 3; ++turns) executor_.run_once();
    }
    if (!served_.disconnected) ++served;
    served_.connection.reset();
    served_.disconnected.reset();
    hang_up();
    dial();
  }
  EXPECT_GT(served, 10u) << "the damage is too heavy to say anything";
  EXPECT_LT(served, 290u) << "the damage is too light to say anything";
  for (size_t i = 0; i < 4096; ++i) {
    ASSERT_EQ(guarded[i], std::byte{0}) << i;
    ASSERT_EQ(guarded[8192 + i], std::byte{0}) << i;
  }
  EXPECT_NE(std::count(guarded.begin(), guarded.end(), std::byte{0xee}), 0);
  middle.reset();
}

TEST_F(TcpFrames, WhatOneTurnPostsLeavesTogetherAndInOrder) {
  shake_hands();
  std::vector<std::byte> buffer(64, std::byte{'w'});
  auto own = *device_->register_memory(buffer, Access::kLocal);
  for (uint32_t i = 0; i < 3; ++i) {
    Batch batch;
    batch.write_immediate({buffer.data(), 8, own.get()}, {1, 1}, i);
    ASSERT_TRUE(served_.connection->post(batch, nullptr));
  }
  char byte;
  EXPECT_EQ(recv(socket_, &byte, 1, MSG_DONTWAIT), -1) << "nothing leaves inside post()";
  executor_.run_once();
  std::vector<char> all(4096);
  pollfd readable{socket_, POLLIN, 0};
  ASSERT_EQ(::poll(&readable, 1, 5000), 1);
  ASSERT_EQ(recv(socket_, all.data(), all.size(), 0), 3 * (32 + 8)) << "one message";
  for (uint32_t i = 0; i < 3; ++i) {
    FrameHeader header;
    std::memcpy(&header, all.data() + i * 40, sizeof header);
    EXPECT_EQ(header.kind, FrameKind::kWriteImmediate);
    EXPECT_EQ(header.immediate, i);
  }
}

// ---- connections that share a wire ----

TEST_F(TcpFrames, AViolationCostsItsOwnConnectionOnly) {
  shake_hands(1);
  shake_hands(2);
  FrameHeader bad = frame(FrameKind::kWrite, 100'000, kBytes - 5);
  bad.channel = 2;
  send_frame(bad, std::string(100'000, 'x'));
  send_frame(frame(FrameKind::kWrite, 4, 0, kAnswerWhenDone), "fine");
  const FrameHeader refused = receive_frame();
  EXPECT_EQ(refused.kind, FrameKind::kRefused);
  EXPECT_EQ(refused.channel, 2u);
  const FrameHeader done = receive_frame();
  EXPECT_EQ(done.kind, FrameKind::kDone);
  EXPECT_EQ(done.channel, 1u);
  EXPECT_EQ(text_at(memory_, 0, 4), "fine") << "behind a body that was skipped";
  EXPECT_TRUE(served_.disconnected);
  EXPECT_FALSE(served_.kept[0]->broken());
}

// Fencing: whoever has destroyed its end sees nothing of what is still on its way.
TEST_F(TcpFrames, WhatArrivesForAConnectionThatIsDestroyedIsSkipped) {
  shake_hands(1);
  shake_hands(2);
  FrameHeader fenced = frame(FrameKind::kWrite, 100'000, 0);
  fenced.channel = 2;
  send_frame(fenced, std::string(1000, 'a'));  // and 99,000 that are still to come
  ASSERT_TRUE(run_until([&] { return memory_[999] == std::byte{'a'}; }));
  served_.connection.reset();
  const std::string rest(99'000, 'b');
  send_bytes(rest.data(), rest.size());
  fenced.bytes = 8;
  fenced.address = region_->remote().at(200'000).address;
  send_frame(fenced, "too late");
  send_frame(frame(FrameKind::kWrite, 4, 300'000, kAnswerWhenDone), "mine");
  const FrameHeader closed = receive_frame();
  EXPECT_EQ(closed.kind, FrameKind::kClosed);
  EXPECT_EQ(closed.channel, 2u);
  EXPECT_EQ(receive_frame().kind, FrameKind::kDone);
  EXPECT_EQ(text_at(memory_, 300'000, 4), "mine");
  EXPECT_EQ(memory_[1000], std::byte{0});
  EXPECT_EQ(memory_[200'000], std::byte{0});
}

// It was in the middle of an answer, whose rest must not be taken for something else.
TEST_F(TcpFrames, AnAnswerThatHasBegunIsSentWholeWhenItsConnectionCloses) {
  shake_hands(1);
  shake_hands(2);
  std::fill(memory_.begin(), memory_.end(), std::byte{'r'});
  constexpr int kReads = 16;  // more than the socket takes
  for (int i = 0; i < kReads; ++i) {
    FrameHeader read = frame(FrameKind::kRead, kBytes, 0);
    read.channel = 2;
    send_frame(read);
  }
  run_a_while();
  served_.connection.reset();
  std::fill(memory_.begin(), memory_.end(), std::byte{'n'});
  send_frame(frame(FrameKind::kWrite, 4, 0, kAnswerWhenDone), "mine");
  int whole = 0;
  for (;;) {
    const FrameHeader header = receive_frame();
    if (header.kind == FrameKind::kClosed) break;
    ASSERT_EQ(header.kind, FrameKind::kReadData);
    ASSERT_EQ(receive_bytes(header.bytes), std::string(kBytes, 'r'));
    ++whole;
  }
  EXPECT_GE(whole, 1);
  EXPECT_LT(whole, kReads) << "the socket has taken all: nothing was shown";
  EXPECT_EQ(receive_frame().kind, FrameKind::kDone);
}

TEST_F(TcpFrames, ANumberIsNotUsedAgain) {
  shake_hands(2);
  served_.connection.reset();
  EXPECT_EQ(receive_frame().kind, FrameKind::kClosed);
  send_message(internal::encode({internal::MessageKind::kHello, {}, {}, {}}), 1);
  send_message(internal::encode({internal::MessageKind::kHello, {}, {}, {}}), 2);
  run_a_while();
  EXPECT_EQ(served_.hellos, 1);
}

TEST_F(TcpFrames, TooManyHandshakesAreTurnedAway) {
  constexpr uint32_t kMany = 300;
  std::string all;
  for (uint32_t channel = 1; channel <= kMany; ++channel) {
    const auto hello = internal::encode({internal::MessageKind::kHello, {}, {}, {}});
    FrameHeader header{};
    header.kind = FrameKind::kHandshake;
    header.bytes = static_cast<uint32_t>(hello.size());
    header.channel = channel;
    all.append(reinterpret_cast<const char*>(&header), sizeof header);
    all.append(reinterpret_cast<const char*>(hello.data()), hello.size());
  }
  send_bytes(all.data(), all.size());
  uint32_t accepted = 0;
  uint32_t turned_away = 0;
  while (accepted + turned_away < kMany) {
    const FrameHeader header = receive_frame();
    ASSERT_NE(header.channel, 0u);
    receive_bytes(header.bytes);
    ++(header.kind == FrameKind::kClosed ? turned_away : accepted);
  }
  EXPECT_EQ(accepted, 256u);
  EXPECT_EQ(turned_away, kMany - 256);
}

TEST_F(TcpFrames, ASocketWithoutConnectionsIsClosedAfterAWhile) {
  const uint64_t begin = clock_.now_ns();
  EXPECT_EQ(receive_bytes(1), "");
  EXPECT_LT(clock_.now_ns() - begin, 9'000'000'000u) << "closed, not only silent";
}

TEST_F(TcpFrames, ConnectionsToOneServerShareASocket) {
  hang_up();
  run_a_while();
  const auto sockets = [] {
    int count = 0;
    for (int fd = 0; fd < 1024; ++fd) {
      int type = 0;
      socklen_t bytes = sizeof type;
      if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0) ++count;
    }
    return count;
  };
  auto client = *open_tcp_device(executor_);
  std::vector<std::unique_ptr<Connection>> ours;
  const int before = sockets();
  for (int i = 0; i < 5; ++i) {
    auto connection = executor_.run(client->connect(listener_->uri(), ConnectOptions{}));
    ASSERT_TRUE(connection) << connection.error().to_string();
    ours.push_back(std::move(*connection));
    served_.keep();
  }
  EXPECT_EQ(sockets() - before, 2) << "one at each end";
  ours.pop_back();
  EXPECT_EQ(sockets() - before, 2);
  ASSERT_TRUE(run_until([&] { return served_.kept.back()->broken(); })) << "told by a frame";
  EXPECT_FALSE(served_.kept.front()->broken());
  ours.clear();
  EXPECT_EQ(sockets() - before, 1) << "the last one closes it";
  ASSERT_TRUE(run_until([&] { return served_.kept.front()->broken(); }));
}

TEST_F(TcpFrames, ANameWithSeveralAddressesIsTriedUntilOneAnswers) {
  Served other;
  // localhost is ::1 too, where nobody listens.
  auto connection = executor_.run(
      device_->connect(Uri{Scheme::kTcp, "localhost", listener_->uri().port}, ConnectOptions{}));
  EXPECT_TRUE(connection) << connection.error().to_string();
}

TEST_F(TcpFrames, NobodyListeningIsSaidAtOnceWithTheAddress) {
  const uint16_t port = listener_->uri().port;
  hang_up();
  listener_.reset();
  auto connection =
      executor_.run(device_->connect(Uri{Scheme::kTcp, "127.0.0.1", port}, ConnectOptions{}));
  ASSERT_FALSE(connection);
  EXPECT_EQ(connection.code(), ErrorCode::kDisconnected);
  EXPECT_NE(connection.error().message.find("127.0.0.1:" + std::to_string(port)), std::string::npos)
      << connection.error().message;
}

TEST_F(TcpFrames, AnAddressInUseIsSaid) {
  auto second = device_->listen(listener_->uri(), served_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.code(), ErrorCode::kIo);
  EXPECT_NE(second.error().message.find("in use"), std::string::npos) << second.error().message;
}

}  // namespace
}  // namespace pmstore::fabric::tcp
