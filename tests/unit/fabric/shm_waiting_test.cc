// Two ends of shm connections that poll make no system call, and two that block are woken: no
// wake-up is lost.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/random.h"
#include "fabric/shm/internal/shm_device.h"

namespace pmstore::fabric::shm {
namespace {

constexpr size_t kBytes = 4u << 20;

base::ExecutorOptions polling(base::PollMode poll) {
  base::ExecutorOptions options;
  options.poll = poll;
  return options;
}

// A server with a thread of its own.
class Server final : Acceptor, Receiver {
 public:
  Server(base::PollMode poll, const Uri& uri) : poll_(poll), uri_(uri) {
    thread_ = std::thread([this] { serve(); });
    while (!up_) std::this_thread::yield();
  }
  ~Server() override { stop(); }
  void stop() {
    if (!thread_.joinable()) return;
    executor_.load()->request_stop();
    thread_.join();
  }
  uint64_t rings() const { return rings_; }  // after stop()

 private:
  void serve() {
    base::RealClock clock;
    base::Executor executor(clock, polling(poll_));
    executor_ = &executor;
    ShmDevice device(executor);
    std::vector<std::byte> memory(kBytes);
    auto region =
        std::move(*device.register_memory(memory, Access::kRemoteRead | Access::kRemoteWrite));
    region_ = region->remote();
    auto listener = std::move(*device.listen(uri_, *this));
    up_ = true;
    executor.run_until_stopped();
    connection_.reset();
    rings_ = device.rings();
  }
  Result<std::vector<std::byte>> on_hello(uint64_t, std::span<const std::byte>) override {
    std::vector<std::byte> hello(sizeof region_);
    std::memcpy(hello.data(), &region_, sizeof region_);
    return hello;
  }
  void on_connected(uint64_t, std::unique_ptr<Connection> made) override {
    connection_ = std::move(made);
    connection_->set_receiver(this);
  }
  void on_abandoned(uint64_t) override {}
  void on_immediate(uint32_t) override {}
  void on_disconnect(const Error&) override {}

  const base::PollMode poll_;
  const Uri uri_;
  RemoteRegion region_;
  std::unique_ptr<Connection> connection_;
  std::atomic<base::Executor*> executor_{nullptr};
  std::atomic<bool> up_{false};
  uint64_t rings_ = 0;
  std::thread thread_;
};

class ShmWaiting : public testing::Test {
 protected:
  // Connects a client, and runs `work` on it. Gives how often the client has rung.
  template <typename Work>
  void run(base::PollMode client_poll, base::PollMode server_poll, Work work) {
    Server server(server_poll, uri_);
    base::RealClock clock;
    base::Executor executor(clock, polling(client_poll));
    {
      ShmDevice device(executor);
      std::vector<std::byte> memory(kBytes);
      auto region = std::move(*device.register_memory(memory, Access::kLocal));
      ConnectOptions options;
      options.timeout_ns = options.operation_timeout_ns = 60'000'000'000;
      auto connected = executor.run(device.connect(uri_, options));
      ASSERT_TRUE(connected) << connected.error().to_string();
      RemoteRegion remote;
      std::memcpy(&remote, (*connected)->peer_hello().data(), sizeof remote);
      const uint64_t before = device.rings();
      const Status done = executor.run(work(executor, **connected, *region, remote));
      EXPECT_TRUE(done) << done.error().to_string();
      client_rings_ = device.rings() - before;
    }
    server.stop();
    server_rings_ = server.rings();
  }

  // Writes and reads back, so often, up to so many bytes, with pauses.
  static base::Task<Status> exchange(base::Executor& executor, Connection& connection,
                                     MemoryRegion& region, RemoteRegion remote, int times,
                                     uint32_t max_bytes, uint64_t max_pause_ns) {
    base::Random random(static_cast<uint64_t>(times));
    std::byte* const memory = region.bytes().data();
    for (int i = 0; i < times; ++i) {
      const auto bytes = static_cast<uint32_t>(1 + random.below(max_bytes));
      std::memset(memory, i, bytes);
      Batch batch;
      batch.write({memory, bytes, &region}, remote.at(0));
      batch.read({memory + kBytes / 2, bytes, &region}, remote.at(0));
      PMSTORE_CO_TRY_STATUS(co_await connection.execute(batch));
      if (std::memcmp(memory, memory + kBytes / 2, bytes) != 0) {
        co_return make_error(ErrorCode::kProtocol, "what was written is not what was read");
      }
      if (max_pause_ns > 0) co_await executor.sleep_for(random.below(max_pause_ns));
    }
    co_return Status{};
  }

  const Uri uri_{Scheme::kShm, "waiting-" + std::to_string(getpid()), 0};
  uint64_t client_rings_ = 0;
  uint64_t server_rings_ = 0;
};

TEST_F(ShmWaiting, TwoBusyEndsMakeNoSystemCall) {
  run(base::PollMode::kAlways, base::PollMode::kAlways,
      [](base::Executor& executor, Connection& connection, MemoryRegion& region,
         const RemoteRegion& remote) {
        return exchange(executor, connection, region, remote, 500, 1000, 0);
      });
  EXPECT_EQ(client_rings_, 0u);
  EXPECT_EQ(server_rings_, 0u);
}

TEST_F(ShmWaiting, ABlockedEndIsRungOnceAtMostForEachBatch) {
  run(base::PollMode::kNever, base::PollMode::kNever,
      [](base::Executor& executor, Connection& connection, MemoryRegion& region,
         const RemoteRegion& remote) {
        return exchange(executor, connection, region, remote, 300, 8, 100'000);
      });
  EXPECT_GT(client_rings_ + server_rings_, 0u);
  EXPECT_LE(client_rings_, 300u);
  EXPECT_LE(server_rings_, 300u);
}

TEST_F(ShmWaiting, NoWakeUpIsLostWhenBothBlock) {
  for (const auto mode : {base::PollMode::kNever, base::PollMode::kAdaptive}) {
    run(mode, base::PollMode::kNever,
        [](base::Executor& executor, Connection& connection, MemoryRegion& region,
           const RemoteRegion& remote) {
          return exchange(executor, connection, region, remote, 5000, 64, 20'000);
        });
  }
}

TEST_F(ShmWaiting, NoWakeUpIsLostWhenARingIsFull) {
  run(base::PollMode::kNever, base::PollMode::kNever,
      [](base::Executor& executor, Connection& connection, MemoryRegion& region,
         const RemoteRegion& remote) {
        return exchange(executor, connection, region, remote, 100, 6 * kRingBytes, 1000);
      });
}

}  // namespace
}  // namespace pmstore::fabric::shm
