// A worker whose place at the server was taken while it did not look.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include "pmstore/admin_client.h"
#include "tools/bench/smallbank_bank.h"
#include "tools/bench/smallbank_worker.h"
#include "tools/daemon/pool_service.h"

namespace pmstore::tools::smallbank {
namespace {

constexpr uint64_t kAccounts = 10;

// A server with a single place for a client, on a thread of its own.
class BusyServer : public testing::Test {
 protected:
  void SetUp() override {
    unlink(path_.c_str());
    ASSERT_TRUE(create_store(path_, 32u << 20, {}, {}, false));
    std::promise<fabric::Uri> listens;
    auto uri = listens.get_future();
    server_ = std::thread([this, &listens] {
      ServiceOptions options;
      options.pool = path_;
      options.server.most_clients = 1;
      options.listen = {*fabric::parse_uri("tcp://127.0.0.1:0")};
      auto service = PoolService::start(options);
      PMSTORE_CHECK(service, "nothing but this test uses the pool");
      service_ = service->get();
      listens.set_value((*service)->uris().front());
      EXPECT_TRUE((*service)->run());
    });
    uri_ = uri.get();
  }
  void TearDown() override {
    service_->request_stop();
    server_.join();
    unlink(path_.c_str());
  }

  // Ends the session of the client `id`, connects as soon as there is room, and stays until the end
  // of the test.
  void take_the_place_of(ClientId id, std::promise<void>& taken) {
    base::RealClock clock;
    Executor executor(clock);
    ClientOptions options;
    options.connect_timeout_ns = 60'000'000'000;
    auto admin = executor.run(AdminClient::connect(executor, uri_, {}));
    EXPECT_TRUE(admin) << admin.error().to_string();
    if (admin) {
      EXPECT_EQ(executor.run((*admin)->kick(id)).value(), 1u);
    }
    executor.run([](BusyServer& self, Executor& on, const ClientOptions& with,
                    std::promise<void>& done) -> Task<void> {
      const uint64_t until_ns = on.now_ns() + with.connect_timeout_ns;
      auto client = co_await Client::connect(on, self.uri_, with);
      while (!client && client.code() == ErrorCode::kBackPressure && on.now_ns() < until_ns) {
        co_await on.sleep_for(10'000'000);
        client = co_await Client::connect(on, self.uri_, with);
      }
      EXPECT_TRUE(client) << client.error().to_string();
      done.set_value();
      while (!self.over_) co_await on.sleep_for(1'000'000);
      if (client) co_await (*client)->close();
    }(*this, executor, options, taken));
  }

  const std::string path_ = testing::TempDir() + "busy-server-" + std::to_string(getpid());
  fabric::Uri uri_;
  std::thread server_;
  PoolService* service_ = nullptr;
  std::atomic<bool> over_{false};
};

TEST_F(BusyServer, IsNotCalledAway) {
  base::RealClock clock;
  Executor executor(clock);
  ClientOptions options;
  options.connect_timeout_ns = 6'000'000'000;
  auto client = executor.run(Client::connect(executor, uri_, options));
  ASSERT_TRUE(client) << client.error().to_string();
  WorkerPlan plan;
  plan.tables = *executor.run(open_tables(**client, true));
  std::atomic<uint64_t> loaded;
  ASSERT_TRUE(executor.run(load_bank(**client, plan.tables, kAccounts, loaded)));
  plan.run = 1;
  plan.accounts = kAccounts;
  plan.ops = 10;
  // While its executor does not run, an administrator ends the client's session.
  std::promise<void> taken;
  std::thread other([&] { take_the_place_of((*client)->id(), taken); });
  taken.get_future().wait();
  Tally tally;
  BenchControl control;
  Worker worker(**client, plan, tally);
  Status ended = executor.run(worker.run(control));
  // Its first look may be what tells it that the connection is gone.
  if (!ended && ended.code() != ErrorCode::kBackPressure) {
    ended = executor.run(worker.run(control));
  }
  over_ = true;
  other.join();
  ASSERT_EQ(ended.code(), ErrorCode::kBackPressure) << ended.error().to_string();
  EXPECT_NE(ended.error().message.find("places"), std::string::npos) << ended.error().message;
  EXPECT_EQ(ended.error().message.find("away"), std::string::npos) << ended.error().message;
}

}  // namespace
}  // namespace pmstore::tools::smallbank
