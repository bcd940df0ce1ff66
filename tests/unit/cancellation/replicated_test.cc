// Every awaitable of a replicated log is destroyed at each of its points.
// tests/structure/awaitables.py looks for their names here.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/cancellation/replicated_world.h"

namespace pmstore::cancellation {
namespace {

using base::Task;
using log::ReplicatedLog;
using Effect = ReplicatedEffect;
using Parts = ReplicatedParts;

Task<void> append_one(ReplicatedWorld& world, Attempt& one) {
  world.appended(one, co_await world.log->append(bytes_of(one.payloads[0])));
}

const ReplicatedWorld::Case kCases[] = {
    {"ReplicatedLog::create",
     [](ReplicatedWorld& world) -> Task<void> {
       world.expect(co_await ReplicatedLog::create(world.executor(), world.kLog, world.shape(),
                                                   world.uris(2), world.options()));
     },
     Parts::kNothing, Effect::kCreates},
    {"ReplicatedLog::open",
     [](ReplicatedWorld& world) -> Task<void> {
       auto opened = co_await ReplicatedLog::open(world.executor(), world.kLog, world.uris(1),
                                                  world.options());
       world.expect(opened);
       if (opened) world.log = std::move(*opened);
     }},
    {"ReplicatedLog::open, without one that is dropped",
     [](ReplicatedWorld& world) -> Task<void> {
       log::ReplicatedLogOptions how = world.options();
       how.drop = world.uris(1, 1);
       auto opened = co_await ReplicatedLog::open(world.executor(), world.kLog, world.uris(1), how);
       world.expect(opened);
       if (opened) world.log = std::move(*opened);
     },
     Parts::kClosed, Effect::kDrops},
    {"ReplicatedLog::status",
     [](ReplicatedWorld& world) -> Task<void> {
       static_cast<void>(co_await ReplicatedLog::status(world.executor(), world.kLog, world.uris(1),
                                                        world.options().client));
     }},
    {"ReplicatedLog::trim",
     [](ReplicatedWorld& world) -> Task<void> {
       const log::TrimPlace until{0, 3};
       world.expect(co_await ReplicatedLog::trim(world.executor(), world.kLog, world.uris(1), until,
                                                 world.options().client));
     },
     Parts::kClosed, Effect::kTrims},
    {"ReplicatedLog::seal, of servers",
     [](ReplicatedWorld& world) -> Task<void> {
       world.expect(co_await ReplicatedLog::seal(world.executor(), world.kLog, world.uris(1),
                                                 world.options()));
     },
     Parts::kClosed, Effect::kSeals},
    {"ReplicatedLog::erase",
     [](ReplicatedWorld& world) -> Task<void> {
       world.expect(co_await ReplicatedLog::erase(world.executor(), world.kLog, world.uris(1),
                                                  world.options().client));
     },
     Parts::kClosed, Effect::kErases},
    {"ReplicatedLog::append",
     [](ReplicatedWorld& world) -> Task<void> {
       Attempt& one = world.attempt({"new"});
       co_await append_one(world, one);
     },
     Parts::kOpen, Effect::kAppends},
    {"ReplicatedLog::append, many",
     [](ReplicatedWorld& world) -> Task<void> {
       std::vector<Task<void>> appends;
       for (int i = 0; i < 3; ++i) {
         std::string payload = std::to_string(i) + std::string(900, 'm');
         appends.push_back(append_one(world, world.attempt({std::move(payload)})));
         appends.back().start();
       }
       for (const auto& each : appends) {
         while (!each.done()) co_await world.executor().sleep_for(10 * kMicrosecond);
       }
     },
     Parts::kOpen, Effect::kAppends},
    {"ReplicatedLog::append, without room",
     [](ReplicatedWorld& world) -> Task<void> {
       Attempt& one = world.attempt({std::string(2000, 'x')});
       const auto result = co_await world.append(one);
       EXPECT_FALSE(result);
       if (result.code() != ErrorCode::kBackPressure) world.expect(result);
     },
     Parts::kFull, Effect::kAppends},
    {"ReplicatedLog::append_batch",
     [](ReplicatedWorld& world) -> Task<void> {
       Attempt& three = world.attempt({"new 1", std::string(3000, 'n'), "new 3"});
       world.appended(three, co_await world.append(three));
     },
     Parts::kOpen, Effect::kAppends},
    {"ReplicatedLog::add",
     [](ReplicatedWorld& world) -> Task<void> {
       world.expect(co_await world.log->add(world.uris(1, 2)[0]));
     },
     Parts::kOpen, Effect::kAdds},
    {"ReplicatedLog::trim_below_index",
     [](ReplicatedWorld& world) -> Task<void> {
       world.expect(co_await world.log->trim_below_index(3));
     },
     Parts::kOpen, Effect::kTrims},
    {"ReplicatedLog::publish",
     [](ReplicatedWorld& world) -> Task<void> { world.expect(co_await world.log->publish()); },
     Parts::kOpen},
    {"ReplicatedLog::close",
     [](ReplicatedWorld& world) -> Task<void> { world.expect(co_await world.log->close()); },
     Parts::kOpen, Effect::kCloses},
    {"ReplicatedLog::seal",
     [](ReplicatedWorld& world) -> Task<void> { world.expect(co_await world.log->seal()); },
     Parts::kOpen, Effect::kSeals},
    {"open_current_replica",
     [](ReplicatedWorld& world) -> Task<void> {
       world.expect(co_await log::open_current_replica(world.executor(), world.kLog, world.uris(1),
                                                       world.options().client));
     }},
    {"LogReader::follow, of a replica that was dropped",
     [](ReplicatedWorld& world) -> Task<void> {
       auto entry = co_await world.reader->next();
       while (entry) entry = co_await world.reader->next();
       if (entry.code() != ErrorCode::kNotFound) co_return world.expect(entry);
       entry = co_await world.reader->follow(100 * kMillisecond);
       if (entry || entry.code() != ErrorCode::kConflict) world.expect(entry);
     },
     Parts::kReader},
    {"move_to_current_replica",
     [](ReplicatedWorld& world) -> Task<void> {
       world.expect(co_await log::move_to_current_replica(world.uris(1), world.options().client,
                                                          *world.at, world.reader));
     },
     Parts::kReader},
};

struct Setting {
  const char* name;
  persist::Domain domain;
  Weather weather;
};

const Setting kSettings[] = {
    {"one_sided", persist::Domain::kCpuCache, Weather::kCalm},
    {"one_sided_slow", persist::Domain::kCpuCache, Weather::kSlow},
    {"one_sided_broken", persist::Domain::kCpuCache, Weather::kBroken},
    {"one_sided_server_gone", persist::Domain::kCpuCache, Weather::kServerGone},
    {"two_sided_slow", persist::Domain::kMemoryController, Weather::kSlow},
};

class ReplicatedLogCancellation
    : public ::testing::TestWithParam<std::tuple<const ReplicatedWorld::Case*, const Setting*>> {
 protected:
  void destroy_everywhere(Aftermath aftermath) {
    const auto& [tested, setting] = GetParam();
    ReplicatedWorld world(setting->domain);
    world.destroy_everywhere(*tested, setting->weather, aftermath);
  }
};

std::vector<const ReplicatedWorld::Case*> cases() {
  std::vector<const ReplicatedWorld::Case*> all;
  for (const auto& each : kCases) all.push_back(&each);
  return all;
}
std::vector<const Setting*> settings(std::initializer_list<Weather> weathers) {
  std::vector<const Setting*> all;
  for (const Setting& each : kSettings) {
    if (std::count(weathers.begin(), weathers.end(), each.weather) > 0) all.push_back(&each);
  }
  return all;
}

const auto name_of = [](const auto& param) {
  return test_name(std::get<0>(param.param)->name, std::get<1>(param.param)->name);
};

INSTANTIATE_TEST_SUITE_P(
    ReplicatedLog, ReplicatedLogCancellation,
    ::testing::Combine(::testing::ValuesIn(cases()),
                       ::testing::ValuesIn(settings({Weather::kCalm, Weather::kSlow,
                                                     Weather::kBroken, Weather::kServerGone}))),
    name_of);

TEST_P(ReplicatedLogCancellation, LeavesNothingBehind) { destroy_everywhere(Aftermath::kUse); }

// In slow weather it has all the points that it has in calm weather.
class ReplicatedLogClientGone : public ReplicatedLogCancellation {};

INSTANTIATE_TEST_SUITE_P(ReplicatedLog, ReplicatedLogClientGone,
                         ::testing::Combine(::testing::ValuesIn(cases()),
                                            ::testing::ValuesIn(settings({Weather::kSlow,
                                                                          Weather::kBroken}))),
                         name_of);

TEST_P(ReplicatedLogClientGone, LeavesNothingBehind) { destroy_everywhere(Aftermath::kDestroy); }

}  // namespace
}  // namespace pmstore::cancellation
