// What is peculiar to queue pairs; what every provider promises is in tests/scenario/fabric.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "fabric/verbs/internal/device.h"
#include "fabric/verbs/internal/verbs_connection.h"
#include "tests/unit/fabric/verbs/fixture.h"

namespace pmstore::fabric::verbs {
namespace {

class VerbsQueuePair : public VerbsFixture {
 protected:
  void SetUp() override {
    VerbsFixture::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    connect_both();
    target_ = std::make_unique<Buffer>(*server_, 65536, kAll);
    source_ = std::make_unique<Buffer>(*client_, 65536, Access::kLocal);
  }
  void TearDown() override {
    VerbsFixture::TearDown();
    target_.reset();
    source_.reset();
  }
  std::unique_ptr<Buffer> target_;
  std::unique_ptr<Buffer> source_;
};

TEST_F(VerbsQueuePair, ChainIsOneDoorbellAndOneCompletion) {
  source_->word(0) = 0x1122334455667788;
  Batch batch;
  batch.write(source_->local(0, 64), target_->remote(128));
  batch.read(source_->local(64, 64), target_->remote(128));
  const Counters before = connection_->counters();
  ASSERT_TRUE(execute(batch));
  const Counters spent = connection_->counters() - before;
  EXPECT_EQ(spent.doorbells, 1u);
  EXPECT_EQ(spent.work_requests, 2u);
  EXPECT_EQ(spent.completions, 1u);
  EXPECT_EQ(spent.round_trips, 1u);
  EXPECT_EQ(spent.bytes_written, 64u);
  EXPECT_EQ(spent.bytes_read, 64u);
  EXPECT_EQ(source_->word(64), 0x1122334455667788u);
}

TEST_F(VerbsQueuePair, CapabilitiesAreThoseOfASoftwareReliableConnection) {
  const Capabilities& c = connection_->capabilities();
  EXPECT_TRUE(c.read_after_read && c.read_after_write && c.write_after_write &&
              c.atomic_after_write);
  EXPECT_FALSE(c.native_flush);
  EXPECT_TRUE(c.cpu_moves_data) << "this test runs on rxe";
  EXPECT_EQ(c.atomics, AtomicScope::kDevice);
}

TEST_F(VerbsQueuePair, AtomicBehindReadInOneChainTakesEffectAfterIt) {
  target_->word(0) = 5;
  Batch batch;
  batch.read(source_->local(0, 8), target_->remote(0));
  batch.compare_swap(source_->local(8, 8), target_->remote(0), 5, 6);
  batch.fetch_add(source_->local(16, 8), target_->remote(0), 10);
  ASSERT_TRUE(execute(batch));
  EXPECT_EQ(source_->word(0), 5u);
  EXPECT_EQ(source_->word(8), 5u);
  EXPECT_EQ(source_->word(16), 6u);
  EXPECT_EQ(target_->word(0), 16u);
}

TEST_F(VerbsQueuePair, AtomicBehindReadIsSentAgainWhenItHasTo) {
  // The server does not poll, so its receives run out. The next immediate is then refused, and what
  // was sent behind it is thrown away and has to be sent again.
  auto& client = static_cast<VerbsDevice&>(*client_);
  uint32_t sent = 0;
  while (sent < VerbsConnection::kReceives) {
    Batch batch;
    batch.write_immediate({nullptr, 0, nullptr}, target_->remote(0), sent);
    if (connection_->post(batch, nullptr)) ++sent;
    client.poll();
  }
  target_->word(0) = 5;
  Batch batch;
  batch.read(source_->local(0, 8), target_->remote(0));
  batch.write_immediate({nullptr, 0, nullptr}, target_->remote(0), sent);
  batch.fetch_add(source_->local(8, 8), target_->remote(0), 10);
  Completion all;
  ASSERT_TRUE(connection_->post(batch, &all));
  const uint64_t later_ns = executor_.now_ns() + 50'000'000;
  while (executor_.now_ns() < later_ns) client.poll();
  EXPECT_FALSE(all.done());

  ASSERT_TRUE(run_until([&] { return all.done(); }));
  ASSERT_TRUE(all.ok()) << connection_->why_broken().to_string();
  EXPECT_EQ(source_->word(0), 5u);
  EXPECT_EQ(source_->word(8), 5u);
  EXPECT_EQ(target_->word(0), 15u);
  EXPECT_TRUE(run_until([&] { return server_receiver_.immediates.size() == sent + 1; }));
}

TEST_F(VerbsQueuePair, UnsignaledBatchesGiveTheirRoomBack) {
  // Many times the queue, never with a Completion: only forced signals can free it.
  constexpr uint32_t kPosts = 5 * VerbsConnection::kSlots;
  uint32_t posted = 0;
  ASSERT_TRUE(run_until([&] {
    Batch batch;
    source_->word(8 * (posted % 8)) = posted;
    batch.write(source_->local(8 * (posted % 8), 8), target_->remote(0));
    const Status status = connection_->post(batch, nullptr);
    if (status) ++posted;
    EXPECT_TRUE(status || status.code() == ErrorCode::kBackPressure);
    return posted == kPosts;
  }));
  Batch last;
  last.read(source_->local(256, 8), target_->remote(0));
  ASSERT_TRUE(execute(last));
  EXPECT_GE(connection_->counters().completions, kPosts / VerbsConnection::kSignalEvery);
  EXPECT_LE(connection_->counters().completions, kPosts / VerbsConnection::kSignalEvery + 2);
}

TEST_F(VerbsQueuePair, FullQueueIsBackPressureAndPostsNothing) {
  Batch batch;
  for (size_t i = 0; i < Batch::kMaxWorkRequests; ++i) {
    batch.write(source_->local(64 * i, 64), target_->remote(64 * i));
  }
  std::vector<std::unique_ptr<Completion>> all;
  Status status;
  while (status) {
    all.push_back(std::make_unique<Completion>());
    status = connection_->post(batch, all.back().get());
  }
  EXPECT_EQ(status.code(), ErrorCode::kBackPressure);
  EXPECT_TRUE(all.back()->idle());
  all.pop_back();
  EXPECT_EQ(connection_->counters().doorbells, all.size());
  EXPECT_EQ(all.size(), VerbsConnection::kSendRequests / Batch::kMaxWorkRequests);
  EXPECT_TRUE(run_until([&] { return all.back()->done(); }));
  for (const auto& completion : all) EXPECT_TRUE(completion->ok());
  EXPECT_TRUE(execute(batch)) << "and there is room again";
}

TEST_F(VerbsQueuePair, ImmediatesBeyondTheReceivesAllArrive) {
  // Several times the posted receives, while the server keeps polling.
  constexpr uint32_t kCount = 3 * VerbsConnection::kReceives;
  uint32_t sent = 0;
  ASSERT_TRUE(run_until([&] {
    Batch batch;
    batch.write_immediate({nullptr, 0, nullptr}, target_->remote(0), sent);
    if (sent < kCount && connection_->post(batch, nullptr)) ++sent;
    return server_receiver_.immediates.size() == kCount;
  }));
  for (uint32_t i = 0; i < kCount; ++i) ASSERT_EQ(server_receiver_.immediates[i], i);
}

TEST_F(VerbsQueuePair, ImmediatesWaitForTheFirstReceiver) {
  RecordingReceiver late;
  acceptor_.receiver = nullptr;
  auto second = connect();
  ASSERT_TRUE(second);
  ASSERT_TRUE(run_until([&] { return acceptor_.connections.size() == 2; }));
  Batch batch;
  source_->word(0) = 77;
  batch.write_immediate(source_->local(0, 8), target_->remote(0), 1);
  batch.write_immediate(source_->local(0, 8), target_->remote(8), 2);
  ASSERT_TRUE(execute(**second, batch));
  second->reset();
  ASSERT_TRUE(run_until([&] { return acceptor_.connections[1]->broken(); }));
  acceptor_.connections[1]->set_receiver(&late);
  ASSERT_TRUE(run_until([&] { return !late.disconnects.empty(); }));
  EXPECT_EQ(late.immediates, (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(late.disconnects.size(), 1u);
}

TEST_F(VerbsQueuePair, AccessOutsideWhatWasGrantedBreaksTheConnection) {
  Buffer readable(*server_, 4096, Access::kRemoteRead);
  Batch batch;
  batch.write(source_->local(0, 64), readable.remote(0));
  Batch behind;
  behind.read(source_->local(64, 64), target_->remote(0));
  Completion first;
  Completion second;
  ASSERT_TRUE(connection_->post(batch, &first));
  ASSERT_TRUE(connection_->post(behind, &second));
  ASSERT_TRUE(run_until([&] { return !client_receiver_.disconnects.empty(); }));
  EXPECT_TRUE(first.done() && !first.ok());
  EXPECT_TRUE(second.done() && !second.ok());
  EXPECT_EQ(client_receiver_.disconnects[0].code, ErrorCode::kAccess);
  EXPECT_EQ(connection_->post(behind, nullptr).code(), ErrorCode::kDisconnected);
  EXPECT_TRUE(run_until([&] { return !server_receiver_.disconnects.empty(); }));
}

TEST_F(VerbsQueuePair, RequestThatTheDeviceRefusesBreaksTheConnectionAtOnce) {
  Batch good;
  good.read(source_->local(0, 8), target_->remote(0));
  Completion before;
  ASSERT_TRUE(connection_->post(good, &before));
  Batch misaligned;
  misaligned.fetch_add(source_->local(8, 8), target_->remote(4), 1);
  Completion never;
  const Status status = connection_->post(misaligned, &never);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.code(), ErrorCode::kDisconnected);
  EXPECT_TRUE(never.idle());
  EXPECT_TRUE(connection_->broken());
  EXPECT_EQ(connection_->why_broken().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(client_receiver_.disconnects.empty()) << "told from polling, not from post()";
  ASSERT_TRUE(run_until([&] { return !client_receiver_.disconnects.empty(); }));
  EXPECT_TRUE(before.done()) << "with what was outstanding delivered first";
}

TEST_F(VerbsQueuePair, IdlePeerSeesTheOtherEndClose) {
  const uint64_t start_ns = executor_.now_ns();
  connection_.reset();
  ASSERT_TRUE(run_until([&] { return !server_receiver_.disconnects.empty(); }));
  EXPECT_EQ(server_receiver_.disconnects[0].code, ErrorCode::kDisconnected);
  EXPECT_LT(executor_.now_ns() - start_ns, 2'000'000'000u);
}

TEST_F(VerbsQueuePair, NothingLandsAfterTheTargetsEndIsDestroyed) {
  // Writes keep coming; the target destroys its end in the middle of them.
  uint64_t value = 0;
  bool destroyed = false;
  uint64_t seen = 0;
  run_until([&] {
    const size_t slot = 8 * (value % 512);
    source_->word(slot) = ++value;
    Batch batch;
    batch.write(source_->local(slot, 8), target_->remote(0));
    (void)connection_->post(batch, nullptr);
    if (!destroyed && target_->word(0) > 100) {
      acceptor_.connections.clear();
      destroyed = true;
      seen = target_->word(0);
    }
    return destroyed && connection_->broken();
  });
  EXPECT_TRUE(connection_->broken());
  EXPECT_EQ(target_->word(0), seen);
}

TEST_F(VerbsQueuePair, LoopbackDoesAtomicsOnOwnMemory) {
  auto loop = executor_.run(server_->loopback());
  ASSERT_TRUE(loop) << loop.error().to_string();
  Buffer old(*server_, 64, Access::kLocal);
  target_->word(64) = 41;
  Batch batch;
  batch.compare_swap(old.local(0, 8), target_->remote(64), 41, 42);
  batch.fetch_add(old.local(8, 8), target_->remote(64), 8);
  ASSERT_TRUE(execute(**loop, batch));
  EXPECT_EQ(old.word(0), 41u);
  EXPECT_EQ(old.word(8), 42u);
  EXPECT_EQ(target_->word(64), 50u);

  RecordingReceiver self;
  (*loop)->set_receiver(&self);
  Batch immediate;
  immediate.write_immediate(old.local(0, 8), target_->remote(72), 9);
  ASSERT_TRUE(execute(**loop, immediate));
  EXPECT_TRUE(run_until([&] { return self.immediates == std::vector<uint32_t>{9}; }));
}

TEST_F(VerbsQueuePair, RequestsThatCannotBeMadeAreRefusedWhole) {
  Batch batch;
  batch.write(source_->local(0, 8), target_->remote(0));
  batch.flush(8, target_->remote(0));
  EXPECT_EQ(connection_->post(batch, nullptr).code(), ErrorCode::kUnsupported);
  Batch huge;
  huge.write({source_->memory.get(), 1u << 30, source_->region.get()}, target_->remote(0));
  EXPECT_EQ(connection_->post(huge, nullptr).code(), ErrorCode::kTooLarge);
  EXPECT_EQ(connection_->counters().doorbells, 0u);
  EXPECT_FALSE(connection_->broken());
}

// A server in a process of its own, so that it can be killed. It writes its port into a pipe.
pid_t start_server(const std::string& host, uint16_t& port, uint64_t& address, uint64_t& key) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    close(pipe_ends[0]);
    base::RealClock clock;
    base::Executor executor(clock);
    auto device = open_verbs_device(executor).value();
    Buffer memory(*device, 4096, kAll);
    RecordingReceiver receiver;
    RecordingAcceptor acceptor;
    acceptor.receiver = &receiver;
    auto listener = device->listen(Uri{Scheme::kVerbs, host, 0}, acceptor).value();
    const uint64_t told[3] = {listener->uri().port, memory.remote(0).address, memory.remote(0).key};
    if (write(pipe_ends[1], told, sizeof(told)) != sizeof(told)) _exit(1);
    executor.run_until_stopped();
  }
  close(pipe_ends[1]);
  uint64_t told[3] = {};
  const bool heard = read(pipe_ends[0], told, sizeof(told)) == sizeof(told);
  close(pipe_ends[0]);
  port = static_cast<uint16_t>(told[0]);
  address = told[1];
  key = told[2];
  return heard ? child : -1;
}

// Before any device is open in this process: verbs and fork do not mix.
class VerbsPeerProcess : public VerbsFixture {
 protected:
  void SetUp() override {
    if (const char* host = std::getenv("PMSTORE_GUEST_ADDR")) {
      child_ = start_server(host, port_, memory_.address, memory_.key);
      ASSERT_GT(child_, 0);
    }
    VerbsFixture::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    connect_to_child(8'000'000'000);
  }
  void connect_to_child(uint64_t operation_timeout_ns) {
    ConnectOptions options;
    options.timeout_ns = kPatienceNs;
    options.operation_timeout_ns = operation_timeout_ns;
    auto made = executor_.run(client_->connect(Uri{Scheme::kVerbs, host_, port_}, options));
    ASSERT_TRUE(made) << made.error().to_string();
    connection_ = std::move(*made);
    connection_->set_receiver(&client_receiver_);
  }
  void TearDown() override {
    VerbsFixture::TearDown();
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
  }
  pid_t child_ = 0;
  uint16_t port_ = 0;
  RemoteAddress memory_{};
};

TEST_F(VerbsPeerProcess, KilledPeerIsNoticedByAnIdleConnection) {
  connect_to_child(10 * kPatienceNs);  // whose probes would be too late
  kill(child_, SIGKILL);
  ASSERT_TRUE(run_until([&] { return !client_receiver_.disconnects.empty(); }));
  EXPECT_EQ(client_receiver_.disconnects[0].code, ErrorCode::kDisconnected);
}

TEST_F(VerbsPeerProcess, StoppedPeerProcessStillServesOneSidedRequests) {
  kill(child_, SIGSTOP);
  Buffer source(*client_, 64, Access::kLocal);
  Batch batch;
  batch.write(source.local(0, 8), memory_);
  batch.read(source.local(8, 8), memory_);
  EXPECT_TRUE(execute(batch));
}

TEST_F(VerbsPeerProcess, PeerThatStopsReceivingIsTimeout) {
  // Stopped, it posts no receives any more: receiver-not-ready forever, which only the operation
  // timeout ends.
  kill(child_, SIGSTOP);
  Batch batch;
  batch.write_immediate({nullptr, 0, nullptr}, memory_, 1);
  std::vector<std::unique_ptr<Completion>> all;
  ASSERT_TRUE(run_until([&] {
    if (all.size() < VerbsConnection::kReceives + 100) {
      auto completion = std::make_unique<Completion>();
      if (connection_->post(batch, completion.get())) all.push_back(std::move(completion));
    }
    return connection_->broken();
  }));
  EXPECT_EQ(connection_->why_broken().code, ErrorCode::kTimeout)
      << connection_->why_broken().message;
  EXPECT_TRUE(all.back()->done() && !all.back()->ok());
}

TEST_F(VerbsPeerProcess, IdleConnectionIsProbedAndLives) {
  const Counters before = connection_->counters();
  EXPECT_FALSE(run_until([&] { return connection_->broken(); }, 14'000'000'000));
  EXPECT_EQ((connection_->counters() - before).completions, 0u) << "probes are not the user's";
  Buffer source(*client_, 64, Access::kLocal);
  Batch batch;
  batch.read(source.local(0, 8), memory_);
  EXPECT_TRUE(execute(batch));
}

}  // namespace
}  // namespace pmstore::fabric::verbs
