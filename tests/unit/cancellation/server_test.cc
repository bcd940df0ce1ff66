// A server's own awaitables are destroyed at each of their points. tests/structure/awaitables.py
// looks for their names here.
#include "pmstore/server.h"

#include <gtest/gtest.h>

#include "base/clock.h"
#include "model/page_bytes.h"
#include "pmstore/admin_client.h"
#include "pmstore/client.h"
#include "tests/unit/cancellation/cutter.h"

namespace pmstore::cancellation {
namespace {

using base::Task;

constexpr uint64_t kRegionBytes = 4 << 20;

// What the server does when the operation begins.
enum class Before { kNothing, kStarted, kServes };

// A pool, a server of it that may go at any moment, and what its clients were told is there.
class ServerWorld {
 public:
  explicit ServerWorld(LockDiscipline discipline) : region_(kRegionBytes) {
    options_.discipline = discipline;
    pool = std::move(*persist::Pool::in_region(region_.bytes(), persist::Domain::kCpuCache, true));
    FormatOptions format{8, 64 << 10};
    format.identity = 1;
    EXPECT_TRUE(format_store(*pool, format));
  }
  ~ServerWorld() { end(); }

  using Operation = Task<void> (*)(ServerWorld&);
  struct Case {
    const char* name;
    Operation operation;
    Before before;
  };
  void destroy_everywhere(const Case& tested, Weather weather, Aftermath aftermath);

  // For operations.
  std::unique_ptr<persist::Pool> pool;
  std::unique_ptr<Server> server;
  base::Executor& executor() { return executor_; }
  const ServerOptions& options() const { return options_; }
  ClientId last_client() const { return ClientSecret::of_number(last_client_).id(); }
  fabric::Uri uri() const { return {fabric::Scheme::kLocal, "cancellation", 0}; }

 private:
  bool destroy_at(const Case& tested, uint64_t point, uint64_t ahead_ns, Weather weather,
                  Aftermath aftermath);
  void start();
  void serve();
  void change();
  void check();
  void end();
  Task<Result<std::unique_ptr<Client>>> connect();
  template <typename T>
  T run(Task<T> task) {
    return executor_.run(std::move(task));
  }

