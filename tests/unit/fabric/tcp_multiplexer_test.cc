// Connections that share a socket: what one does must not be felt by the others.
#include "tests/unit/fabric/tcp_peer.h"

namespace pmstore::fabric::tcp {
namespace {

class TcpMultiplexer : public TcpPeer {};

TEST_F(TcpMultiplexer, AViolationCostsItsOwnConnectionOnly) {
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
  EXPECT_EQ(text_at(0, 4), "fine") << "behind a body that was skipped";
  EXPECT_TRUE(served_.disconnected);
  EXPECT_FALSE(served_.kept[0]->broken());
}

// Fencing: whoever has destroyed its end sees nothing of what is still on its way.
TEST_F(TcpMultiplexer, WhatArrivesForAConnectionThatIsDestroyedIsSkipped) {
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
  EXPECT_EQ(text_at(300'000, 4), "mine");
  EXPECT_EQ(memory_[1000], std::byte{0});
  EXPECT_EQ(memory_[200'000], std::byte{0});
}

// It was in the middle of an answer, whose rest must not be taken for something else.
TEST_F(TcpMultiplexer, AnAnswerThatHasBegunIsSentWholeWhenItsConnectionCloses) {
  shake_hands(1);
  shake_hands(2);
  std::fill(memory_.begin(), memory_.end(), std::byte{'r'});
  constexpr int kReads = 200;  // more than the socket takes
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
  uint32_t of_this_read = 0;
  for (;;) {
    const FrameHeader header = receive_frame();
    if (header.kind == FrameKind::kClosed) break;
    ASSERT_EQ(header.kind, FrameKind::kReadData);
    ASSERT_TRUE(receive_bytes(header.bytes) == std::string(header.bytes, 'r'));
    of_this_read += header.bytes;
    if (of_this_read == kBytes) {
      of_this_read = 0;  // its last piece, of any size
    } else {
      ASSERT_GT(header.bytes, FrameSender::kMaxPieceBytes - 64) << "a piece ends with a line";
    }
    ++whole;
  }
  EXPECT_GE(whole, 1);
  EXPECT_LT(whole, kReads * static_cast<int>(kBytes / FrameSender::kMaxPieceBytes))
      << "the socket has taken all: nothing was shown";
  EXPECT_EQ(receive_frame().kind, FrameKind::kDone);
}

TEST_F(TcpMultiplexer, ANumberIsNotUsedAgain) {
  shake_hands(1);
  served_.connection.reset();
  EXPECT_EQ(receive_frame().kind, FrameKind::kClosed);
  send_message(internal::encode({internal::MessageKind::kHello, {}, {}, {}}), 1);
  shake_hands(2);  // it has read that far
  EXPECT_EQ(served_.hellos, 2);
}

TEST_F(TcpMultiplexer, FirstMessagesMayOvertakeEachOther) {
  shake_hands(2);
  shake_hands(1);
  FrameHeader write = frame(FrameKind::kWrite, 4, 0, kAnswerWhenDone);
  for (const uint32_t channel : {1u, 2u}) {
    write.channel = channel;
    send_frame(write, "fine");
    EXPECT_EQ(receive_frame().channel, channel);
  }
}

TEST_F(TcpMultiplexer, AConnectionThatWasGivenUpUnheardHarmsNobody) {
  FrameHeader closed{};
  closed.kind = FrameKind::kClosed;
  closed.channel = 1;
  send_frame(closed);
  shake_hands(2);
  EXPECT_EQ(served_.hellos, 1);
  send_message(internal::encode({internal::MessageKind::kHello, {}, {}, {}}), 1);
  shake_hands(3);  // it has read that far
  EXPECT_EQ(served_.hellos, 2) << "its number is used up";
}

TEST_F(TcpMultiplexer, ManyConnectAtOnce) {
  hang_up();
  for (int round = 0; round < 30; ++round) {
    auto client = *open_tcp_device(executor_);
    std::vector<std::unique_ptr<Connection>> ours;
    int failed = 0;
    const auto one = [&]() -> base::Task<void> {
      auto connection = co_await client->connect(listener_->uri(), patient());
      if (connection) {
        ours.push_back(std::move(*connection));
      } else {
        ++failed;
      }
    };
    for (int i = 0; i < 5; ++i) executor_.spawn(one());
    ASSERT_TRUE(run_until([&] { return ours.size() + failed == 5; }));
    ASSERT_EQ(failed, 0) << "round " << round;
    ours.clear();
    served_.keep();
    served_.kept.clear();
  }
}

TEST_F(TcpMultiplexer, WhoeverGivesUpConnectingDoesNotHarmTheOthers) {
  hang_up();
  for (int round = 0; round < 10; ++round) {
    auto client = *open_tcp_device(executor_);
    auto given_up = client->connect(listener_->uri(), patient());
    auto other = client->connect(listener_->uri(), patient());
    given_up.start();
    other.start();
    given_up = {};
    ASSERT_TRUE(run_until([&] { return other.done(); }));
    auto connection = other.take();
    ASSERT_TRUE(connection) << connection.error().to_string();
    connection->reset();
    served_.keep();
    served_.kept.clear();
  }
}

// An answer to what has not left yet would give back buffers that are still being sent.
TEST_F(TcpMultiplexer, AnAnswerBeforeTheQuestionHasLeftCostsTheConnection) {
  shake_hands(1);
  std::vector<std::byte> buffer(32u << 20);  // more than the socket takes
  auto own = *device_->register_memory(buffer, Access::kLocal);
  Batch batch;
  batch.write({buffer.data(), static_cast<uint32_t>(buffer.size()), own.get()}, {1, 1});
  Completion completion;
  ASSERT_TRUE(served_.connection->post(batch, &completion));
  run_a_while();
  FrameHeader done{};
  done.kind = FrameKind::kDone;
  done.bytes = 1;
  done.channel = 1;
  send_frame(done);
  expect_cut_off(ErrorCode::kProtocol);
  EXPECT_TRUE(completion.done() && !completion.ok());
}

TEST_F(TcpMultiplexer, ASocketWithoutConnectionsIsClosedAfterAWhile) {
  run_for(5'000'000'000);  // as long as it may be silent, before anything waits for the end
  EXPECT_EQ(receive_bytes(1), "");
  char byte = 0;
  EXPECT_EQ(recv(socket_, &byte, 1, MSG_DONTWAIT), 0) << "closed, not only silent";
}

TEST_F(TcpMultiplexer, ConnectionsToOneServerShareASocket) {
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
    auto connection = executor_.run(client->connect(listener_->uri(), patient()));
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

}  // namespace
}  // namespace pmstore::fabric::tcp
