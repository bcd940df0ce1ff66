// What a turn and a block cost does not depend on how many connections are idle; and an idle
// connection hears and is heard as any other.
#include <cstring>

#include "fabric/shm/internal/shm_device.h"
#include "fabric/tcp/internal/multiplexer_set.h"
#include "fabric/tcp/internal/tcp_device.h"
#include "tests/unit/fabric/open_files.h"
#include "tests/unit/fabric/shm_peer.h"
#include "tests/unit/fabric/tcp_peer.h"

namespace pmstore::fabric {
namespace {

// A turn visits the busy connection where it receives, sends and ticks, and a block once more.
constexpr uint64_t kVisitsOfATurn = 6;

class TcpIdle : public tcp::TcpPeer, public testing::WithParamInterface<base::PollMode> {
 protected:
  TcpIdle() : TcpPeer({.poll = GetParam()}) {}

  void TearDown() override {
    for (const int socket : idle_) close(socket);
    TcpPeer::TearDown();
  }
  void make_idle(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      ASSERT_NO_FATAL_FAILURE(shake_hands());
      idle_.push_back(std::exchange(socket_, -1));
      dial();
    }
  }
  uint64_t visits() {
    return static_cast<tcp::TcpDevice&>(*device_).visits() +
           tcp::MultiplexerSet::of(executor_)->visits();
  }
  void write_and_wait() {
    send_frame(frame(internal::FrameKind::kWrite, 4, 0, internal::kAnswerWhenDone), "busy");
    ASSERT_EQ(receive_frame().kind, internal::FrameKind::kDone);
  }

  const OpenFiles open_files_;
  std::vector<int> idle_;
};

TEST_P(TcpIdle, ConnectionsAreNotVisited) {
  const size_t idle = OpenFiles::at_most(1000, 2);
  ASSERT_GT(idle, kVisitsOfATurn * 10);
  make_idle(idle);
  shake_hands();
  write_and_wait();
  run_a_while();
  const uint64_t visits_before = visits();
  const uint64_t turns_before = turns_.turns;
  for (int i = 0; i < 100; ++i) write_and_wait();
  run_for(20'000'000);
  const uint64_t turns = turns_.turns - turns_before;
  EXPECT_GE(turns, 100u);
  EXPECT_LE(visits() - visits_before, kVisitsOfATurn * turns);
}

// All of them end: none looks at the others.
TEST_P(TcpIdle, EndsOfConnectionsVisitNoOthers) {
  const size_t idle = OpenFiles::at_most(500, 2);
  make_idle(idle);
  std::vector<std::unique_ptr<MemoryRegion>> regions;
  std::vector<std::byte> memory(64);
  for (size_t i = 0; i < idle; ++i) {
    regions.push_back(std::move(*device_->register_memory(memory, Access::kRemoteWrite)));
  }
  run_a_while();
  const uint64_t before = visits();
  regions.clear();
  served_.keep();
  served_.kept.clear();
  EXPECT_LE(visits() - before, 4 * idle);
}

TEST_P(TcpIdle, ConnectionsAreServedAgain) {
  make_idle(20);
  run_a_while();
  for (const int socket : idle_) {
    socket_ = socket;
    write_and_wait();
  }
  socket_ = -1;
}

const auto kPollModes = testing::Values(base::PollMode::kAdaptive, base::PollMode::kNever);
std::string poll_mode_name(const testing::TestParamInfo<base::PollMode>& mode) {
  return mode.param == base::PollMode::kNever ? "Blocking" : "Adaptive";
}
INSTANTIATE_TEST_SUITE_P(Executor, TcpIdle, kPollModes, poll_mode_name);

// Both ends on devices of one executor.
class ShmIdle : public shm::ShmPeer, public testing::WithParamInterface<base::PollMode> {
 protected:
  struct End final : Receiver {
    std::unique_ptr<Connection> connection;
    uint64_t immediates = 0;
    bool over = false;
    void on_immediate(uint32_t) override { ++immediates; }
    void on_disconnect(const Error&) override { over = true; }
  };

  ShmIdle() : ShmPeer({.poll = GetParam()}) {}

