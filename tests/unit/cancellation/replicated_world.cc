#include "tests/unit/cancellation/replicated_world.h"

#include <gtest/gtest.h>

#include "log/log_store.h"

namespace pmstore::cancellation {

using base::Task;

namespace {

constexpr uint64_t kAreaBytes = 256 << 10;
constexpr uint64_t kLogBytes = 16 << 10;
constexpr uint64_t kServerGoneNs = 3 * kMillisecond;
// In broken weather one of so many first requests breaks its connection.
constexpr uint64_t kBreaks = 3;
constexpr fabric::RpcOptions kRpc{
    .request_ring_bytes = 256 << 10, .reply_arena_bytes = 192 << 10, .max_calls = 64};

}  // namespace

ReplicatedWorld::ReplicatedWorld(persist::Domain domain) : domain_(domain) {
  for (size_t i = 0; i < kServers; ++i) {
    servers_[i].region = model::PageBytes(kAreaBytes + (128 << 10));
    const auto pool =
        std::move(*persist::Pool::in_region(servers_[i].region.bytes(), domain_, true));
    EXPECT_TRUE(log::LogStore::format(*pool, kAreaBytes, 77 + i));
    run(start(i));
  }
}

ReplicatedWorld::~ReplicatedWorld() {
  drop_client();
  other_.reset();
}

Task<void> ReplicatedWorld::start(size_t number) {
  Server& server = servers_[number];
  server.pool = std::move(*persist::Pool::in_region(server.region.bytes(), domain_, false));
  log::LogHostOptions options;
  options.host.rpc = kRpc;
  server.host = std::move(*log::LogHost::start(executor_, *server.pool, options));
  const fabric::Uri uri = fabric::parse_uri(uris(1, number)[0]).value();
  EXPECT_TRUE(co_await server.host->listen(uri));
}

std::vector<std::string> ReplicatedWorld::uris(size_t count, size_t first) const {
  std::vector<std::string> all;
  for (size_t i = first; i < first + count; ++i) all.push_back("local:replica" + std::to_string(i));
  return all;
}

log::ReplicatedLogOptions ReplicatedWorld::options() {
  log::ReplicatedLogOptions options;
  options.client.rpc = kRpc;
  options.producer.staging_bytes = 8 << 10;
  return options;
}

log::LogOptions ReplicatedWorld::shape() const {
  log::LogOptions shape;
  shape.bytes = kLogBytes;
  if (case_->parts != ReplicatedParts::kFull) shape.when_full = log::FullPolicy::kTrimOldest;
  return shape;
}

void ReplicatedWorld::appended(Attempt& attempt, const Result<log::Appended>& result) {
  expect(result);
  if (result) attempt.last_index = result->index;
}

void ReplicatedWorld::expect_failure(const Error& error) {
  EXPECT_TRUE(breaks_sessions(weather_)) << error.to_string();
}

Task<Result<log::Appended>> ReplicatedWorld::append(Attempt& what) {
  const auto payloads = bytes_of(what.payloads);
  co_return co_await log->append_batch(payloads);
}

// False when the test cannot go on.
bool ReplicatedWorld::prepare() {
  attempts_.clear();
  failed_ = false;
  members_ = case_->parts == ReplicatedParts::kReader ? 3 : 2;
  if (case_->parts == ReplicatedParts::kNothing) return true;
  const Status made =
      run(log::ReplicatedLog::create(executor_, kLog, shape(), uris(members_), options()));
  if (!made) ADD_FAILURE() << "no new log: " << made.error().to_string();
  auto opened = run(log::ReplicatedLog::open(executor_, kLog, uris(1), options()));
  if (!opened) ADD_FAILURE() << "nobody can open it: " << opened.error().to_string();
  if (!made || !opened) return false;
  log = std::move(*opened);
  Attempt& before = attempt({"before 1", std::string(3000, '2'), "before 3"});
  appended(before, run(append(before)));
  EXPECT_TRUE(run(log->publish()));
  if (case_->parts == ReplicatedParts::kFull) return fill();
  if (case_->parts == ReplicatedParts::kOpen) return true;
  EXPECT_TRUE(run(log->close()));
  log.reset();
  return case_->parts != ReplicatedParts::kReader || prepare_dropped();
}

bool ReplicatedWorld::fill() {
  for (size_t i = 0;; ++i) {
    Attempt& more = attempt({std::to_string(i) + std::string(900, 'f')});
    const auto result = run(append(more));
    if (result) more.last_index = result->index;
    if (!result) return result.code() == ErrorCode::kBackPressure;
  }
}

bool ReplicatedWorld::prepare_dropped() {
  at = std::move(*run(log::open_current_replica(executor_, kLog, uris(1, 2), options().client)));
  log::LogReaderOptions reading;
  reading.current_replica = true;
  reading.ask_members_ns = 20 * kMicrosecond;
  reader = std::move(*run(log::LogReader::open(*at->client, at->info.id, reading)));
  EXPECT_TRUE(run(reader->next()));
  log::ReplicatedLogOptions without = options();
  without.drop = uris(1, 2);
  auto opened = run(log::ReplicatedLog::open(executor_, kLog, uris(1), without));
  if (!opened) ADD_FAILURE() << "nobody can drop it: " << opened.error().to_string();
  if (!opened) return false;
  EXPECT_TRUE(run((*opened)->close()));
  members_ = 2;
  return true;
}

void ReplicatedWorld::lose_a_server() {
  servers_[1].host.reset();
  executor_.spawn([](ReplicatedWorld& world) -> Task<void> {
    co_await world.executor_.sleep_for(kServerGoneNs);
    co_await world.start(1);
  }(*this));
}

void ReplicatedWorld::destroy_everywhere(const Case& tested, Weather weather, Aftermath aftermath) {
  case_ = &tested;
  weather_ = weather;
  aftermath_ = aftermath;
  cancellation::destroy_everywhere(weather, kBreaks, [this](uint64_t point, uint64_t breaks_at) {
    return destroy_at(point, breaks_at);
  });
}

bool ReplicatedWorld::destroy_at(uint64_t point, uint64_t breaks_at) {
  settle(executor_);
  if (!prepare()) return false;
  Cutter::End end;
  {
    const WeatherFaults faults(weather_, breaks_at);
    if (weather_ == Weather::kServerGone) lose_a_server();
    const auto begin_behind = [this] {
      if (case_->effect != ReplicatedEffect::kAppends) return;
      behind_attempt_ = &attempt({"behind"});
      behind_ = append(*behind_attempt_);
      behind_->start();
    };
    end = cutter_.run(case_->operation(*this), point, begin_behind);
    if (aftermath_ == Aftermath::kDestroy && end == Cutter::End::kDestroyed) drop_client();
    if (behind_) {
      EXPECT_TRUE(run_until(executor_, kBoundNs, [this] { return behind_->done(); }))
          << "an append behind it waits for ever";
      if (behind_->done()) {
        const auto result = behind_->take();
        if (result) behind_attempt_->last_index = result->index;
      }
      behind_.reset();
    }
  }
  audit(point, end == Cutter::End::kDone);
  return end == Cutter::End::kDestroyed;
}

void ReplicatedWorld::drop_client() {
  behind_.reset();
  log.reset();
  reader.reset();
  at.reset();
}

}  // namespace pmstore::cancellation
