// What a client does with a pool of its own, destroyed at each of its points.
// tests/structure/awaitables.py looks for their names here.
#include <gtest/gtest.h>

#include "base/clock.h"
#include "log/embedded_log.h"
#include "log/log_client.h"
#include "log/log_store.h"
#include "tests/unit/cancellation/attempts.h"
#include "tests/unit/cancellation/cutter.h"
#include "tests/unit/persist/scratch.h"

namespace pmstore::cancellation {
namespace {

using base::Task;

class EmbeddedWorld {
 public:
  EmbeddedWorld() {
    const auto fill = [](persist::Pool& pool) { return log::LogStore::format(pool, 1 << 20, 77); };
    EXPECT_TRUE(persist::Pool::create(path, 16 << 20, {}, false, fill));
    auto made = executor_.run(connect());
    EXPECT_TRUE(made) << made.error().to_string();
    id = executor_.run((*made)->create("log", {.bytes = 256 << 10, .identity = 2}))->id;
  }

  using Operation = Task<void> (*)(EmbeddedWorld&);
  struct Case {
    const char* name;
    Operation operation;
  };
  void destroy_everywhere(Operation operation) {
    at_all_points([&](uint64_t point) { return destroy_at(operation, point); });
  }

  // For operations.
  const persist::Scratch scratch;
  const std::string path = scratch.path("pool");
  std::unique_ptr<log::EmbeddedLog> embedded;
  std::unique_ptr<log::LogClient> client;
  uint64_t id = 0;
  Attempts attempts;
  base::Executor& executor() { return executor_; }
  Task<Result<std::unique_ptr<log::LogClient>>> connect() {
    log::LogClientOptions options;
    options.rpc = {256 << 10, 256 << 10, 64};
    return log::LogClient::connect(executor_, {fabric::Scheme::kLocal, path, 0}, options);
  }

 private:
  bool destroy_at(Operation operation, uint64_t point) {
    settle(executor_);
    const Cutter::End end = cutter_.run(operation(*this), point);
    client.reset();
    embedded.reset();
    // Nobody has the pool any more, and what was acknowledged is in it.
    auto again = within(executor_, kBoundNs, connect());
    EXPECT_TRUE(again) << "the next one waits for ever";
    if (!again) return false;
    EXPECT_TRUE(*again) << again->error().to_string();
    if (!*again) return false;
    const auto found = within(executor_, kBoundNs, read_log(***again, id, log::LogReaderOptions{}));
    EXPECT_TRUE(found && *found) << "the log cannot be read";
    if (found && *found) attempts.expect(**found, true, false);
    return end == Cutter::End::kDestroyed;
  }

  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  Cutter cutter_{executor_};
};

const EmbeddedWorld::Case kCases[] = {
    {"EmbeddedLog::open",
     [](EmbeddedWorld& world) -> Task<void> {
       const log::EmbeddedLogOptions options;
       auto opened = co_await log::EmbeddedLog::open(world.executor(), world.path, options);
       EXPECT_TRUE(opened);
       if (opened) world.embedded = std::move(*opened);
     }},
    {"LogClient::connect, to a pool of its own",
     [](EmbeddedWorld& world) -> Task<void> {
       auto connected = co_await world.connect();
       EXPECT_TRUE(connected);
       if (connected) world.client = std::move(*connected);
     }},
    // So many that it lets others run now and then.
    {"LogClient::append, to a pool of its own",
     [](EmbeddedWorld& world) -> Task<void> {
       auto connected = co_await world.connect();
       EXPECT_TRUE(connected);
       if (!connected) co_return;
       world.client = std::move(*connected);
       for (int i = 0; i < 70; ++i) {
         const std::string payload =
             std::to_string(i) + " at " + std::to_string(world.executor().now_ns());
         Attempt& one = world.attempts.add({payload}, true);
         const auto result = co_await world.client->append(world.id, bytes_of(one.payloads[0]));
         EXPECT_TRUE(result);
         if (result) one.last_index = result->index;
       }
     }},
};

class EmbeddedCancellation : public ::testing::TestWithParam<const EmbeddedWorld::Case*> {};

INSTANTIATE_TEST_SUITE_P(Log, EmbeddedCancellation,
                         ::testing::Values(&kCases[0], &kCases[1], &kCases[2]),
                         [](const auto& param) { return test_name(param.param->name, "calm"); });

TEST_P(EmbeddedCancellation, LeavesNothingBehind) {
  EmbeddedWorld world;
  world.destroy_everywhere(GetParam()->operation);
}

}  // namespace
}  // namespace pmstore::cancellation