  void SetUp() override {
    ShmPeer::SetUp();
    hang_up();
    own_ = std::move(*client_.register_memory(memory_, Access::kLocal));
  }
  void TearDown() override {
    ends_.clear();
    own_.reset();
    ShmPeer::TearDown();
  }
  void connect(size_t count) {
    ConnectOptions options;
    options.timeout_ns = options.operation_timeout_ns = patience_ns();
    for (size_t i = 0; i < count; ++i) {
      auto connected = executor_.run(client_.connect(uri_, options));
      ASSERT_TRUE(connected) << connected.error().to_string();
      ends_.push_back(std::make_unique<End>());
      ends_.back()->connection = std::move(*connected);
      ends_.back()->connection->set_receiver(ends_.back().get());
      served_.keep();
    }
  }
  // The client's end writes, and waits until that is done.
  void write_and_wait(size_t end) {
    Batch batch;
    batch.write({memory_.data(), 8, own_.get()}, region_->remote().at(64));
    auto execute = [](Connection& connection, const Batch& what) -> base::Task<Status> {
      co_return co_await connection.execute(what);
    };
    const Status done = executor_.run(execute(*ends_[end]->connection, batch));
    ASSERT_TRUE(done) << done.error().to_string();
  }

  const OpenFiles open_files_;
  shm::ShmDevice client_{executor_};
  std::unique_ptr<MemoryRegion> own_;
  std::vector<std::unique_ptr<End>> ends_;
};

TEST_P(ShmIdle, ConnectionsAreNotVisited) {
  // As many stay awake as the device says, and a block visits each of them twice.
  constexpr uint64_t kAwake = 16;
  const size_t count = OpenFiles::at_most(200, 8);
  ASSERT_GT(count, 100u);
  connect(count);
  for (int i = 0; i < 1000; ++i) executor_.run_once();
  write_and_wait(0);
  const uint64_t visits_before = device_.visits();
  const uint64_t turns_before = turns_.turns;
  for (int i = 0; i < 200; ++i) write_and_wait(0);
  const uint64_t turns = turns_.turns - turns_before;
  EXPECT_LE(device_.visits() - visits_before, (3 * (kAwake + 1) + kVisitsOfATurn) * turns);
}

// A peer of few need not ring while this end polls: neither makes a system call.
TEST_P(ShmIdle, FewConnectionsStayAwake) {
  if (GetParam() == base::PollMode::kNever) GTEST_SKIP() << "both ends sleep";
  connect(4);
  const uint64_t rings = client_.rings();
  for (int i = 0; i < 1000; ++i) executor_.run_once();
  Batch batch;
  batch.write_immediate({memory_.data(), 0, own_.get()}, {0, 0}, 7);
  for (const auto& end : ends_) ASSERT_TRUE(end->connection->post(batch, nullptr));
  for (int i = 0; i < 10; ++i) executor_.run_once();
  EXPECT_EQ(client_.rings(), rings);
}

TEST_P(ShmIdle, ConnectionsWakeUpForWhatTheirPeersSend) {
  constexpr size_t kMany = 40;
  connect(kMany);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 1000; ++i) executor_.run_once();
    for (size_t end = 0; end < kMany; ++end) ASSERT_NO_FATAL_FAILURE(write_and_wait(end));
  }
}

TEST_P(ShmIdle, ConnectionsWakeUpToSendAndToEnd) {
  constexpr size_t kMany = 40;
  connect(kMany);
  for (int i = 0; i < 1000; ++i) executor_.run_once();
  for (const auto& connection : served_.kept) {
    Batch batch;
    batch.write_immediate({memory_.data(), 0, region_.get()}, {0, 0}, 7);
    ASSERT_TRUE(connection->post(batch, nullptr));
  }
  ASSERT_TRUE(run_until([&] {
    return std::all_of(ends_.begin(), ends_.end(), [](auto& end) { return end->immediates == 1; });
  }));
  for (int i = 0; i < 1000; ++i) executor_.run_once();
  served_.kept.resize(kMany / 2);  // asleep
  ASSERT_TRUE(run_until([&] {
    return std::all_of(ends_.begin() + kMany / 2, ends_.end(), [](auto& end) { return end->over; });
  }));
  ends_.resize(10);
  ASSERT_TRUE(run_until([&] {
    return std::count_if(served_.kept.begin(), served_.kept.end(),
                         [](auto& connection) { return connection->broken(); }) == kMany / 2 - 10;
  }));
}

INSTANTIATE_TEST_SUITE_P(Executor, ShmIdle, kPollModes, poll_mode_name);

}  // namespace
}  // namespace pmstore::fabric
