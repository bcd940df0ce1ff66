// Reads and writes of many keys at a time are destroyed at each of their points.
// tests/structure/awaitables.py looks for their names here.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "pmstore/batch_writer.h"
#include "tests/unit/cancellation/store_world.h"

namespace pmstore::cancellation {
namespace {

using base::Task;

struct Case {
  const char* name;
  StoreWorld::Operation operation;
  Records effect;
};

template <typename Outcome>
void expect_ok(const Outcome& outcome) {
  EXPECT_TRUE(outcome) << outcome.error().to_string();
}

const std::string kLarge(1000, 'n');
// More than are read together; each is looked up.
const std::vector<std::string> kKeys = [] {
  std::vector<std::string> keys{"read"};
  for (int i = 1; i < 20; ++i) keys.push_back("absent " + std::to_string(i));
  return keys;
}();

const Case kCases[] = {
    {"Client::get_many",
     [](StoreWorld& world) -> Task<void> {
       const std::vector<std::string_view> keys(kKeys.begin(), kKeys.end());
       expect_ok(co_await world.client->get_many(world.table, keys));
     },
     {}},
    {"Transaction::get_many",
     [](StoreWorld& world) -> Task<void> {
       world.transaction.emplace(world.client->begin());
       const std::vector<std::string_view> keys(kKeys.begin(), kKeys.end());
       expect_ok(co_await world.transaction->get_many(world.table, keys));
     },
     {}},
    // So many that it has to write a batch.
    {"BatchWriter::put",
     [](StoreWorld& world) -> Task<void> {
       BatchWriter writer(*world.client, world.table);
       bool puts = true;
       while (puts && writer.transactions() == 0) {
         const Status done = co_await writer.put("update", "new");
         expect_ok(done);
         puts = done.has_value();
       }
     },
     {{"update", "new"}}},
    {"BatchWriter::flush",
     [](StoreWorld& world) -> Task<void> {
       BatchWriter writer(*world.client, world.table);
       expect_ok(co_await writer.put("update", "new"));
       expect_ok(co_await writer.put("move", kLarge));
       expect_ok(co_await writer.flush());
     },
     {{"update", "new"}, {"move", kLarge}}},
};

struct Setting {
  const char* name;
  LockDiscipline discipline;
  Weather weather;
};

const Setting kSettings[] = {
    {"cpu", LockDiscipline::kCpu, Weather::kCalm},
    {"cpu_slow", LockDiscipline::kCpu, Weather::kSlow},
    {"cpu_broken", LockDiscipline::kCpu, Weather::kBroken},
    {"cpu_server_gone", LockDiscipline::kCpu, Weather::kServerGone},
    {"rnic", LockDiscipline::kRnic, Weather::kCalm},
    {"rnic_broken", LockDiscipline::kRnic, Weather::kBroken},
};

class BatchCancellation : public ::testing::TestWithParam<std::tuple<size_t, size_t>> {};

INSTANTIATE_TEST_SUITE_P(Store, BatchCancellation,
                         ::testing::Combine(::testing::Range(size_t{0}, std::size(kCases)),
                                            ::testing::Range(size_t{0}, std::size(kSettings))),
                         [](const auto& param) {
                           return test_name(kCases[std::get<0>(param.param)].name,
                                            kSettings[std::get<1>(param.param)].name);
                         });

TEST_P(BatchCancellation, LeavesNothingBehind) {
  const Case& one = kCases[std::get<0>(GetParam())];
  const Setting& setting = kSettings[std::get<1>(GetParam())];
  StoreWorld world(setting.discipline, persist::Domain::kCpuCache, TableKind::kHash);
  world.destroy_everywhere(one.operation, one.effect, setting.weather, Aftermath::kUse);
}

}  // namespace
}  // namespace pmstore::cancellation
