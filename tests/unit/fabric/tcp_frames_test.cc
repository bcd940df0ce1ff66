// What a tcp connection does with frames that no end of ours would send, and with those that come
// in pieces.
#include <poll.h>

#include "base/random.h"
#include "tests/unit/fabric/tcp_peer.h"

namespace pmstore::fabric::tcp {
namespace {

class TcpFrames : public TcpPeer {};

TEST_F(TcpFrames, AWriteThatAsksForItIsAnsweredWhenItHasLanded) {
  shake_hands();
  send_frame(frame(FrameKind::kWrite, 5, 64, kAnswerWhenDone), "hello");
  const FrameHeader done = receive_frame();
  EXPECT_EQ(done.kind, FrameKind::kDone);
  EXPECT_EQ(done.bytes, 1u);
  EXPECT_EQ(text_at(64, 5), "hello");
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
    EXPECT_EQ(text_at(10, 3), std::string(3, '\0')) << "a small body is placed as a whole";
    send_bytes(&byte, 1);
    for (int i = 0; i < 20; ++i) executor_.run_once();
  }
  ASSERT_TRUE(run_until([&] { return served_.immediates.size() == 1; }));
  EXPECT_EQ(served_.immediates[0], 77u);
  EXPECT_EQ(text_at(10, 3), "abc");
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
  EXPECT_EQ(text_at(8, 300'000), body);
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

// A READ of 16 bytes, and what comes instead of its answer.
class TcpAnswers : public TcpFrames {
 protected:
  void expect_refused(FrameKind kind, uint32_t bytes, const std::string& body) {
    shake_hands();
    std::vector<std::byte> buffer(64);
    auto own = *device_->register_memory(buffer, Access::kLocal);
    Batch batch;
    batch.read({buffer.data(), 16, own.get()}, {1, 1});
    Completion completion;
    ASSERT_TRUE(served_.connection->post(batch, &completion));
    EXPECT_EQ(receive_frame().kind, FrameKind::kRead);
    FrameHeader answer{};
    answer.kind = kind;
    answer.channel = 1;
    answer.bytes = bytes;
    send_frame(answer, body);
    expect_cut_off(ErrorCode::kProtocol);
    EXPECT_TRUE(completion.done() && !completion.ok());
    EXPECT_EQ(buffer[0], std::byte{0});
  }
};

TEST_F(TcpAnswers, OfTheWrongSizeCostTheConnection) {
  expect_refused(FrameKind::kReadData, 17, std::string(17, 'z'));
}

TEST_F(TcpAnswers, OfTheWrongKindCostTheConnection) { expect_refused(FrameKind::kDone, 1, {}); }

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
  ASSERT_EQ(::poll(&readable, 1, 60'000), 1);
  ASSERT_EQ(recv(socket_, all.data(), all.size(), 0), 3 * (32 + 8)) << "one message";
  for (uint32_t i = 0; i < 3; ++i) {
    FrameHeader header;
    std::memcpy(&header, all.data() + i * 40, sizeof header);
    EXPECT_EQ(header.kind, FrameKind::kWriteImmediate);
    EXPECT_EQ(header.immediate, i);
  }
}

TEST_F(TcpFrames, ANameWithSeveralAddressesIsTriedUntilOneAnswers) {
  Served other;
  // localhost is ::1 too, where nobody listens.
  auto connection = executor_.run(
      device_->connect(Uri{Scheme::kTcp, "localhost", listener_->uri().port}, patient()));
  EXPECT_TRUE(connection) << connection.error().to_string();
}

TEST_F(TcpFrames, NobodyListeningIsSaidAtOnceWithTheAddress) {
  const uint16_t port = listener_->uri().port;
  hang_up();
  listener_.reset();
  auto connection =
      executor_.run(device_->connect(Uri{Scheme::kTcp, "127.0.0.1", port}, patient()));
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
