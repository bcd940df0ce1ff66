// An executor whose tcp socket is full sleeps until the peer has made room.
#include <chrono>
#include <thread>

#include "fabric/tcp/internal/multiplexer_set.h"
#include "tests/unit/fabric/tcp_peer.h"

namespace pmstore::fabric::tcp {
namespace {

class TcpWaiting : public TcpPeer {
 protected:
  TcpWaiting() : TcpPeer({.poll = base::PollMode::kNever}) {}

  // Another thread: waits until the executor makes no turn any more. False when it goes on. One
  // that is not run for a moment makes none either.
  bool falls_asleep() const {
    constexpr int kEnough = 6;
    const uint64_t deadline = clock_.now_ns() + patience_ns();
    uint64_t seen = UINT64_MAX;
    for (int same = 0; clock_.now_ns() < deadline;) {
      same = std::exchange(seen, turns_.turns) == seen ? same + 1 : 0;
      if (same == kEnough) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  }
  // Another thread: what the executor sends, until so much of it has come or it closes.
  std::string take_bytes(size_t count) const {
    std::string bytes(count, '\0');
    size_t taken = 0;
    while (taken < count) {
      const ssize_t got = recv(socket_, bytes.data() + taken, count - taken, 0);
      if (got <= 0) break;
      taken += static_cast<size_t>(got);
    }
    bytes.resize(taken);
    return bytes;
  }
  void send_done() {
    FrameHeader done{};
    done.kind = FrameKind::kDone;
    done.bytes = 1;
    done.channel = 1;
    send_frame(done);
  }
  // Whether it succeeds; the connection breaks when it takes too long.
  bool outcome(Completion& completion) {
    executor_.spawn(give_up());
    return executor_.run(await(completion));
  }

 private:
  base::Task<bool> await(Completion& completion) {
    co_return co_await CompletionAwaiter(completion);
  }
  base::Task<void> give_up() {
    co_await executor_.sleep_for(patience_ns());
    shutdown(socket_, SHUT_RDWR);
  }
};

TEST_F(TcpWaiting, AFullSocketLetsTheExecutorSleepUntilItHasRoom) {
  shake_hands();
  std::vector<std::byte> buffer(32u << 20);  // more than the socket takes
  for (size_t i = 0; i < buffer.size(); ++i) buffer[i] = std::byte(i % 251);
  const auto bytes = static_cast<uint32_t>(buffer.size());
  auto own = *device_->register_memory(buffer, Access::kLocal);
  Batch batch;
  batch.write({buffer.data(), bytes, own.get()}, {1, 1});
  Completion completion;
  ASSERT_TRUE(served_.connection->post(batch, &completion));

  bool slept = false;
  std::string received;
  std::thread peer([&] {
    slept = falls_asleep();
    received = take_bytes(sizeof(FrameHeader) + bytes);
    send_done();
  });
  const bool answered = outcome(completion);
  peer.join();
  EXPECT_TRUE(slept);
  EXPECT_TRUE(answered) << "the rest has not left";
  ASSERT_EQ(received.size(), sizeof(FrameHeader) + bytes);
  EXPECT_EQ(std::memcmp(received.data() + sizeof(FrameHeader), buffer.data(), bytes), 0);

  const uint64_t turns = turns_.turns;
  run_for(50'000'000);
  EXPECT_LE(turns_.turns - turns, 10u) << "it is still woken by the room that there is";
}

// More system calls are needed than a turn makes.
TEST_F(TcpWaiting, AnExecutorDoesNotSleepBeforeAllHasLeft) {
  shake_hands();
  std::vector<std::byte> buffer(8, std::byte{'w'});
  auto own = *device_->register_memory(buffer, Access::kLocal);
  Batch batch;
  batch.write({buffer.data(), 8, own.get()}, {1, 1});
  constexpr size_t kBatches = 500;
  for (size_t i = 1; i < kBatches; ++i) ASSERT_TRUE(served_.connection->post(batch, nullptr));
  Completion completion;
  ASSERT_TRUE(served_.connection->post(batch, &completion));
  size_t received = 0;
  std::thread peer([&] {
    received = take_bytes(kBatches * (sizeof(FrameHeader) + buffer.size())).size();
    send_done();
  });
  EXPECT_TRUE(outcome(completion));
  peer.join();
  EXPECT_EQ(received, kBatches * (sizeof(FrameHeader) + buffer.size()));
}

// While the socket is full, what arrives is still taken.
TEST_F(TcpWaiting, AFullSocketIsStillRead) {
  shake_hands();
  for (int i = 0; i < 100; ++i) send_frame(frame(FrameKind::kRead, kBytes, 0));
  run_a_while();
  send_frame(frame(FrameKind::kWrite, 4, 64), "here");
  EXPECT_TRUE(run_until([&] { return text_at(64, 4) == "here"; }));
}

// Whoever has received much and then nothing for a while is told once, and only then.
TEST_F(TcpWaiting, AConnectionThatHasBecomeIdleIsTold) {
  shake_hands();
  send_frame(frame(FrameKind::kWrite, 8, 0, kAnswerWhenDone), "a little");
  EXPECT_EQ(receive_frame().kind, FrameKind::kDone);
  run_for(1'500'000'000);
  EXPECT_EQ(served_.idle, 0) << "there is nothing to give back";
  send_frame(frame(FrameKind::kWrite, 100'000, 0, kAnswerWhenDone), std::string(100'000, 'm'));
  EXPECT_EQ(receive_frame().kind, FrameKind::kDone);
  EXPECT_EQ(served_.idle, 0);
  ASSERT_TRUE(run_until([&] { return served_.idle == 1; }));
  send_frame(frame(FrameKind::kWrite, 8, 0, kAnswerWhenDone), "a little");
  EXPECT_EQ(receive_frame().kind, FrameKind::kDone);
  run_for(1'500'000'000);
  EXPECT_EQ(served_.idle, 1);
}

// Half a body has arrived: its target is not to be touched.
TEST_F(TcpWaiting, AConnectionThatWaitsForTheRestOfABodyIsNotIdle) {
  shake_hands();
  // After much has moved, and shortly before it would be idle.
  send_frame(frame(FrameKind::kWrite, 100'000, 0, kAnswerWhenDone), std::string(100'000, 'm'));
  EXPECT_EQ(receive_frame().kind, FrameKind::kDone);
  send_frame(frame(FrameKind::kWrite, 100'000, 0, kAnswerWhenDone), std::string(50'000, 'm'));
  run_for(2'500'000'000);
  EXPECT_EQ(served_.idle, 0);
  send_bytes(std::string(50'000, 'n').data(), 50'000);
  EXPECT_EQ(receive_frame().kind, FrameKind::kDone);
  ASSERT_TRUE(run_until([&] { return served_.idle == 1; }));
}

class TcpSpinning : public TcpPeer {
 protected:
  TcpSpinning() : TcpPeer({.poll = base::PollMode::kAlways}) {}
};

// A spinning executor reads all sockets, whether a look has told of them or not; and what a look
// tells later counts as before.
TEST_F(TcpSpinning, WhatALookHasToldIsReadOnce) {
  shake_hands();
  const std::shared_ptr<MultiplexerSet> set = MultiplexerSet::of(executor_);
  int told = 0;
  const uint64_t deadline = clock_.now_ns() + patience_ns();
  for (uint64_t offset = 0; offset < 20 || told < 2; ++offset) {
    ASSERT_TRUE(offset < kBytes && clock_.now_ns() < deadline) << "told " << told;
    send_frame(frame(FrameKind::kWrite, 1, offset), "x");
    executor_.look();  // perhaps too early
    if (!set->arm()) ++told;
    ASSERT_TRUE(run_until([&] { return text_at(offset, 1) == "x"; }));
    EXPECT_TRUE(set->arm()) << "nothing is to be read any more";
  }
}

}  // namespace
}  // namespace pmstore::fabric::tcp
