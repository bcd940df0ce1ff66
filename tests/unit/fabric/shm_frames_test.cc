// What a shm connection does with frames, words and descriptors that no end of ours would send, and
// with those that come in pieces.
#include <fcntl.h>
#include <sys/eventfd.h>

#include <filesystem>
#include <iterator>

#include "base/random.h"
#include "tests/unit/fabric/shm_peer.h"

namespace pmstore::fabric::shm {
namespace {

class ShmFrames : public ShmPeer {};

TEST_F(ShmFrames, AWriteThatAsksForItIsAnsweredWhenItHasLanded) {
  shake_hands();
  send_frame(frame(FrameKind::kWrite, 5, 64, kAnswerWhenDone), "hello");
  const FrameHeader done = receive_frame();
  EXPECT_EQ(done.kind, FrameKind::kDone);
  EXPECT_EQ(done.bytes, 1u);
  EXPECT_EQ(text_at(64, 5), "hello");
}

TEST_F(ShmFrames, FramesMayComeByteByByte) {
  static constexpr std::string_view kBody = "longer than a word";
  shake_hands();
  FrameHeader header = frame(FrameKind::kWriteImmediate, kBody.size(), 10);
  header.immediate = 77;
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes += kBody;
  for (const char byte : bytes) {
    EXPECT_TRUE(served_.immediates.empty());
    EXPECT_EQ(text_at(10, kBody.size()), std::string(kBody.size(), '\0')) << "placed as a whole";
    writer_.append(&byte, 1);
    writer_.publish();
    executor_.run_once();
  }
  ASSERT_TRUE(run_until([&] { return served_.immediates.size() == 1; }));
  EXPECT_EQ(served_.immediates[0], 77u);
  EXPECT_EQ(text_at(10, kBody.size()), kBody);
}

TEST_F(ShmFrames, ARequestWithoutABodyMayComeInPiecesToo) {
  shake_hands();
  std::memcpy(memory_.data() + 500, "durable", 7);
  const FrameHeader header = frame(FrameKind::kRead, 7, 500);
  const char* const bytes = reinterpret_cast<const char*>(&header);
  for (size_t i = 0; i < sizeof header; ++i) {
    writer_.append(bytes + i, 1);
    writer_.publish();
    executor_.run_once();
  }
  EXPECT_EQ(receive_frame().kind, FrameKind::kReadData);
  EXPECT_EQ(receive_bytes(7), "durable");
}

TEST_F(ShmFrames, AWordOfALargeBodyIsPlacedAsAWhole) {
  shake_hands();
  const std::string body(2'000, 'w');
  constexpr uint32_t kOffset = 3;
  const auto begin = reinterpret_cast<uintptr_t>(memory_.data()) + kOffset;
  append(frame(FrameKind::kWrite, static_cast<uint32_t>(body.size()), kOffset, kAnswerWhenDone));
  for (const char byte : body) {
    writer_.append(&byte, 1);
    writer_.publish();
    executor_.run_once();
    const size_t placed = text_at(kOffset, body.size()).find('\0');
    if (placed == std::string::npos) break;
    ASSERT_EQ(placed == 0 ? 0 : (begin + placed) % sizeof(uint64_t), 0u) << placed;
  }
  EXPECT_EQ(receive_frame().kind, FrameKind::kDone);
  EXPECT_EQ(text_at(kOffset, body.size()), body);
}

TEST_F(ShmFrames, ABodyLargerThanTheRingIsPlacedAsItComes) {
  shake_hands();
  const std::string body(2 * size_t{kRingBytes} + 1000, 'q');
  send_frame(frame(FrameKind::kWrite, static_cast<uint32_t>(body.size()), 8, kAnswerWhenDone),
             body.substr(0, 1000));
  ASSERT_TRUE(run_until([&] { return memory_[8 + 999] == std::byte{'q'}; }));
  EXPECT_EQ(memory_[8 + 1000], std::byte{0});
  for (size_t sent = 1000; sent < body.size();) {
    ASSERT_TRUE(writer_.look());
    sent += writer_.append(body.data() + sent, body.size() - sent);
    writer_.publish();
    executor_.run_once();
  }
  EXPECT_EQ(receive_frame().kind, FrameKind::kDone);
  EXPECT_EQ(text_at(8, body.size()), body);
}

TEST_F(ShmFrames, AReadLargerThanTheRingGetsItsBytes) {
  shake_hands();
  for (size_t i = 0; i < memory_.size(); ++i) memory_[i] = std::byte(i % 251);
  const uint32_t bytes = 3 * kRingBytes;
  send_frame(frame(FrameKind::kRead, bytes, 500));
  std::string all;
  while (all.size() < bytes) {
    const FrameHeader answer = receive_frame();
    ASSERT_EQ(answer.kind, FrameKind::kReadData);
    ASSERT_LE(answer.bytes, bytes - all.size());
    all += receive_bytes(answer.bytes);
  }
  EXPECT_EQ(all, text_at(500, bytes));
}

// Small ones are copied straight into the ring; those that find no room are copied when they do.
TEST_F(ShmFrames, AnswersForWhichThereIsNoRoomComeLaterAndInOrder) {
  constexpr uint32_t kSmall = 40'000;
  constexpr uint32_t kLarge = 200'000;  // more than is copied at one moment
  constexpr uint32_t kReads = 20;
  shake_hands();
  for (size_t i = 0; i < memory_.size(); ++i) memory_[i] = std::byte(i % 251);
  for (uint32_t i = 0; i < kReads; ++i) send_frame(frame(FrameKind::kRead, kSmall, i));
  send_frame(frame(FrameKind::kRead, kLarge, 7));
  run_a_while();
  for (uint32_t i = 0; i < kReads; ++i) {
    ASSERT_EQ(receive_frame().bytes, kSmall) << i;
    ASSERT_EQ(receive_bytes(kSmall), text_at(i, kSmall)) << i;
  }
  run_a_while();
  std::string large;
  while (large.size() < kLarge) {
    const FrameHeader answer = receive_frame();
    ASSERT_EQ(answer.kind, FrameKind::kReadData);
    ASSERT_LE(answer.bytes, internal::FrameSender::kMaxPieceBytes);
    large += receive_bytes(answer.bytes);
  }
  EXPECT_EQ(large, text_at(7, kLarge));
  send_frame(frame(FrameKind::kRead, kLarge, 7));  // all of it has room now
  EXPECT_LE(receive_frame().bytes, internal::FrameSender::kMaxPieceBytes);
}

TEST_F(ShmFrames, NothingIsWrittenBeforeTheHandshakeIsOver) {
  ASSERT_TRUE(send_hello(kSegmentName, segment_->descriptors()));
  ASSERT_TRUE(receive_message());
  send_frame(frame(FrameKind::kWrite, 5, 0), "early");
  run_a_while();
  EXPECT_EQ(memory_[0], std::byte{0});
  EXPECT_EQ(served_.connection, nullptr);
}

TEST_F(ShmFrames, AnotherLayoutIsToldSo) {
  ASSERT_TRUE(send_hello("pmstore-rings-2-262144", segment_->descriptors()));
  expect_refusal(ErrorCode::kVersionMismatch);
}

TEST_F(ShmFrames, AHelloWithoutASegmentIsRefused) {
  ASSERT_TRUE(send_hello(kSegmentName, {}));
  expect_refusal(ErrorCode::kIo);
}

TEST_F(ShmFrames, DescriptorsOfAnEmptyMessageAreClosed) {
  const auto open_descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = open_descriptors();
  ASSERT_TRUE(run_until([&] { return open_descriptors() == before + 1; })) << "it accepts this end";
  const auto sent = segment_->descriptors();
  ASSERT_TRUE(socket_.send({}, sent));
  EXPECT_TRUE(run_until([&] { return open_descriptors() == before; }))
      << "its socket is closed, and nothing has come";
}

TEST_F(ShmFrames, AForgedSegmentIsRefused) {
  const base::FileDescriptor zero(open("/dev/zero", O_RDWR | O_CLOEXEC));
  const base::FileDescriptor bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  ASSERT_TRUE(send_hello(kSegmentName, std::vector<int>{zero.get(), bell.get(), bell.get()}));
  expect_refusal(ErrorCode::kProtocol);
}

TEST_F(ShmFrames, AForbiddenRequestIsRefusedAndChangesNothing) {
  shake_hands();
  send_frame(frame(FrameKind::kWrite, 8, kBytes - 7), "12345678");
  expect_cut_off(ErrorCode::kAccess);
  EXPECT_EQ(memory_[kBytes - 1], std::byte{0});
  EXPECT_EQ(reader_.end(), RingEnd::kRefused);
}

TEST_F(ShmFrames, WhatNobodyAskedForCostsTheConnection) {
  for (const FrameKind kind : {FrameKind::kReadData, FrameKind::kDone, FrameKind::kClosed,
                               FrameKind::kHandshake, FrameKind{0}, FrameKind{255}}) {
    shake_hands();
    FrameHeader header{};
    header.kind = kind;
    header.bytes = 1;
    send_frame(header, "x");
    expect_cut_off(ErrorCode::kProtocol);
    dial();
  }
}

TEST_F(ShmFrames, AForgedTailCostsTheConnection) {
  for (const uint64_t tail : {uint64_t{kRingBytes} + 1, UINT64_MAX, uint64_t{1} << 63}) {
    shake_hands();
    writer_.state().tail = tail;
    expect_cut_off(ErrorCode::kProtocol);
    dial();
  }
}

TEST_F(ShmFrames, AForgedHeadCostsTheConnection) {
  shake_hands();
  reader_.state().head = uint64_t{1} << 40;
  // Until the answers fill the ring, so that the end of ours looks at the head.
  for (int i = 0; i < 200 && !served_.disconnected; ++i) {
    send_frame(frame(FrameKind::kRead, 64 * 1024, 0));
    run_a_while();
  }
  expect_cut_off(ErrorCode::kProtocol);
}

// It asks and asks, and takes nothing: the answers that wait are bounded.
TEST_F(ShmFrames, APeerThatTakesNoAnswersIsCutOff) {
  shake_hands();
  for (int i = 0; i < 20'000 && !served_.disconnected; ++i) {
    send_frame(frame(FrameKind::kRead, kBytes, 0));
    executor_.run_once();
  }
  expect_cut_off(ErrorCode::kProtocol);
}

TEST_F(ShmFrames, WhatWasWrittenBeforeTheEndArrives) {
  shake_hands();
  for (uint32_t i = 0; i < 20; ++i) {
    FrameHeader header = frame(FrameKind::kWriteImmediate, 0, 0);
    header.immediate = i;
    append(header);
  }
  writer_.publish();
  writer_.end(RingEnd::kClosed);
  expect_cut_off(ErrorCode::kDisconnected);
  EXPECT_EQ(served_.immediates.size(), 20u);
}

TEST_F(ShmFrames, WhatWasWrittenBeforeTheSocketHungUpArrives) {
  shake_hands();
  const FrameHeader header = frame(FrameKind::kWriteImmediate, 4, 0);
  append(header, "last");
  append(frame(FrameKind::kWrite, 100'000, 100), std::string(10, 'p'));
  writer_.publish();
  socket_.close();
  expect_cut_off(ErrorCode::kDisconnected);
  EXPECT_EQ(served_.immediates.size(), 1u);
  EXPECT_EQ(text_at(0, 4), "last");
}

TEST_F(ShmFrames, ARegionThatIsWithdrawnWhileABodyArrivesIsNotTouchedAgain) {
  shake_hands();
  send_frame(frame(FrameKind::kWrite, 100'000, 0), std::string(1000, 'a'));
  ASSERT_TRUE(run_until([&] { return memory_[999] == std::byte{'a'}; }));
  region_.reset();
  const std::string rest(99'000, 'b');
  writer_.append(rest.data(), rest.size());
  writer_.publish();
  expect_cut_off(ErrorCode::kAccess);
  EXPECT_EQ(memory_[1000], std::byte{0});
}

// Whatever comes, nothing outside the region changes and nothing crashes.
TEST_F(ShmFrames, DamagedFramesNeverReachBeyondTheRegion) {
  base::Random random(5);
  std::vector<std::byte> guarded(4096 * 3);
  auto middle = *device_.register_memory(std::span(guarded).subspan(4096, 4096),
                                         Access::kRemoteRead | Access::kRemoteWrite);
  size_t served = 0;
  constexpr int kRounds = 100;
  for (int round = 0; round < kRounds; ++round) {
    shake_hands();
    for (int i = 0; i < 4 && !served_.disconnected; ++i) {
      FrameHeader header{};
      header.kind = static_cast<FrameKind>(1 + random.below(3));
      header.bytes = static_cast<uint32_t>(1 + random.below(600));
      header.address = middle->remote().at(random.below(4096)).address;
      header.key = middle->remote().key;
      std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
      if (header.kind != FrameKind::kRead) bytes += std::string(header.bytes, '\xee');
      for (uint64_t flips = random.below(3); flips > 0; --flips) {
        bytes[random.below(sizeof header)] ^= static_cast<char>(1u << random.below(8));
      }
      writer_.append(bytes.data(), bytes.size());
      writer_.publish();
      for (int turns = 0; turns < 3; ++turns) executor_.run_once();
    }
    if (!served_.disconnected) ++served;
    dial();
  }
  EXPECT_GT(served, 5u) << "the damage is too heavy to say anything";
  EXPECT_LT(served, kRounds - 5u) << "the damage is too light to say anything";
  for (size_t i = 0; i < 4096; ++i) {
    ASSERT_EQ(guarded[i], std::byte{0}) << i;
    ASSERT_EQ(guarded[8192 + i], std::byte{0}) << i;
  }
  EXPECT_NE(std::count(guarded.begin(), guarded.end(), std::byte{0xee}), 0);
}

}  // namespace
}  // namespace pmstore::fabric::shm
