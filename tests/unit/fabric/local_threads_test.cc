// The local provider between two threads. These mean most under the thread sanitizer.
#include <atomic>
#include <chrono>
#include <thread>

#include "base/random.h"
#include "fabric/local/local_device.h"
#include "tests/harness/patience.h"
#include "tests/unit/fabric/local_pair.h"
#include "tests/unit/fabric/turn_counter.h"

namespace pmstore::fabric {
namespace {

// A server with an executor and a thread of its own. `prepare` and `finish` run on that thread.
class ServerThread {
 public:
  explicit ServerThread(const Uri& uri) {
    thread_ = std::thread([this, uri] {
      device_ = open_local(executor_);
      memory_ = std::make_unique<Memory>(*device_, 64 << 10, kEverything);
      acceptor_.receiver = &receiver_;
      acceptor_.answer.resize(sizeof(RemoteRegion));
      std::memcpy(acceptor_.answer.data(), &memory_->region->remote(), sizeof(RemoteRegion));
      auto listener = device_->listen(uri, acceptor_);
      EXPECT_TRUE(listener);
      ready_.store(true);
      executor_.run_until_stopped();
      listener->reset();
      acceptor_.connections.clear();
      memory_.reset();
      device_.reset();
    });
    while (!ready_.load()) std::this_thread::yield();
  }
  ~ServerThread() { stop(); }
  void stop() {
    executor_.request_stop();
    if (thread_.joinable()) thread_.join();
  }
  // Runs `work` on the server's thread and waits for it.
  template <typename Work>
  void run(Work work) {
    std::atomic<bool> done{false};
    executor_.post_remote([&] {
      work();
      done.store(true);
    });
    while (!done.load()) std::this_thread::yield();
  }

  RecordingReceiver receiver_;
  KeepingAcceptor acceptor_;
  std::unique_ptr<Memory> memory_;

 private:
  base::RealClock clock_;
  base::Executor executor_{clock_};
  std::unique_ptr<Device> device_;
  std::atomic<bool> ready_{false};
  std::thread thread_;
};

class LocalThreads : public testing::Test {
 protected:
  std::unique_ptr<Connection> connect() {
    auto made = executor_.run(device_->connect(uri_, {}));
    EXPECT_TRUE(made);
    if (!made) return nullptr;
    std::memcpy(&target_, (*made)->peer_hello().data(), sizeof(target_));
    return std::move(*made);
  }

