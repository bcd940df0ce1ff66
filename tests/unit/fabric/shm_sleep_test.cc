// How an end of a shm connection says that it sleeps, and when it wakes its peer: the words and the
// bells, step by step.
#include <unistd.h>

#include "tests/unit/fabric/shm_peer.h"

namespace pmstore::fabric::shm {
namespace {

class ShmSleep : public ShmPeer {
 protected:
  void SetUp() override {
    ShmPeer::SetUp();
    shake_hands();
    run_a_while();
    ASSERT_EQ(device_.rings(), 0u) << "this end has not slept";
  }
  // What the listener's end says of itself, once: the words of the rings that it reads and writes.
  bool says_that_it_reads() { return writer_.state().reader_sleeps.claim(); }
  bool says_that_it_waits_for_room() { return reader_.state().writer_sleeps.claim(); }
  // How often this end's bell was rung since the last call.
  uint64_t rings() {
    uint64_t count = 0;
    if (read(segment_->own_bell(), &count, sizeof count) != sizeof count) return 0;
    return count;
  }
  // Asks for more than the ring takes.
  void fill_its_ring() {
    send_frame(frame(FrameKind::kRead, kBytes, 0));
    run_a_while();
  }
};

TEST_F(ShmSleep, AnEndThatBlocksSaysSoInTheRingThatItReads) {
  ASSERT_TRUE(device_.arm());
  EXPECT_TRUE(says_that_it_reads());
  EXPECT_FALSE(says_that_it_waits_for_room()) << "it has nothing to send";
  device_.disarm();
  ASSERT_TRUE(device_.arm());
  device_.disarm();
  EXPECT_FALSE(says_that_it_reads()) << "it is awake again";
}

TEST_F(ShmSleep, AnEndThatHasSomethingToReadDoesNotBlock) {
  send_frame(frame(FrameKind::kWrite, 4, 0), "work");
  EXPECT_FALSE(device_.arm());
  EXPECT_FALSE(says_that_it_reads());
  run_a_while();
  EXPECT_TRUE(device_.arm());
  device_.disarm();
  writer_.end(RingEnd::kClosed);
  EXPECT_FALSE(device_.arm()) << "the end has to be told";
  EXPECT_FALSE(says_that_it_reads());
}

// A frame that is not whole is no reason to poll.
TEST_F(ShmSleep, AnEndThatHasSeenHalfAFrameBlocks) {
  append(frame(FrameKind::kWrite, 100, 0), std::string(50, 'h'));
  writer_.publish();
  run_a_while();
  ASSERT_TRUE(device_.arm());
  device_.disarm();
  writer_.append(std::string(50, 'h').data(), 50);
  writer_.publish();
  EXPECT_FALSE(device_.arm());
  run_a_while();
  EXPECT_EQ(text_at(0, 100), std::string(100, 'h'));
}

TEST_F(ShmSleep, AnEndWhoseRingIsFullWaitsForRoomToo) {
  fill_its_ring();
  ASSERT_TRUE(device_.arm());
  EXPECT_TRUE(says_that_it_waits_for_room());
  EXPECT_TRUE(says_that_it_reads());
  device_.disarm();
  ASSERT_TRUE(device_.arm());
  device_.disarm();
  EXPECT_FALSE(says_that_it_waits_for_room()) << "it is awake again";

  ASSERT_TRUE(reader_.look());
  ASSERT_EQ(reader_.available(), size_t{kRingBytes}) << "it is full";
  reader_.consume(1000);
  reader_.publish();
  EXPECT_FALSE(device_.arm()) << "there is room";
  EXPECT_FALSE(says_that_it_waits_for_room());
  run_a_while();
  EXPECT_TRUE(device_.arm()) << "which it has used";
  device_.disarm();
}

TEST_F(ShmSleep, ASleeperIsRungOnceForWhatItReads) {
  const FrameHeader write = frame(FrameKind::kWrite, 4, 0, kAnswerWhenDone);
  send_frame(write, "work");
  EXPECT_EQ(receive_frame().kind, FrameKind::kDone);
  EXPECT_EQ(rings(), 0u) << "this end is awake";
  reader_.state().reader_sleeps.announce();
  run_a_while();
  EXPECT_EQ(rings(), 0u) << "there is nothing new";
  send_frame(write, "more");
  run_a_while();
  EXPECT_EQ(rings(), 1u);
  send_frame(write, "most");
  run_a_while();
  EXPECT_EQ(rings(), 0u) << "it was told already";
  EXPECT_EQ(device_.rings(), 1u);
  EXPECT_TRUE(reader_.look());
  EXPECT_EQ(reader_.available(), 2 * sizeof(FrameHeader));
}

TEST_F(ShmSleep, ASleeperIsRungWhenThereIsRoomForWhatItWrites) {
  writer_.state().writer_sleeps.announce();
  run_a_while();
  EXPECT_EQ(rings(), 0u);
  send_frame(frame(FrameKind::kWrite, 4, 0), "work");
  run_a_while();
  EXPECT_EQ(rings(), 1u);
  EXPECT_TRUE(writer_.look());
  EXPECT_EQ(writer_.room(), size_t{kRingBytes}) << "all of it was given back";
}

TEST_F(ShmSleep, ASleeperIsRungWhenThePeerCloses) {
  reader_.state().reader_sleeps.announce();
  served_.connection.reset();
  EXPECT_EQ(rings(), 1u);
  EXPECT_EQ(reader_.end(), RingEnd::kClosed);
}

TEST_F(ShmSleep, TheRoomOfALargeBodyIsGivenBackInTheSameTurn) {
  constexpr uint32_t kLarge = 100'000;
  append(frame(FrameKind::kWrite, kLarge, 0), std::string(kLarge, 'b'));
  writer_.publish();
  ASSERT_GE(device_.poll(), 1u);
  EXPECT_TRUE(writer_.look());
  EXPECT_EQ(writer_.room(), size_t{kRingBytes});
}

// It asks for what has no room, and goes: nobody waits for it.
TEST_F(ShmSleep, AnEndWhosePeerGoesWhileItWaitsForRoomIsToldSo) {
  fill_its_ring();
  hang_up();
  expect_cut_off(ErrorCode::kDisconnected);
}

class ShmBlocks : public ShmPeer {
 protected:
  ShmBlocks() : ShmPeer({.poll = base::PollMode::kNever}) {}
  uint64_t turns_in(uint64_t time_ns) {
    const uint64_t before = turns_.turns;
    run_for(time_ns);
    return turns_.turns - before;
  }
  // Those to whom the listener has said something, or that it has closed.
  static size_t given_up(std::vector<ShmSocket>& sockets) {
    size_t count = 0;
    std::vector<std::byte> message;
    std::vector<base::FileDescriptor> descriptors;
    for (ShmSocket& each : sockets) {
      if (each.receive(message, descriptors) != ShmSocket::Received::kNothing) ++count;
    }
    return count;
  }
};

TEST_F(ShmBlocks, ARingOfTheBellEndsOneBlockOnly) {
  shake_hands();
  run_a_while();
  for (int i = 0; i < 3; ++i) {
    segment_->ring_peer();
    const uint64_t turns = turns_in(20'000'000);
    EXPECT_LE(turns, 12u) << "the bell goes on ringing";
  }
}

TEST_F(ShmBlocks, APeerThatIsSilentLetsItSleep) {
  shake_hands();
  EXPECT_LE(turns_in(100'000'000), 12u);
  send_frame(frame(FrameKind::kRead, kBytes, 0));
  run_a_while();
  EXPECT_LE(turns_in(100'000'000), 12u) << "a full ring";
}

// They have said nothing yet. More of them wait in the kernel, and are taken when there is room.
TEST_F(ShmBlocks, TooManyHandshakesWait) {
  constexpr size_t kPending = 256;
  constexpr size_t kInKernel = 80;
  std::vector<ShmSocket> knocking;
  while (knocking.size() <= kPending + kInKernel) {
    Result<ShmSocket> socket = ShmSocket::create(uri_.name);
    ASSERT_TRUE(socket) << socket.error().to_string();
    Result<bool> connected = socket->connect(uri_.name);
    ASSERT_TRUE(connected);
    if (!*connected) {
      run_a_while();  // it takes whom it has a place for
      connected = socket->connect(uri_.name);
      ASSERT_TRUE(connected);
    }
    if (!*connected) break;
    knocking.push_back(std::move(*socket));
  }
  // On a slow machine the first are given up meanwhile, and their places are free again.
  EXPECT_LE(knocking.size() - given_up(knocking), kPending + kInKernel);
  EXPECT_GE(knocking.size(), kPending - 1) << "and the one of the set-up";
  const uint64_t turns = turns_in(200'000'000);
  EXPECT_LE(turns, 30 + 8 * given_up(knocking)) << "its socket is readable all the time";
  knocking.clear();
  make_socket();
  ASSERT_TRUE(run_until([&] {
    const Result<bool> connected = socket_.connect(uri_.name);
    return connected && *connected;
  }));
  shake_hands();
}

}  // namespace
}  // namespace pmstore::fabric::shm
