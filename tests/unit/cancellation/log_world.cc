#include "tests/unit/cancellation/log_world.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "log/log_store.h"
#include "tests/unit/log/log_entries.h"

namespace pmstore::cancellation {

using base::Task;

namespace {

constexpr uint64_t kAreaBytes = 256 << 10;
constexpr uint64_t kLogBytes = 16 << 10;
constexpr uint64_t kServerGoneNs = 3 * kMillisecond;
constexpr uint64_t kPatienceNs = 20 * kMillisecond;
// In broken weather one of so many first requests breaks its connection.
constexpr uint64_t kBreaks = 4;
constexpr fabric::RpcOptions kRpc{
    .request_ring_bytes = 256 << 10, .reply_arena_bytes = 192 << 10, .max_calls = 64};

// The second one is larger than what a reader READs at a time.
std::vector<std::string> payloads_before() {
  return {"before 1", std::string(5000, '2'), "before 3", std::string(300, '4')};
}

}  // namespace

LogWorld::LogWorld(persist::Domain domain) : domain_(domain), region_(kAreaBytes + (128 << 10)) {
  pool_ = std::move(*persist::Pool::in_region(region_.bytes(), domain_, true));
  EXPECT_TRUE(log::LogStore::format(*pool_, kAreaBytes, 77));
  run(start_server());
  other_ = run(connect()).value();
  beside_id_ = run(other_->create("beside", {.bytes = kLogBytes,
                                             .when_full = log::FullPolicy::kTrimOldest,
                                             .identity = 1}))
                   ->id;
}

LogWorld::~LogWorld() {
  others_producer_.reset();
  drop_client();
  other_.reset();
  EXPECT_TRUE(host_->stop());
}

Task<void> LogWorld::start_server() {
  log::LogHostOptions options;
  options.host.rpc = kRpc;
  host_ = std::move(*log::LogHost::start(executor_, *pool_, options));
  const fabric::Uri uri{fabric::Scheme::kLocal, "cancellation", 0};
  uri_ = (co_await host_->listen(uri)).value();
}

log::LogProducerOptions LogWorld::producer_options() const {
  log::LogProducerOptions options;
  options.staging_bytes = 8 << 10;
  options.replica = case_->parts == LogParts::kReplica;
  options.membership = 1;
  return options;
}

log::LogReaderOptions LogWorld::reader_options() const {
  log::LogReaderOptions options;
  options.window_bytes = 1024;
  options.current_replica = true;
  return options;
}

log::ReplicaPlace LogWorld::place(uint64_t membership) const {
  log::ReplicaPlace place;
  place.replicas = {"local:cancellation"};
  place.membership = membership;
  return place;
}

Task<Result<std::unique_ptr<log::LogClient>>> LogWorld::connect() {
  log::LogClientOptions options;
  options.secret = ClientSecret::of_number(++last_client_);
  options.rpc = kRpc;
  options.reconnect_timeout_ns = kPatienceNs;
  return log::LogClient::connect(executor_, uri_, options);
}

void LogWorld::appended(Attempt& attempt, const Result<log::Appended>& result) {
  expect(result);
  if (result) attempt.last_index = result->index;
}

void LogWorld::expect_failure(const Error& error) {
  EXPECT_TRUE(breaks_sessions(weather_)) << error.to_string();
  const ErrorCode code = error.code;
  EXPECT_TRUE(code == ErrorCode::kDisconnected || code == ErrorCode::kTimeout ||
              code == ErrorCode::kCommitUnknown || code == ErrorCode::kFenced)
      << error.to_string();
}

void LogWorld::damage() {
  if (weather_ == Weather::kServerGone) return;
  const auto info = host_->store().find(kLog);
  damaged_ = log::data_in_store(host_->store(), id, info->start_lsn) + 1000;
  *damaged_ ^= std::byte{0xff};
}

Task<Result<log::Appended>> LogWorld::append(log::LogProducer& with, Attempt& what) {
  const auto payloads = bytes_of(what.payloads);
  if (case_->parts != LogParts::kReplica) co_return co_await with.append_batch(payloads);
  auto result = co_await with.append_batch_at(payloads, with.next_index());
  if (result) with.acknowledge(result->next_lsn);
  co_return std::move(result);
}

bool LogWorld::make_log() {
  log::LogOptions options{
      .bytes = kLogBytes, .when_full = log::FullPolicy::kTrimOldest, .identity = 2};
  const bool replica = case_->parts == LogParts::kReplica;
  const auto made = run(replica ? other_->create_replica(kLog, options, place(1))
                                : other_->create(kLog, options));
  if (!made) ADD_FAILURE() << "no new log: " << made.error().to_string();
  if (!made) return false;
  id = made->id;
  attempts_.clear();
  if (case_->parts == LogParts::kProducer || replica) {
    auto opened = run(log::LogProducer::open(*client, id, producer_options()));
    if (!opened) ADD_FAILURE() << "no producer: " << opened.error().to_string();
    if (!opened) return false;
    producer = std::move(*opened);
  }
  Attempt& before = attempt(payloads_before(), false);
  const auto there = run(producer != nullptr ? append(*producer, before)
                                             : other_->append_batch(id, bytes_of(before.payloads)));
  if (!there) ADD_FAILURE() << there.error().to_string();
  if (!there) return false;
  before.last_index = there->index;
  if (producer != nullptr) {
    EXPECT_TRUE(run(producer->publish()));
  }
  if (case_->parts == LogParts::kReader) {
    reader = std::move(*run(log::LogReader::open(*client, id, reader_options())));
  }
  return true;
}

// False when the test cannot go on.
bool LogWorld::prepare() {
  auto connected = within(executor_, kBoundNs, connect());
  if (!connected || !*connected) {
    ADD_FAILURE() << "no new client can connect: "
                  << (connected ? connected->error().to_string() : "it waits for ever");
    return false;
  }
  client = std::move(**connected);
  failed_ = false;
  if (!make_log()) return false;
  if (weather_ == Weather::kServerGone) {
    host_.reset();
    pool_ = std::move(*persist::Pool::in_region(region_.bytes(), domain_, false));
    executor_.spawn([](LogWorld& world) -> Task<void> {
      co_await world.executor_.sleep_for(kServerGoneNs);
      co_await world.start_server();
    }(*this));
  }
  return true;
}

void LogWorld::destroy_everywhere(const Case& tested, Weather weather, Aftermath aftermath) {
  case_ = &tested;
  weather_ = weather;
  aftermath_ = aftermath;
  cancellation::destroy_everywhere(weather, kBreaks, [this](uint64_t point, uint64_t breaks_at) {
    return destroy_at(point, breaks_at);
  });
}

bool LogWorld::destroy_at(uint64_t point, uint64_t breaks_at) {
  settle(executor_);
  if (!prepare()) return false;
  Cutter::End end;
  {
    const WeatherFaults faults(weather_, breaks_at);
    const auto begin_others = [&] {
      ++beside_most_;
      beside_ = client->append(beside_id_, bytes_of(kBesideText));
      beside_->start();
      if (producer == nullptr || case_->effect == LogEffect::kCloses) return;
      behind_attempt_ = &attempt({"behind"}, true);
      behind_ = append(*producer, *behind_attempt_);
      behind_->start();
    };
    end = cutter_.run(case_->operation(*this), point, begin_others);
    if (aftermath_ == Aftermath::kUse || end == Cutter::End::kDone) {
      if (end == Cutter::End::kDestroyed && point % 3 == 1) drop_parts();
      expect_others_end();
    } else {
      drop_client();
    }
  }
  if (damaged_ != nullptr) *damaged_ ^= std::byte{0xff};
  damaged_ = nullptr;
  audit(point, end == Cutter::End::kDone);
  return end == Cutter::End::kDestroyed;
}

// The client goes on without them.
void LogWorld::drop_parts() {
  behind_.reset();
  reader.reset();
  producer.reset();
}

void LogWorld::drop_client() {
  beside_.reset();
  drop_parts();
  client.reset();
}

}  // namespace pmstore::cancellation
