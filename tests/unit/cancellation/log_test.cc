// Every awaitable of log/ that speaks to one server is destroyed at each of its points.
// tests/structure/awaitables.py looks for their names here.
#include <gtest/gtest.h>

#include "tests/unit/cancellation/log_world.h"

namespace pmstore::cancellation {
namespace {

using base::Task;
using log::LogProducer;
using log::LogReader;

Task<void> append_one(LogWorld& world, Attempt& one) {
  world.appended(one, co_await world.client->append(world.id, bytes_of(one.payloads[0])));
}

Task<void> append_later(LogWorld& world, Attempt& one) {
  co_await world.executor().sleep_for(200 * kMicrosecond);
  co_await append_one(world, one);
}

Task<void> produce_one(LogWorld& world, Attempt& one) {
  world.appended(one, co_await world.producer->append(bytes_of(one.payloads[0])));
}

// All at the same time.
Task<void> many(LogWorld& world, Task<void> (*append)(LogWorld&, Attempt&), size_t count,
                size_t bytes) {
  std::vector<Task<void>> appends;
  for (size_t i = 0; i < count; ++i) {
    std::string payload = std::to_string(i) + std::string(bytes, 'm');
    appends.push_back(append(world, world.attempt({std::move(payload)}, true)));
    appends.back().start();
  }
  for (const auto& each : appends) {
    while (!each.done()) co_await world.executor().sleep_for(10 * kMicrosecond);
  }
}

const LogWorld::Case kClientCases[] = {
    {"LogClient::connect",
     [](LogWorld& world) -> Task<void> {
       const auto connected = co_await world.connect();
       // It tries once.
       if (world.weather() != Weather::kServerGone) world.expect(connected);
     }},
    {"LogClient::create",
     [](LogWorld& world) -> Task<void> {
       const log::LogOptions options{.bytes = 16 << 10, .identity = 3};
       world.expect(co_await world.client->create(LogWorld::kCreated, options));
     },
     LogParts::kClient, LogEffect::kCreates},
    {"LogClient::create_replica",
     [](LogWorld& world) -> Task<void> {
       const log::LogOptions options{.bytes = 16 << 10, .identity = 3};
       const log::ReplicaPlace place = world.place(1);
       world.expect(co_await world.client->create_replica(LogWorld::kCreated, options, place));
     },
     LogParts::kClient, LogEffect::kCreates},
    {"LogClient::open",
     [](LogWorld& world) -> Task<void> {
       world.expect(co_await world.client->open(LogWorld::kLog));
     }},
    {"LogClient::list",
     [](LogWorld& world) -> Task<void> { world.expect(co_await world.client->list()); }},
    {"LogClient::append",
     [](LogWorld& world) -> Task<void> {
       Attempt& one = world.attempt({"new"}, true);
       co_await append_one(world, one);
     }},
    // More of them than there are slots for calls.
    {"LogClient::append, many",
     [](LogWorld& world) -> Task<void> { co_await many(world, append_one, 80, 10); },
     LogParts::kClient, LogEffect::kTrims},
    {"LogClient::append_batch",
     [](LogWorld& world) -> Task<void> {
       Attempt& three = world.attempt({"new 1", std::string(3000, 'n'), "new 3"}, true);
       const auto payloads = bytes_of(three.payloads);
       world.appended(three, co_await world.client->append_batch(world.id, payloads));
     }},
    {"LogClient::trim",
     [](LogWorld& world) -> Task<void> {
       const auto info = co_await world.client->open(LogWorld::kLog);
       world.expect(info);
       if (info) world.expect(co_await world.client->trim(world.id, info->tail_lsn));
     },
     LogParts::kClient, LogEffect::kTrims},
    {"LogClient::trim_below_index",
     [](LogWorld& world) -> Task<void> {
       world.expect(co_await world.client->trim_below_index(world.id, 3));
     },
     LogParts::kClient, LogEffect::kTrims},
    {"LogClient::seal",
     [](LogWorld& world) -> Task<void> { world.expect(co_await world.client->seal(world.id)); },
     LogParts::kClient, LogEffect::kSeals},
    {"LogClient::erase",
     [](LogWorld& world) -> Task<void> { world.expect(co_await world.client->erase(world.id)); },
     LogParts::kClient, LogEffect::kErases},
    {"LogHost::listen",
     [](LogWorld& world) -> Task<void> {
       if (world.weather() == Weather::kServerGone) co_return;
       const fabric::Uri uri = world.new_uri();
       EXPECT_TRUE(co_await world.host().listen(uri));
     }},
};

const LogWorld::Case kProducerCases[] = {
    {"LogProducer::open",
     [](LogWorld& world) -> Task<void> {
       auto opened = co_await LogProducer::open(*world.client, world.id, world.producer_options());
       world.expect(opened);
       if (opened) world.producer = std::move(*opened);
     }},
    // It takes the lease from the one before, which is the same client's.
    {"LogProducer::open, again",
     [](LogWorld& world) -> Task<void> {
       const auto first =
           co_await LogProducer::open(*world.client, world.id, world.producer_options());
       world.expect(first);
       auto opened = co_await LogProducer::open(*world.client, world.id, world.producer_options());
       world.expect(opened);
       if (opened) world.producer = std::move(*opened);
     }},
    {"LogProducer::append",
     [](LogWorld& world) -> Task<void> {
       Attempt& one = world.attempt({"new"}, true);
       co_await produce_one(world, one);
     },
     LogParts::kProducer, LogEffect::kAppends},
    // More of them than staging memory and the log have room for.
    {"LogProducer::append, many",
     [](LogWorld& world) -> Task<void> { co_await many(world, produce_one, 8, 3000); },
     LogParts::kProducer, LogEffect::kAppendsAndTrims},
    {"LogProducer::append_gather",
     [](LogWorld& world) -> Task<void> {
       Attempt& one = world.attempt({"gathered"}, true);
       const auto whole = bytes_of(one.payloads[0]);
       const std::vector pieces = {whole.first(3), whole.subspan(3)};
       world.appended(one, co_await world.producer->append_gather(pieces));
     },
     LogParts::kProducer, LogEffect::kAppends},
    {"LogProducer::append_batch",
     [](LogWorld& world) -> Task<void> {
       Attempt& three = world.attempt({"new 1", std::string(3000, 'n'), "new 3"}, false);
       const auto payloads = bytes_of(three.payloads);
       world.appended(three, co_await world.producer->append_batch(payloads));
     },
     LogParts::kProducer, LogEffect::kAppends},
    {"LogProducer::append_batch_at",
     [](LogWorld& world) -> Task<void> {
       Attempt& two = world.attempt({"new 1", "new 2"}, false);
       const auto payloads = bytes_of(two.payloads);
       const uint64_t first = world.producer->next_index();
       const auto result = co_await world.producer->append_batch_at(payloads, first);
       world.appended(two, result);
       if (result) world.producer->acknowledge(result->next_lsn);
     },
     LogParts::kReplica, LogEffect::kAppends},
    {"LogProducer::set_membership",
     [](LogWorld& world) -> Task<void> {
       const log::ReplicaPlace place = world.place(2);
       world.expect(co_await world.producer->set_membership(1, place));
     },
     LogParts::kReplica},
    {"LogProducer::agree",
     [](LogWorld& world) -> Task<void> { world.expect(co_await world.producer->agree(1)); },
     LogParts::kReplica},
    {"LogProducer::holds_lease",
     [](LogWorld& world) -> Task<void> {
       const auto holds = co_await world.producer->holds_lease();
       world.expect(holds);
       const bool calm = world.weather() == Weather::kCalm || world.weather() == Weather::kSlow;
       if (holds && calm) {
         EXPECT_TRUE(*holds);
       }
     },
     LogParts::kProducer},
    {"LogProducer::publish",
     [](LogWorld& world) -> Task<void> {
       Attempt& one = world.attempt({"new"}, true);
       co_await produce_one(world, one);
       world.expect(co_await world.producer->publish());
     },
     LogParts::kProducer, LogEffect::kAppends},
    {"LogProducer::close",
     [](LogWorld& world) -> Task<void> { world.expect(co_await world.producer->close()); },
     LogParts::kProducer, LogEffect::kCloses},
};

const LogWorld::Case kReaderCases[] = {
    {"LogReader::open",
     [](LogWorld& world) -> Task<void> {
       auto opened = co_await LogReader::open(*world.client, world.id, world.reader_options());
       world.expect(opened);
       if (opened) world.reader = std::move(*opened);
     }},
    {"LogReader::seek_to_tail",
     [](LogWorld& world) -> Task<void> { world.expect(co_await world.reader->seek_to_tail()); },
     LogParts::kReader},
    {"LogReader::next",
     [](LogWorld& world) -> Task<void> {
       Result<log::LogEntry> entry = co_await world.reader->next();
       while (entry) entry = co_await world.reader->next();
       if (entry.code() != ErrorCode::kNotFound) world.expect(entry);
     },
     LogParts::kReader},
    {"LogReader::follow",
     [](LogWorld& world) -> Task<void> {
       const Status at_tail = co_await world.reader->seek_to_tail();
       world.expect(at_tail);
       if (!at_tail) co_return;
       auto append = append_later(world, world.attempt({"news"}, true));
       append.start();
       world.expect(co_await world.reader->follow(kBoundNs));
       while (!append.done()) co_await world.executor().sleep_for(10 * kMicrosecond);
     },
     LogParts::kReader},
    {"LogReader::follow, nothing",
     [](LogWorld& world) -> Task<void> {
       const Status at_tail = co_await world.reader->seek_to_tail();
       world.expect(at_tail);
       if (!at_tail) co_return;
       const auto entry = co_await world.reader->follow(100 * kMicrosecond);
       if (entry.code() != ErrorCode::kTimeout) world.expect(entry);
     },
     LogParts::kReader},
    {"LogReader::skip_damaged",
     [](LogWorld& world) -> Task<void> {
       world.damage();
       Result<log::LogEntry> entry = co_await world.reader->next();
       while (entry) entry = co_await world.reader->next();
       if (entry.code() == ErrorCode::kDamaged) {
         world.expect(co_await world.reader->skip_damaged());
         entry = co_await world.reader->next();
         world.expect(entry);
         if (entry) {
           EXPECT_EQ(entry->index, 3u);
         }
       } else if (entry.code() != ErrorCode::kNotFound) {
         world.expect(entry);
       }
     },
     LogParts::kReader},
};

struct Setting {
  const char* name;
  persist::Domain domain;
  Weather weather;
};

constexpr auto kOneSided = persist::Domain::kCpuCache;
constexpr auto kTwoSided = persist::Domain::kMemoryController;
const Setting kSettings[] = {
    {"one_sided", kOneSided, Weather::kCalm},
    {"one_sided_slow", kOneSided, Weather::kSlow},
    {"one_sided_broken", kOneSided, Weather::kBroken},
    {"one_sided_server_gone", kOneSided, Weather::kServerGone},
    {"two_sided", kTwoSided, Weather::kCalm},
    {"two_sided_slow", kTwoSided, Weather::kSlow},
    {"two_sided_broken", kTwoSided, Weather::kBroken},
    {"two_sided_server_gone", kTwoSided, Weather::kServerGone},
};

class LogCancellation
    : public ::testing::TestWithParam<std::tuple<const LogWorld::Case*, const Setting*>> {
 protected:
  void destroy_everywhere(Aftermath aftermath) {
    const auto& [tested, setting] = GetParam();
    LogWorld world(setting->domain);
    world.destroy_everywhere(*tested, setting->weather, aftermath);
  }
};

std::vector<const LogWorld::Case*> cases() {
  std::vector<const LogWorld::Case*> all;
  for (const auto& each : kClientCases) all.push_back(&each);
  for (const auto& each : kProducerCases) all.push_back(&each);
  for (const auto& each : kReaderCases) all.push_back(&each);
  return all;
}
std::vector<const Setting*> settings() {
  std::vector<const Setting*> all;
  for (const Setting& each : kSettings) all.push_back(&each);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Log, LogCancellation,
                         ::testing::Combine(::testing::ValuesIn(cases()),
                                            ::testing::ValuesIn(settings())),
                         [](const auto& param) {
                           return test_name(std::get<0>(param.param)->name,
                                            std::get<1>(param.param)->name);
                         });

TEST_P(LogCancellation, LeavesNothingBehind) { destroy_everywhere(Aftermath::kUse); }

TEST_P(LogCancellation, OfAClientThatGoesRightAfter) { destroy_everywhere(Aftermath::kDestroy); }

}  // namespace
}  // namespace pmstore::cancellation