  const Uri uri_ = fresh_local_uri();
  ServerThread server_{uri_};
  base::RealClock clock_;
  base::Executor executor_{clock_};
  std::unique_ptr<Device> device_ = open_local(executor_);
  Memory memory_{*device_, 64 << 10, kEverything};
  RemoteRegion target_;
};

TEST_F(LocalThreads, TheFenceHoldsForPlainStores) {
  base::Random random(7);
  for (int round = 0; round < 30; ++round) {
    auto connection = connect();
    ASSERT_NE(connection, nullptr);
    const uint64_t spins = random.below(3000);
    std::atomic<bool> writing{false};
    std::thread fence([&] {
      while (!writing.load()) std::this_thread::yield();
      for (uint64_t i = 0; i < spins; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
      server_.run([&] {
        server_.acceptor_.connections.clear();
        // Plain stores: a race, if anything could still land.
        std::memset(server_.memory_->bytes.data(), 0xee, 8192);
      });
    });
    uint64_t posts = 0;
    Status status;
    do {
      memory_.set_word(0, ++posts);
      Batch batch;
      for (size_t i = 0; i < 16; ++i) batch.write(memory_.at(0, 512), target_.at(i * 512));
      status = connection->post(batch, nullptr);
      writing.store(true);
    } while (status);
    fence.join();
    server_.run([&] {
      for (size_t i = 0; i < 8192; ++i) ASSERT_EQ(server_.memory_->bytes[i], std::byte{0xee});
    });
    EXPECT_TRUE(connection->broken());
  }
}

TEST_F(LocalThreads, WhatIsOnItsWayIsNotKnown) {
  const auto connection = connect();
  ASSERT_NE(connection, nullptr);
  EXPECT_EQ(connection->arrivals(), Arrivals::kUnknown) << "the other thread may be posting";
}

TEST_F(LocalThreads, DataIsThereWhenItsImmediateIs) {
  struct Checking final : Receiver {
    Memory* memory = nullptr;
    uint32_t next = 0;
    uint64_t wrong = 0;
    std::atomic<uint32_t> seen{0};
    void on_immediate(uint32_t immediate) override {
      wrong += immediate != next++;
      wrong += memory->word(immediate % 64 * 64) != immediate;  // plain reads
      seen.store(next);
    }
    void on_disconnect(const Error&) override {}
  } checking;
  auto connection = connect();
  ASSERT_NE(connection, nullptr);
  server_.run([&] {
    checking.memory = server_.memory_.get();
    server_.acceptor_.connections[0]->set_receiver(&checking);
  });
  constexpr uint32_t kCount = 20'000;
  for (uint32_t i = 0; i < kCount; ++i) {
    while (i - checking.seen.load() >= 64) std::this_thread::yield();
    memory_.set_word(0, i);
    Batch batch;
    batch.write_immediate(memory_.at(0, 8), target_.at(i % 64 * 64), i);
    ASSERT_TRUE(connection->post(batch, nullptr));
  }
  while (checking.seen.load() < kCount) std::this_thread::yield();
  EXPECT_EQ(checking.wrong, 0u);
  connection.reset();
  server_.stop();
}

TEST_F(LocalThreads, RemoteAtomicsAreAtomicAgainstTheTargetsCpu) {
  auto connection = connect();
  ASSERT_NE(connection, nullptr);
  constexpr uint64_t kRounds = 20'000;
  std::atomic<bool> cpu_done{false};
  std::thread cpu([&] {
    server_.run([&] {
      auto* word = reinterpret_cast<uint64_t*>(server_.memory_->bytes.data());
      for (uint64_t i = 0; i < kRounds; ++i) __atomic_fetch_add(word, 1, __ATOMIC_RELAXED);
    });
    cpu_done.store(true);
  });
  for (uint64_t i = 0; i < kRounds; ++i) {
    Batch batch;
    batch.fetch_add(memory_.at(0, 8), target_.at(0), 1);
    ASSERT_TRUE(connection->post(batch, nullptr));
  }
  cpu.join();
  server_.run([&] { EXPECT_EQ(server_.memory_->word(0), 2 * kRounds); });
}

TEST_F(LocalThreads, BothEndsMayBeDestroyedAtOnce) {
  for (int round = 0; round < 200; ++round) {
    auto connection = connect();
    ASSERT_NE(connection, nullptr);
    std::atomic<bool> go{false};
    std::thread other([&] {
      while (!go.load()) std::this_thread::yield();
      server_.run([&] { server_.acceptor_.connections.clear(); });
    });
    Batch batch;
    batch.write_immediate(memory_.at(0, 8), target_.at(0), 1);
    go.store(true);
    for (int i = 0; i < round % 7; ++i) (void)connection->post(batch, nullptr);
    connection.reset();
    other.join();
  }
}

// While it lives, the server is busy, until it is released. It runs out of patience when a client
// sleeps for ever, so that a test fails instead of hanging.
class BusyServer {
 public:
  explicit BusyServer(ServerThread& server)
      : thread_([this, &server] { server.run([this] { be_busy(); }); }) {
    while (!busy_.load()) std::this_thread::yield();
  }
  ~BusyServer() {
    release();
    thread_.join();
  }
  // Any thread.
  void release() { released_.store(true); }

 private:
  void be_busy() {
    const base::RealClock clock;
    const uint64_t deadline = clock.now_ns() + harness::patience_ns();
    busy_.store(true);
    while (!released_.load() && clock.now_ns() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  std::atomic<bool> busy_{false};
  std::atomic<bool> released_{false};
  std::thread thread_;  // the last: it uses the others
};

// A client that blocks.
class LocalWaiting : public LocalThreads {
 protected:
  void SetUp() override { blocking_.add_poller(&turns_); }
  void TearDown() override { blocking_.remove_poller(&turns_); }

  TurnCounter turns_;
  base::Executor blocking_{clock_, {.poll = base::PollMode::kNever}};
  std::unique_ptr<Device> client_ = open_local(blocking_);
};

TEST_F(LocalWaiting, AClientSleepsUntilItsHandshakeIsAnswered) {
  BusyServer busy(server_);
  std::thread soon([&busy] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    busy.release();
  });
  ConnectOptions patient;
  patient.timeout_ns = harness::patience_ns();
  const uint64_t before = turns_.turns;
  const uint64_t before_ns = clock_.now_ns();
  auto connected = blocking_.run(client_->connect(uri_, patient));
  EXPECT_LE(turns_.turns - before, 100u) << "it looks again and again";
  EXPECT_LT(clock_.now_ns() - before_ns, patient.timeout_ns) << "it sleeps too long";
  soon.join();
  ASSERT_TRUE(connected) << connected.error().to_string();
}

TEST_F(LocalWaiting, AClientWakesAListenerThatSleeps) {
  for (int time = 0; time < 3; ++time) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    auto connected = blocking_.run(client_->connect(uri_, {}));
    ASSERT_TRUE(connected) << connected.error().to_string();
  }
}

TEST_F(LocalWaiting, AHandshakeThatIsNotAnsweredInTimeIsATimeout) {
  BusyServer busy(server_);
  ConnectOptions impatient;
  impatient.timeout_ns = 5'000'000;
  const uint64_t before = turns_.turns;
  auto connected = blocking_.run(client_->connect(uri_, impatient));
  EXPECT_LE(turns_.turns - before, 100u);
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.code(), ErrorCode::kTimeout);
}

TEST_F(LocalWaiting, WhatArrivesAtABlockedEndWakesIt) {
  auto connected = blocking_.run(client_->connect(uri_, {}));
  ASSERT_TRUE(connected) << connected.error().to_string();
  struct Awaited final : Receiver {
    explicit Awaited(base::Executor& executor) : told(executor) {}
    void on_immediate(uint32_t) override {
      ++immediates;
      told.notify_all();
    }
    void on_disconnect(const Error&) override {
      disconnected = true;
      told.notify_all();
    }
    base::WaitList told;
    std::atomic<uint32_t> immediates = 0;
    bool disconnected = false;
  } received(blocking_);
  (*connected)->set_receiver(&received);
  Memory memory(*client_, 4096, kEverything);
  const RemoteRegion remote = memory.region->remote();
  constexpr uint32_t kTimes = 20;
  std::thread sender([&] {
    for (uint32_t i = 0; i < kTimes; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      server_.run([&] {
        Batch batch;
        batch.write_immediate(server_.memory_->at(0, 8), remote.at(0), i);
        EXPECT_TRUE(server_.acceptor_.connections[0]->post(batch, nullptr));
      });
      // The end of the connection, which wakes too, comes only behind the last one.
      const uint64_t deadline_ns = clock_.now_ns() + harness::patience_ns();
      while (received.immediates <= i && clock_.now_ns() < deadline_ns) std::this_thread::yield();
      EXPECT_EQ(received.immediates, i + 1);
      if (received.immediates <= i) break;
    }
    server_.run([&] { server_.acceptor_.connections.clear(); });
  });
  const auto until_closed = [&]() -> base::Task<void> {
    while (!received.disconnected) co_await received.told.wait();
  };
  blocking_.run(until_closed());
  sender.join();
  EXPECT_EQ(received.immediates, kTimes);
  connected->reset();
}

// Two executors, as of two threads, step by step in one: what each device says before its executor
// blocks.
class LocalArm : public testing::Test {
 protected:
  LocalArm() { acceptor_.receiver = &server_receiver_; }
  void SetUp() override {
    auto listener = server_.listen(uri_, acceptor_);
    ASSERT_TRUE(listener);
    listener_ = std::move(*listener);
  }
  bool arm(LocalDevice& device) {
    const bool armed = device.arm();
    if (armed) device.disarm();
    return armed;
  }
  void start_connecting() {
    connecting_ = client_.connect(uri_, {});
    connecting_.start();
  }
  std::unique_ptr<Connection> finish_connecting() {
    while (!connecting_.done()) {
      server_executor_.run_once();
      client_executor_.run_once();
    }
    auto made = connecting_.take();
    EXPECT_TRUE(made);
    return made ? std::move(*made) : nullptr;
  }

