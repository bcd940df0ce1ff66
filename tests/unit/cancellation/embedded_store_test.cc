// What a client does with the records of a pool of its own, destroyed at each of its points.
// tests/structure/awaitables.py looks for their names here.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "pmstore/client.h"
#include "pmstore/server.h"
#include "tests/unit/cancellation/cutter.h"
#include "tests/unit/persist/scratch.h"

namespace pmstore::cancellation {
namespace {

using base::Task;

// So many that each of them lets others run at least once.
constexpr int kCalls = 70;

class EmbeddedStoreWorld {
 public:
  EmbeddedStoreWorld() {
    const auto fill = [](persist::Pool& pool) {
      return format_store(pool, {.rings = 2, .log_bytes = 0, .shard_log_bytes = 256 << 10});
    };
    EXPECT_TRUE(persist::Pool::create(path_, 16 << 20, {}, false, fill));
    EXPECT_TRUE(connect());
  }

  ~EmbeddedStoreWorld() { client.reset(); }  // before its executor

  using Operation = Task<void> (*)(EmbeddedStoreWorld&);
  struct Case {
    const char* name;
    Operation operation;
  };
  void destroy_everywhere(Operation operation) {
    at_all_points([&](uint64_t point) { return destroy_at(operation, point); });
  }

  // For operations.
  std::unique_ptr<Client> client;
  TableId table{};
  // Keys that are being written, each to its own name, and whether that is acknowledged.
  std::map<std::string, bool> written;
  std::string next_key() { return std::to_string(written.size()); }

 private:
  bool connect() {
    ClientOptions options;
    options.secret = ClientSecret::of_number(5);
    options.assume_domain = persist::Domain::kCpuCache;
    const fabric::Uri uri{fabric::Scheme::kLocal, path_, 0};
    auto connected = within(executor_, kBoundNs, Client::connect(executor_, uri, options));
    EXPECT_TRUE(connected && *connected) << "the next one cannot have the pool";
    if (!connected || !*connected) return false;
    client = std::move(**connected);
    const auto opened = within(executor_, kBoundNs, client->open_table("t", true));
    EXPECT_TRUE(opened && *opened);
    if (!opened || !*opened) return false;
    table = **opened;
    return true;
  }
  bool destroy_at(Operation operation, uint64_t point) {
    settle(executor_);
    const Cutter::End end = cutter_.run(operation(*this), point);
    check(false);
    const std::string stat = client->local_server()->stat_json();
    EXPECT_NE(stat.find(R"("views": {"held": 0, "kept_slots": 0})"), std::string::npos);
    // As after the end of its process.
    client.reset();
    if (!connect()) return false;
    check(true);
    return end == Cutter::End::kDestroyed;
  }
  void check(bool restarted) {
    for (auto& [key, acknowledged] : written) {
      const auto got = within(executor_, kBoundNs, client->get(table, key));
      ASSERT_TRUE(got);
      if (!*got) {
        EXPECT_EQ(got->code(), ErrorCode::kNotFound);
        EXPECT_FALSE(acknowledged) << key << (restarted ? " behind a restart" : "");
      } else {
        EXPECT_EQ(**got, key);
        acknowledged = true;  // it must stay there
      }
    }
  }

  const persist::Scratch scratch_;
  const std::string path_ = scratch_.path("pool");
  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  Cutter cutter_{executor_};
};

const EmbeddedStoreWorld::Case kCases[] = {
    {"Client::put, to a pool of its own",
     [](EmbeddedStoreWorld& world) -> Task<void> {
       for (int i = 0; i < kCalls; ++i) {
         const std::string key = world.next_key();
         world.written[key] = false;
         const auto done = co_await world.client->put(world.table, key, key);
         EXPECT_TRUE(done);
         world.written[key] = true;
       }
     }},
    {"Client::get, from a pool of its own",
     [](EmbeddedStoreWorld& world) -> Task<void> {
       for (int i = 0; i < kCalls; ++i) {
         const auto got = co_await world.client->get(world.table, "absent");
         EXPECT_EQ(got.code(), ErrorCode::kNotFound);
       }
     }},
    // While the record is changed beside it.
    {"Transaction::view",
     [](EmbeddedStoreWorld& world) -> Task<void> {
       for (int i = 0; i < kCalls; ++i) {
         const std::string key = world.next_key();
         world.written[key] = false;
         const auto put = co_await world.client->put(world.table, key, key);
         EXPECT_TRUE(put);
         world.written[key] = true;
         Transaction transaction = world.client->begin();
         const auto seen = co_await transaction.view(world.table, key);
         EXPECT_TRUE(seen);
         const auto again = co_await world.client->put(world.table, key, key);
         EXPECT_TRUE(again);
         EXPECT_EQ(*seen, key);
       }
     }},
    {"Client::view",
     [](EmbeddedStoreWorld& world) -> Task<void> {
       for (int i = 0; i < kCalls; ++i) {
         const std::string key = world.next_key();
         world.written[key] = false;
         const auto put = co_await world.client->put(world.table, key, key);
         EXPECT_TRUE(put);
         world.written[key] = true;
         const auto seen = co_await world.client->view(world.table, key);
         EXPECT_TRUE(seen);
         const auto again = co_await world.client->put(world.table, key, key);
         EXPECT_TRUE(again);
         EXPECT_EQ(seen->value(), key);
       }
     }},
    {"Client::get_many, from a pool of its own",
     [](EmbeddedStoreWorld& world) -> Task<void> {
       const std::string key = world.next_key();
       world.written[key] = false;
       const auto put = co_await world.client->put(world.table, key, key);
       EXPECT_TRUE(put);
       world.written[key] = true;
       const std::vector<std::string_view> keys(kCalls, key);
       const auto got = co_await world.client->get_many(world.table, keys);
       EXPECT_TRUE(got && got->size() == keys.size() && got->back() == key);
     }},
    {"Transaction::commit, to a pool of its own",
     [](EmbeddedStoreWorld& world) -> Task<void> {
       for (int i = 0; i < kCalls; ++i) {
         Transaction transaction = world.client->begin();
         const std::string key = world.next_key();
         const auto got = co_await transaction.get(world.table, key);
         EXPECT_EQ(got.code(), ErrorCode::kNotFound);
         transaction.put(world.table, key, key);
         world.written[key] = false;
         const auto done = co_await transaction.commit();
         EXPECT_TRUE(done);
         world.written[key] = true;
       }
     }},
};

class EmbeddedStore : public ::testing::TestWithParam<const EmbeddedStoreWorld::Case*> {};

INSTANTIATE_TEST_SUITE_P(Store, EmbeddedStore,
                         ::testing::Values(&kCases[0], &kCases[1], &kCases[2], &kCases[3],
                                           &kCases[4], &kCases[5]),
                         [](const auto& param) { return test_name(param.param->name, "calm"); });

TEST_P(EmbeddedStore, LeavesNothingBehind) {
  EmbeddedStoreWorld world;
  world.destroy_everywhere(GetParam()->operation);
}

}  // namespace
}  // namespace pmstore::cancellation
