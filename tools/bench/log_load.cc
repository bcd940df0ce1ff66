// Connecting and appending; the modes' names.
#include "tools/bench/log_load.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/random.h"
#include "tools/bench/log_load_run.h"
#include "tools/cli/log_session.h"

namespace pmstore::tools {

namespace {

constexpr std::string_view kPrefix = "bench/";
// Appends between two reports to the progress line, which others wait for, and of those in process
// between two turns of the executor.
constexpr uint64_t kAppendsPerReport = 64;

}  // namespace

// ---- connecting ----

Task<Result<std::unique_ptr<LogClient>>> LogLoad::client(Executor& executor, uint32_t number) {
  log::LogClientOptions options = log_client_options(options_.session);
  if (model_ != nullptr) {
    options.devices = &model_->client_core(number);
    options.secret = ClientSecret::of_number(base::mix64(options_.seed) / 2 + 1 + number);
  }
  co_return co_await LogClient::connect(executor, *uri_, options);
}

Task<Status> LogLoad::prepare(Executor& executor) {
  if (!options_.replicas.empty()) {
    PMSTORE_CO_TRY_STATUS(co_await connect_replicas(executor));
    co_return co_await make_logs(executor);
  }
  uri_ = model_ != nullptr ? model_->uri() : options_.session.parsed_uri();
  if (model_ == nullptr && uri_->scheme == fabric::Scheme::kLocal && options_.threads == 1 &&
      options_.producers > 1) {
    log::EmbeddedLogOptions with;
    with.assume_domain = log_client_options(options_.session).assume_domain;
    PMSTORE_CO_TRY(embedded_, co_await log::EmbeddedLog::open(executor, uri_->name, with));
    uri_ = embedded_->uri();
  }
  PMSTORE_CO_TRY(producers_[0].client, co_await client(executor, 0));
  co_return co_await make_logs(executor);
}

Task<Status> LogLoad::connect_replicas(Executor& executor) {
  const log::LogClientOptions with = log_client_options(options_.session);
  for (const std::string& each : options_.replicas) {
    LogServer server{each, nullptr, nullptr};
    PMSTORE_CO_TRY(fabric::Uri uri, fabric::parse_uri(each));
    if (uri.scheme == fabric::Scheme::kLocal) {
      log::EmbeddedLogOptions embed;
      embed.assume_domain = with.assume_domain;
      PMSTORE_CO_TRY(server.embedded, co_await log::EmbeddedLog::open(executor, uri.name, embed));
      uri = server.embedded->uri();
      server.uri = uri.to_string();
    }
    PMSTORE_CO_TRY(server.client, co_await LogClient::connect(executor, uri, with));
    servers_.push_back(std::move(server));
  }
  co_return Status{};
}

std::vector<std::string> LogLoad::replica_uris() const {
  std::vector<std::string> uris;
  for (const LogServer& server : servers_) uris.push_back(server.uri);
  return uris;
}

log::ReplicatedLogOptions LogLoad::replicated_options() const {
  log::ReplicatedLogOptions how;
  how.client = log_client_options(options_.session);
  how.producer.strategy = options_.strategy;
  return how;
}

Task<Status> LogLoad::delete_logs() {
  if (servers_.empty()) co_return co_await delete_logs(*producers_[0].client);
  for (LogServer& server : servers_) {
    PMSTORE_CO_TRY_STATUS(co_await delete_logs(*server.client));
  }
  co_return Status{};
}

Task<Status> LogLoad::delete_logs(LogClient& session) {
  PMSTORE_CO_TRY(const auto there, co_await session.list());
  for (const log::LogInfo& info : there) {
    if (!info.name.starts_with(kPrefix)) continue;
    PMSTORE_CO_TRY_STATUS(co_await session.erase(info.id));
  }
  co_return Status{};
}

Task<Status> LogLoad::make_logs(Executor& executor) {
  PMSTORE_CO_TRY_STATUS(co_await delete_logs());
  const log::LogOptions shape{.bytes = options_.log_bytes};
  for (size_t i = 0; i < logs_.size(); ++i) {
    LoadedLog& log = logs_[i];
    log.name = fmt::format("{}{}", kPrefix, i);
    if (!servers_.empty()) {
      PMSTORE_CO_TRY_STATUS(co_await log::ReplicatedLog::create(
          executor, log.name, shape, replica_uris(), replicated_options()));
      continue;
    }
    PMSTORE_CO_TRY(const auto info, co_await producers_[0].client->create(log.name, shape));
    log.id = info.id;
  }
  co_return Status{};
}

Task<Status> LogLoad::connect_producer(Executor& executor, uint32_t number) {
  Producer& producer = producers_[number];
  log::LogProducerOptions with;
  with.strategy = options_.strategy;
  // One append may have to wait for the others of its producer.
  with.staging_bytes = static_cast<uint32_t>(
      std::max<uint64_t>(with.staging_bytes, 2 * (options_.payload_bytes + 512) * options_.batch));
  if (!servers_.empty()) {
    log::ReplicatedLogOptions how = replicated_options();
    how.producer = with;
    PMSTORE_CO_TRY(
        producer.replicated,
        co_await log::ReplicatedLog::open(executor, logs_[producer.log].name, replica_uris(), how));
    if (number == 0) result_.strategy = producer.replicated->strategy();
    co_return Status{};
  }
  if (!producer.client) {
    PMSTORE_CO_TRY(producer.client, co_await client(executor, number));
  }
  if (options_.mode == LogMode::kShared) co_return Status{};
  PMSTORE_CO_TRY(producer.exclusive,
                 co_await log::LogProducer::open(*producer.client, logs_[producer.log].id, with));
  if (number == 0) result_.strategy = producer.exclusive->strategy();
  co_return Status{};
}

Task<Status> LogLoad::connect(Executor& executor, uint32_t thread) {
  const uint64_t workers = uint64_t{options_.producers} * options_.coroutines;
  for (uint32_t p = thread; p < options_.producers; p += options_.threads) {
    Producer& producer = producers_[p];
    producer.log = options_.mode == LogMode::kShared ? 0 : p;
    PMSTORE_CO_TRY_STATUS(co_await connect_producer(executor, p));
    producer.workers.resize(options_.coroutines);
    for (uint32_t c = 0; c < options_.coroutines; ++c) {
      Worker& worker = producer.workers[c];
      worker.stream = uint64_t{p} * options_.coroutines + c;
      worker.bytes.resize(options_.payload_bytes * options_.batch);
      for (uint32_t i = 0; i < options_.batch; ++i) {
        worker.payloads.push_back(
            std::span(worker.bytes).subspan(i * options_.payload_bytes, options_.payload_bytes));
      }
      if (options_.appends != 0) {
        worker.appends_left =
            options_.appends / workers + (worker.stream < options_.appends % workers ? 1 : 0);
      }
    }
  }
  co_return Status{};
}

Task<Status> LogLoad::publish(Producer& producer) {
  if (producer.replicated) return producer.replicated->publish();
  return producer.exclusive->publish();
}

Task<Status> LogLoad::close(Producer& producer) {
  if (producer.replicated) return producer.replicated->close();
  return producer.exclusive->close();
}

// ---- appending ----

Task<Result<log::Appended>> LogLoad::append(Producer& producer, Worker& worker) {
  if (producer.replicated) return producer.replicated->append_batch(worker.payloads);
  if (producer.exclusive) {
    if (options_.batch == 1) return producer.exclusive->append(worker.payloads[0]);
    return producer.exclusive->append_batch(worker.payloads);
  }
  return producer.client->append_batch(logs_[producer.log].id, worker.payloads);
}

std::optional<Result<log::Appended>> LogLoad::append_at_once(Producer& producer,
                                                             const Worker& worker) {
  if (options_.mode != LogMode::kShared) return std::nullopt;
  return producer.client->append_at_once(logs_[producer.log].id, worker.payloads);
}

Task<void> LogLoad::work(Executor& executor, uint32_t thread, Producer& producer, Worker& worker,
                         uint32_t& left, base::WaitList& ended) {
  Histogram& histogram = histograms_[thread];
  uint64_t unreported = 0;
  while (worker.appends_left > 0) {
    for (uint32_t i = 0; i < options_.batch; ++i) {
      payloads_.fill(
          std::span(worker.bytes).subspan(i * options_.payload_bytes, options_.payload_bytes),
          log_tag(worker.stream, worker.number + i));
    }
    const uint64_t start_ns = executor.now_ns();
    if (lap_over(start_ns)) break;
    auto at_once = append_at_once(producer, worker);
    const bool in_process = at_once.has_value();
    if (!in_process) at_once = co_await append(producer, worker);
    Result<log::Appended>& appended = *at_once;
    const uint64_t end_ns = executor.now_ns();
    if (appended) [[likely]] {
      histogram.record(end_ns - start_ns);
      worker.note_acked(appended->index + 1 - options_.batch, options_.batch);
      worker.number += options_.batch;
      --worker.appends_left;
      if (++unreported < kAppendsPerReport) continue;
      appended_.fetch_add(unreported, std::memory_order_relaxed);
      unreported = 0;
      if (in_process) co_await executor.yield();
      continue;
    }
    if (appended.code() == ErrorCode::kBackPressure) {
      full_.store(true);
    } else {
      fail(std::move(appended.error()));
    }
    break;
  }
  appended_.fetch_add(unreported, std::memory_order_relaxed);
  if (--left == 0) ended.notify_all();
}

Task<void> LogLoad::lap(Executor& executor, uint32_t thread) {
  fabric::Counters before;
  fabric::Counters after;
  base::WaitList ended(executor);
  uint32_t left = 0;
  for (uint32_t p = thread; p < options_.producers; p += options_.threads) {
    before += producers_[p].counters();
    left += options_.coroutines;
  }
  for (uint32_t p = thread; p < options_.producers; p += options_.threads) {
    for (Worker& worker : producers_[p].workers) {
      if (p == thread && &worker == producers_[p].workers.data()) continue;
      executor.spawn(work(executor, thread, producers_[p], worker, left, ended));
    }
  }
  // The first one runs right here, so that a single one costs no scheduling.
  co_await work(executor, thread, producers_[thread], producers_[thread].workers[0], left, ended);
  while (left > 0) co_await ended.wait();
  const uint64_t now_ns = executor.now_ns();
  for (uint32_t p = thread; p < options_.producers; p += options_.threads) {
    after += producers_[p].counters();
  }
  const std::lock_guard lock(mutex_);
  lap_end_ns_ = std::max(lap_end_ns_, now_ns);
  result_.counters += after - before;
}

void LogLoad::begin_lap(Executor& executor) {
  full_.store(false);
  lap_start_ns_ = executor.now_ns();
  lap_end_ns_ = lap_start_ns_;
  const uint64_t lap = ++laps_;
  if (options_.appends == 0) {
    const auto wanted_ns = static_cast<uint64_t>(options_.seconds * 1e9);
    control_.set_deadline(lap_start_ns_ + (wanted_ns - std::min(wanted_ns, measured_ns_)));
  }
  if (model_ != nullptr && lap > 1) model_->resume();
  if (model_ != nullptr && lap == 1) model_->mark();
}

void LogLoad::end_lap() {
  if (model_ != nullptr) model_->pause();
  measured_ns_ += lap_end_ns_ - lap_start_ns_;
  last_lap_ = !full_.load() || all_done(lap_end_ns_);
}

bool LogLoad::all_done(uint64_t now_ns) const {
  if (control_.over(now_ns)) return true;
  for (const Producer& producer : producers_) {
    for (const Worker& worker : producer.workers) {
      if (worker.appends_left > 0) return false;
    }
  }
  return true;
}

std::string_view log_mode_name(LogMode mode) {
  return mode == LogMode::kExclusive ? "exclusive" : "shared";
}

Result<LogMode> parse_log_mode(std::string_view text) {
  for (const LogMode mode : {LogMode::kExclusive, LogMode::kShared}) {
    if (text == log_mode_name(mode)) return mode;
  }
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("'{}' is not a mode; use exclusive or shared", text));
}

Result<LogLoadResult> run_log_load(const LogLoadOptions& options) { return LogLoad(options).run(); }

}  // namespace pmstore::tools