  base::RealClock clock_;
  base::Executor server_executor_{clock_};
  base::Executor client_executor_{clock_};
  LocalDevice server_{server_executor_};
  LocalDevice client_{client_executor_};
  const Uri uri_ = fresh_local_uri();
  RecordingReceiver server_receiver_;
  KeepingAcceptor acceptor_;
  std::unique_ptr<Listener> listener_;
  base::Task<Result<std::unique_ptr<Connection>>> connecting_;
};

TEST_F(LocalArm, AListenerForWhichAClientWaitsDoesNotBlock) {
  EXPECT_TRUE(arm(server_));
  start_connecting();
  EXPECT_FALSE(arm(server_));
  server_executor_.run_once();
  EXPECT_TRUE(arm(server_));
  finish_connecting();
}

TEST_F(LocalArm, AClientThatIsAnsweredDoesNotBlock) {
  start_connecting();
  EXPECT_TRUE(arm(client_));
  EXPECT_NE(client_.next_event_ns(), base::Poller::kNoEvent) << "its timeout";
  server_executor_.run_once();
  EXPECT_FALSE(arm(client_));
  finish_connecting();
  EXPECT_TRUE(arm(client_));
  EXPECT_EQ(client_.next_event_ns(), base::Poller::kNoEvent);
}

TEST_F(LocalArm, ADeviceForWhichAnotherThreadHasScheduledSomethingDoesNotBlock) {
  start_connecting();
  auto connection = finish_connecting();
  ASSERT_NE(connection, nullptr);
  Memory target(server_, 4096, kEverything);
  Memory source(client_, 4096, kEverything);
  EXPECT_TRUE(arm(server_));
  Batch batch;
  batch.write_immediate(source.at(0, 8), target.remote(0), 5);
  ASSERT_TRUE(connection->post(batch, nullptr));
  EXPECT_FALSE(arm(server_));
  server_executor_.run_once();
  EXPECT_EQ(server_receiver_.immediates.size(), 1u);
  EXPECT_TRUE(arm(server_));
}

TEST_F(LocalPair, ADeviceThatHasSomethingToDeliverDoesNotBlock) {
  auto& server = static_cast<LocalDevice&>(*server_);
  EXPECT_TRUE(server.arm());
  Batch batch;
  batch.write_immediate(client_memory_->at(0, 8), server_memory_->remote(0), 5);
  ASSERT_TRUE(connection_->post(batch, nullptr));
  EXPECT_FALSE(server.arm());
  turns(2);
  EXPECT_EQ(server_receiver_.immediates.size(), 1u);
  EXPECT_TRUE(server.arm());
}

}  // namespace
}  // namespace pmstore::fabric
