// A real server on a pool in plain memory, and clients of it, on one executor in virtual time.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "pmstore/client.h"
#include "pmstore/server.h"
#include "tests/crash/crash_image.h"
#include "tests/harness/numbered_client.h"

namespace pmstore::testing {

// Counts the jumps of the time: none but a test's own where no timer runs.
class CountedClock final : public base::Clock {
 public:
  uint64_t now_ns() const override { return clock_.now_ns(); }
  bool is_virtual() const override { return true; }
  bool advance_to(uint64_t time_ns) override {
    jumps += time_ns > clock_.now_ns();
    return clock_.advance_to(time_ns);
  }
  uint64_t jumps = 0;

 private:
  base::VirtualClock clock_;
};

class ServerFixture : public ::testing::Test {
 protected:
  static constexpr uint64_t kRegionBytes = 4 << 20;

  ServerFixture() { server_options_.discipline = LockDiscipline::kCpu; }
  void SetUp() override {
    pool_ = std::move(*persist::Pool::in_region(region_.bytes(), domain_, true));
    const Status formatted = format_store(*pool_, format_);
    ASSERT_TRUE(formatted) << formatted.error().to_string();
    start();
  }
  void TearDown() override {
    if (server_ == nullptr) return;
    const Status stopped = run(server_->stop());
    EXPECT_TRUE(stopped) << stopped.error().to_string();
  }

  template <typename T>
  T run(Task<T> task) {
    return executor_.run(std::move(task));
  }
  // Of a task that has been started.
  template <typename T>
  T finish(Task<T> task) {
    while (!task.done()) let_time_pass(1000);
    return task.take();
  }
  void start() {
    auto started = run(Server::start(executor_, *pool_, server_options_));
    ASSERT_TRUE(started) << started.error().to_string();
    server_ = std::move(*started);
    auto listening = run(server_->listen({fabric::Scheme::kLocal, "server-fixture", 0}));
    ASSERT_TRUE(listening) << listening.error().to_string();
    uri_ = *listening;
  }
  // As after an end of its process; the memory stays.
  void restart() {
    server_.reset();
    pool_ = std::move(*persist::Pool::in_region(region_.bytes(), domain_, false));
    start();
  }
  Result<std::unique_ptr<Client>> try_connect(uint64_t id = 0) {
    ClientOptions options = client_options_;
    if (id != 0) options.secret = ClientSecret::of_number(id);
    return run(Client::connect(executor_, uri_, options));
  }
  std::unique_ptr<Client> connect(uint64_t id = 0) {
    auto connected = try_connect(id);
    if (connected) return std::move(*connected);
    ADD_FAILURE() << connected.error().to_string();
    return nullptr;
  }
  void let_time_pass(uint64_t ns) {
    run([](Executor& executor, uint64_t for_ns) -> Task<void> {
      co_await executor.sleep_for(for_ns);
    }(executor_, ns));
  }

  persist::Domain domain_ = persist::Domain::kCpuCache;
  FormatOptions format_{4, 64 << 10};
  ServerOptions server_options_;
  ClientOptions client_options_;
  crash::PageBytes region_{kRegionBytes};
  CountedClock clock_;
  Executor executor_{clock_};
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<Server> server_;
  fabric::Uri uri_;
};

// With a client, whose table "t" is there.
class ClientFixture : public ServerFixture {
 protected:
  void SetUp(LockDiscipline discipline, uint64_t client = 0) {
    server_options_.discipline = discipline;
    ServerFixture::SetUp();
    client_ = connect(client);
    ASSERT_NE(client_, nullptr);
    table_ = *run(client_->open_table("t", true));
  }
  void TearDown() override {
    if (client_ != nullptr) run(client_->close());
    client_.reset();
    ServerFixture::TearDown();
  }

  std::unique_ptr<Client> client_;
  TableId table_{};
};

}  // namespace pmstore::testing