  model::PageBytes region_;
  ServerOptions options_;
  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  Cutter cutter_{executor_};
  std::vector<std::unique_ptr<Client>> clients_;
  std::optional<Transaction> open_;        // of the first one, with changes
  std::optional<Task<Status>> under_way_;  // a commit of the second one
  uint64_t last_client_ = 0;
  uint64_t acknowledged_ = 0;
  uint64_t begun_ = 0;
};

Task<Result<std::unique_ptr<Client>>> ServerWorld::connect() {
  ClientOptions options;
  options.secret = ClientSecret::of_number(++last_client_);
  return Client::connect(executor_, uri(), options);
}

void ServerWorld::end() {
  under_way_.reset();
  open_.reset();
  clients_.clear();
  server.reset();
}

void ServerWorld::start() {
  auto started = within(executor_, kBoundNs, Server::start(executor_, *pool, options_));
  ASSERT_TRUE(started) << "the next start waits for ever";
  ASSERT_TRUE(*started) << started->error().to_string();
  server = std::move(**started);
}

void ServerWorld::serve() {
  start();
  if (server == nullptr) return;
  const auto listens = within(executor_, kBoundNs, server->listen(uri()));
  ASSERT_TRUE(listens) << "the next listen() waits for ever";
  ASSERT_TRUE(*listens) << listens->error().to_string();
}

// One change is acknowledged, one may be, and one never is.
void ServerWorld::change() {
  for (int i = 0; i < 2; ++i) clients_.push_back(std::move(*run(connect())));
  const TableId table = run(clients_[0]->open_table("t", true)).value();
  EXPECT_TRUE(run(clients_[0]->put(table, "acknowledged", std::to_string(begun_))));
  acknowledged_ = begun_;
  open_.emplace(clients_[0]->begin());
  open_->put(table, "never", "1");
  static_cast<void>(run(open_->get(table, "acknowledged")));
}

void ServerWorld::check() {
  auto client = std::move(*run(connect()));
  const auto table = run(client->open_table("t", true));
  ASSERT_TRUE(table) << table.error().to_string();
  const auto value = run(client->get(*table, "acknowledged"));
  ASSERT_TRUE(value) << value.error().to_string();
  EXPECT_TRUE(*value == std::to_string(acknowledged_) || *value == std::to_string(begun_))
      << *value;
  EXPECT_EQ(run(client->get(*table, "never")).code(), ErrorCode::kNotFound);
  // Nothing stays locked, whoever was cut off.
  const auto put = within(executor_, kBoundNs, client->put(*table, "acknowledged", *value));
  EXPECT_TRUE(put && *put);
  run(client->close());
}

void ServerWorld::destroy_everywhere(const Case& tested, Weather weather, Aftermath aftermath) {
  serve();
  change();
  // How long a commit has been under way: in slow weather at each of its round trips.
  const bool under_way = tested.before == Before::kServes && weather == Weather::kSlow;
  const uint64_t most_ns = under_way ? 200 * kMicrosecond : 0;
  for (uint64_t ahead_ns = 0; ahead_ns <= most_ns; ahead_ns += 10 * kMicrosecond) {
    at_all_points(
        [&](uint64_t point) { return destroy_at(tested, point, ahead_ns, weather, aftermath); },
        ahead_ns / (10 * kMicrosecond));
  }
}

bool ServerWorld::destroy_at(const Case& tested, uint64_t point, uint64_t ahead_ns, Weather weather,
                             Aftermath aftermath) {
  settle(executor_);
  const bool serves = tested.before == Before::kServes;
  if (!serves) {
    end();  // as a crash: there is something to be recovered
    pool = std::move(*persist::Pool::in_region(region_.bytes(), persist::Domain::kCpuCache, false));
  }
  if (tested.before == Before::kStarted) start();
  Cutter::End ended;
  {
    SlowCompletions slow;
    std::optional<fabric::ScopedFaultInjector> installed;
    if (weather == Weather::kSlow) installed.emplace(slow);
    if (serves) {
      ++begun_;
      under_way_ = [](ServerWorld& world) -> Task<Status> {
        Client& client = *world.clients_[1];
        PMSTORE_CO_TRY(const TableId table, co_await client.open_table("t"));
        Status put = co_await client.put(table, "acknowledged", std::to_string(world.begun_));
        if (put) world.acknowledged_ = world.begun_;
        co_return std::move(put);
      }(*this);
      under_way_->start();
      let_pass(executor_, ahead_ns);
    }
    ended = cutter_.run(tested.operation(*this), point);
    if (aftermath == Aftermath::kUse && server != nullptr) {
      EXPECT_TRUE(within(executor_, kBoundNs, server->stop())) << "stop() waits for ever";
    }
    end();
  }
  pool = std::move(*persist::Pool::in_region(region_.bytes(), persist::Domain::kCpuCache, false));
  serve();
  check();
  change();
  return ended == Cutter::End::kDestroyed;
}

const ServerWorld::Case kCases[] = {
    {"Server::start",
     [](ServerWorld& world) -> Task<void> {
       auto started = co_await Server::start(world.executor(), *world.pool, world.options());
       EXPECT_TRUE(started);
       if (started) world.server = std::move(*started);
     },
     Before::kNothing},
    {"Server::listen",
     [](ServerWorld& world) -> Task<void> {
       EXPECT_TRUE(co_await world.server->listen(world.uri()));
     },
     Before::kStarted},
    {"Server::stop",
     [](ServerWorld& world) -> Task<void> { EXPECT_TRUE(co_await world.server->stop()); },
     Before::kServes},
    {"AdminClient::connect",
     [](ServerWorld& world) -> Task<void> {
       EXPECT_TRUE(co_await AdminClient::connect(world.executor(), world.uri(), {}));
     },
     Before::kServes},
    {"AdminClient::stat",
     [](ServerWorld& world) -> Task<void> {
       auto admin = co_await AdminClient::connect(world.executor(), world.uri(), {});
       EXPECT_TRUE(admin);
       if (!admin) co_return;
       EXPECT_TRUE(co_await (*admin)->stat());
     },
     Before::kServes},
    {"AdminClient::sessions",
     [](ServerWorld& world) -> Task<void> {
       auto admin = co_await AdminClient::connect(world.executor(), world.uri(), {});
       EXPECT_TRUE(admin);
       if (!admin) co_return;
       EXPECT_TRUE(co_await (*admin)->sessions(0));
     },
     Before::kServes},
    {"AdminClient::kick",
     [](ServerWorld& world) -> Task<void> {
       auto admin = co_await AdminClient::connect(world.executor(), world.uri(), {});
       EXPECT_TRUE(admin);
       if (!admin) co_return;
       EXPECT_TRUE(co_await (*admin)->kick(world.last_client()));
     },
     Before::kServes},
};

class ServerCancellation : public ::testing::TestWithParam<
                               std::tuple<const ServerWorld::Case*, LockDiscipline, Weather>> {
 protected:
  void destroy_everywhere(Aftermath aftermath) {
    const auto& [tested, discipline, weather] = GetParam();
    ServerWorld world(discipline);
    world.destroy_everywhere(*tested, weather, aftermath);
  }
};

INSTANTIATE_TEST_SUITE_P(
    Server, ServerCancellation,
    ::testing::Combine(::testing::Values(&kCases[0], &kCases[1], &kCases[2], &kCases[3], &kCases[4],
                                         &kCases[5], &kCases[6]),
                       ::testing::Values(LockDiscipline::kCpu, LockDiscipline::kRnic),
                       ::testing::Values(Weather::kCalm, Weather::kSlow)),
    [](const auto& param) {
      const bool rnic = std::get<1>(param.param) == LockDiscipline::kRnic;
      const bool slow = std::get<2>(param.param) == Weather::kSlow;
      return test_name(std::get<0>(param.param)->name,
                       std::string(rnic ? "rnic" : "cpu") + (slow ? "_slow" : ""));
    });

TEST_P(ServerCancellation, LeavesNothingBehind) { destroy_everywhere(Aftermath::kUse); }

TEST_P(ServerCancellation, OfAServerThatGoesRightAfter) { destroy_everywhere(Aftermath::kDestroy); }

}  // namespace
}  // namespace pmstore::cancellation
