// Many sockets that one executor serves at once, with io_uring and without.
#include <fcntl.h>

#include <array>
#include <functional>

#include "fabric/tcp/internal/socket_batch.h"
#include "tests/unit/fabric/tcp_peer.h"

namespace pmstore::fabric::tcp {
namespace {

msghdr message_of(iovec* pieces, size_t count) {
  msghdr message{};
  message.msg_iov = pieces;
  message.msg_iovlen = count;
  return message;
}

struct SocketPair {
  SocketPair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0); }
  ~SocketPair() {
    for (const int end : ends) close(end);
  }
  int ends[2];
};

class SocketBatchTest : public testing::Test {
 protected:
  void SetUp() override {
    batch_ = SocketBatch::open();
    if (batch_ == nullptr) GTEST_SKIP() << "this kernel, or container, gives no io_uring";
  }
  std::unique_ptr<SocketBatch> batch_;
};

TEST_F(SocketBatchTest, GivesEachSocketItsOwnResult) {
  SocketPair quiet, full, gone, heard;
  char more[4096] = {};
  while (send(full.ends[0], more, sizeof more, MSG_DONTWAIT) > 0) {
  }
  close(std::exchange(gone.ends[1], -1));
  ASSERT_EQ(send(heard.ends[1], "hello", 5, 0), 5);
  std::array<char, 3> first{};
  std::array<char, 8> second{}, other{};
  iovec two[2] = {{first.data(), first.size()}, {second.data(), second.size()}};
  iovec one[1] = {{other.data(), other.size()}};
  iovec out[2] = {{more, 3}, {more, 4}};
  batch_->add_receive(quiet.ends[0], message_of(one, 1));
  batch_->add_receive(heard.ends[0], message_of(two, 2));
  batch_->add_send(full.ends[0], message_of(out, 1));
  batch_->add_send(gone.ends[0], message_of(out, 2));
  batch_->add_send(heard.ends[0], message_of(out, 2));
  batch_->run();
  EXPECT_EQ(batch_->result(0), -EAGAIN);
  EXPECT_EQ(batch_->result(1), 5);
  EXPECT_EQ(std::string(first.data(), 3) + second.data(), "hello");
  EXPECT_EQ(batch_->result(2), -EAGAIN);
  EXPECT_EQ(batch_->result(3), -EPIPE);
  EXPECT_EQ(batch_->result(4), 7);
  // Nothing is left of it in the next one.
  EXPECT_EQ(batch_->size(), 0u);
  batch_->add_receive(gone.ends[0], message_of(one, 1));
  batch_->run();
  EXPECT_EQ(batch_->result(0), 0) << "the end of the stream";
}

TEST_F(SocketBatchTest, TakesAsManyCallsAsItSays) {
  SocketPair pair;
  iovec one[1] = {{const_cast<char*>("x"), 1}};
  while (!batch_->full()) batch_->add_send(pair.ends[0], message_of(one, 1));
  batch_->run();
  for (unsigned i = 0; i < SocketBatch::kMaxCalls; ++i) EXPECT_EQ(batch_->result(i), 1);
}

// Several peers, each with a socket and a connection of its own.
class TcpSockets : public TcpPeer, public testing::WithParamInterface<bool> {
 protected:
  static constexpr size_t kSockets = 5;

  TcpSockets() : TcpPeer({.poll = base::PollMode::kNever, .io_uring = GetParam()}) {}
  void SetUp() override {
    if (GetParam() && !SocketBatch::open()) GTEST_SKIP() << "io_uring is not to be had here";
    TcpPeer::SetUp();
    shake_hands(1);
    sockets_.push_back(socket_);
    add_sockets(kSockets);
    connections_ = &served_.kept;
  }
  // Until there are `count`.
  void add_sockets(size_t count) {
    while (sockets_.size() < count) {
      dial();
      shake_hands(1);
      sockets_.push_back(socket_);
    }
    served_.keep();
  }
  void TearDown() override {
    if (IsSkipped()) return;
    for (const int fd : sockets_) {
      if (fd != socket_) close(fd);
    }
    TcpPeer::TearDown();
  }
  void use(size_t peer) { socket_ = sockets_[peer]; }

  std::vector<int> sockets_;
  std::vector<std::unique_ptr<Connection>>* connections_ = nullptr;
};

TEST_P(TcpSockets, AreAllAnsweredWhenTheySpeakAtOnce) {
  std::fill(memory_.begin(), memory_.end(), std::byte{'r'});
  for (size_t round = 0; round < 20; ++round) {
    const std::string letter(1, static_cast<char>('a' + round));
    const auto read_bytes = [](size_t peer) { return static_cast<uint32_t>(100 * peer); };
    for (size_t peer = 0; peer < kSockets; ++peer) {
      use(peer);
      if (peer % 2 == 0) {
        send_frame(frame(FrameKind::kWrite, 1, peer, kAnswerWhenDone), letter);
      } else {
        send_frame(frame(FrameKind::kRead, read_bytes(peer), 1000));
      }
    }
    for (size_t peer = 0; peer < kSockets; ++peer) {
      use(peer);
      if (peer % 2 == 0) {
        ASSERT_EQ(receive_frame().kind, FrameKind::kDone);
        EXPECT_EQ(text_at(peer, 1), letter);
      } else {
        ASSERT_EQ(receive_frame().kind, FrameKind::kReadData);
        ASSERT_EQ(receive_bytes(read_bytes(peer)), std::string(read_bytes(peer), 'r'));
      }
    }
  }
}

TEST_P(TcpSockets, ThatSpeakAtOnceAreToldOfBeforeTheFirstIsServed) {
  for (const auto& connection : *connections_) connection->set_receiver(&served_);
  for (uint32_t peer = 0; peer < kSockets; ++peer) {
    use(peer);
    send_frame(request(peer), "a");
  }
  ASSERT_TRUE(run_until([&] { return served_.immediates.size() == kSockets; }));
  // Without io_uring each socket is read and served by itself.
  ASSERT_EQ(served_.told.size(), GetParam() ? kSockets : 0);
  for (const Told& told : served_.told) EXPECT_EQ(told.after, 0u) << told;
}

// Both are there to be read.
TEST_P(TcpSockets, ARequestBesideTheEndOfAnotherSocketIsAlone) {
  for (const auto& connection : *connections_) connection->set_receiver(&served_);
  use(0);
  send_frame(request(7), "a");
  ASSERT_EQ(shutdown(sockets_[1], SHUT_WR), 0);
  ASSERT_TRUE(run_until([&] { return served_.immediates.size() == 1; }));
  ASSERT_TRUE(run_until([&] { return served_.disconnected.has_value(); }));
  EXPECT_TRUE(served_.told.empty());
}

// More than one batch takes.
TEST_P(TcpSockets, MayBeMany) {
  constexpr size_t kMany = SocketBatch::kMaxCalls + 6;
  add_sockets(kMany);
  for (size_t peer = 0; peer < kMany; ++peer) {
    use(peer);
    send_frame(frame(FrameKind::kWrite, 1, peer, kAnswerWhenDone), "m");
  }
  for (size_t peer = 0; peer < kMany; ++peer) {
    use(peer);
    ASSERT_EQ(receive_frame().kind, FrameKind::kDone) << peer;
    EXPECT_EQ(text_at(peer, 1), "m");
  }
}

// One whose socket is full, one that is gone and one that breaks the rules: the others are served.
TEST_P(TcpSockets, DoNotFeelWhatBecomesOfOthers) {
  for (int reads = 0; reads < 20; ++reads) {
    use(0);
    send_frame(frame(FrameKind::kRead, kBytes, 0));
  }
  use(1);
  send_frame(frame(static_cast<FrameKind>(99), 0, 0));
  use(2);
  shutdown(socket_, SHUT_RDWR);
  for (const size_t peer : {3u, 4u}) {
    use(peer);
    send_frame(frame(FrameKind::kWrite, 4, peer * 8, kAnswerWhenDone), "fine");
  }
  for (const size_t peer : {3u, 4u}) {
    use(peer);
    ASSERT_EQ(receive_frame().kind, FrameKind::kDone);
    EXPECT_EQ(text_at(peer * 8, 4), "fine");
  }
  use(0);
  for (size_t bytes = 0; bytes < 20 * kBytes;) {
    const FrameHeader header = receive_frame();
    ASSERT_EQ(header.kind, FrameKind::kReadData);
    ASSERT_EQ(receive_bytes(header.bytes).size(), header.bytes);
    bytes += header.bytes;
  }
  EXPECT_FALSE((*connections_)[0]->broken());
  EXPECT_TRUE((*connections_)[1]->broken());
  EXPECT_TRUE((*connections_)[2]->broken());
}

// Destroys the other connections when its own peer says anything.
struct EndsOthers final : Receiver {
  std::vector<std::unique_ptr<Connection>>* all = nullptr;
  size_t own = 0;
  int heard = 0;
  void on_immediate(uint32_t) override {
    ++heard;
    for (size_t i = 0; i < all->size(); ++i) {
      if (i != own) (*all)[i].reset();
    }
  }
  void on_disconnect(const Error&) override {}
};

// What has been received together with the message that ends them is not delivered: a fenced
// session's last bytes change nothing, wherever in a frame they end.
TEST_P(TcpSockets, ConnectionsThatACallbackDestroysGetNothingMore) {
  std::vector<EndsOthers> receivers(kSockets);
  for (size_t peer = 0; peer < kSockets; ++peer) {
    receivers[peer].all = connections_;
    receivers[peer].own = peer;
    (*connections_)[peer]->set_receiver(&receivers[peer]);
  }
  // The bodies of two have begun.
  for (const size_t peer : {3u, 4u}) {
    use(peer);
    send_frame(frame(FrameKind::kWrite, 20'000, peer * 100'000), std::string(1000, 'b'));
  }
  ASSERT_TRUE(run_until(
      [&] { return memory_[300'999] == std::byte{'b'} && memory_[400'999] == std::byte{'b'}; }));
  run_a_while();  // all sockets are empty: they become readable in the order of what follows
  for (size_t peer = 0; peer < kSockets; ++peer) {
    use(peer);
    if (peer < 3) {
      FrameHeader message = frame(FrameKind::kWriteImmediate, 0, 0);
      send_frame(message);
    } else {
      // And whole frames behind it: whoever counts the body wrongly takes them for something else.
      const std::string rest(19'000, 'c');
      send_bytes(rest.data(), rest.size());
      for (int i = 0; i < 10; ++i) send_frame(frame(FrameKind::kWriteImmediate, 0, 0));
    }
  }
  const auto heard_by_all = [&] {
    int heard = 0;
    for (const EndsOthers& each : receivers) heard += each.heard;
    return heard;
  };
  ASSERT_TRUE(run_until([&] { return heard_by_all() > 0; }));
  run_a_while();
  int alive = 0;
  for (const auto& each : *connections_) alive += each != nullptr ? 1 : 0;
  EXPECT_EQ(heard_by_all(), 1) << "only the first that was heard";
  EXPECT_EQ(alive, 1);
  for (const size_t peer : {3u, 4u}) {
    use(peer);
    ASSERT_EQ(receive_frame().kind, FrameKind::kClosed);
    shake_hands(2);  // the socket has not lost its place
  }
}

struct Calls final : Receiver {
  std::function<void()> call;
  void on_immediate(uint32_t) override { call(); }
  void on_disconnect(const Error&) override {}
};

// The rest of the batch belongs to nobody any more.
TEST_P(TcpSockets, ACallbackMayDestroyEverything) {
  bool destroyed = false;
  Calls receiver;
  receiver.call = [&] {
    served_.kept.clear();
    region_.reset();
    listener_.reset();
    device_.reset();
    destroyed = true;
  };
  for (const auto& each : *connections_) each->set_receiver(&receiver);
  for (size_t peer = 0; peer < kSockets; ++peer) {
    use(peer);
    send_frame(frame(FrameKind::kWriteImmediate, 0, 0));
  }
  ASSERT_TRUE(run_until([&] { return destroyed; }));
  run_a_while();
}

// Without a listener a socket closes with its last connection.
TEST_P(TcpSockets, ACallbackMayCloseTheOtherSockets) {
  bool closed = false;
  Calls receiver;
  receiver.call = [&] {
    if (std::exchange(closed, true)) return;
    for (size_t i = 1; i < kSockets; ++i) (*connections_)[i].reset();
    listener_.reset();
  };
  (*connections_)[0]->set_receiver(&receiver);
  for (size_t peer = 0; peer < kSockets; ++peer) {
    use(peer);
    send_frame(frame(FrameKind::kWriteImmediate, 0, 0));
  }
  ASSERT_TRUE(run_until([&] { return closed; }));
  run_a_while();
  use(0);
  send_frame(frame(FrameKind::kWrite, 4, 0, kAnswerWhenDone), "fine");
  EXPECT_EQ(receive_frame().kind, FrameKind::kDone);
  use(1);
  EXPECT_EQ(receive_frame().kind, FrameKind::kClosed);
}

INSTANTIATE_TEST_SUITE_P(IoUring, TcpSockets, testing::Bool(), [](const auto& with) {
  return std::string(with.param ? "With" : "Without");
});

}  // namespace
}  // namespace pmstore::fabric::tcp
