// FsLoad: connecting, the phases, and the threads or the modelled machine that they run on.
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/clock.h"
#include "base/random.h"
#include "tools/bench/fs_load_state.h"
#include "tools/daemon/pool_service.h"

namespace pmstore::tools {
namespace {

constexpr uint64_t kLookNs = 100'000;

}  // namespace

// ---- threads and phases ----

Task<bool> FsLoad::all_there(Executor& executor, std::atomic<uint32_t>& arrived) {
  ++arrived;
  while (arrived.load(std::memory_order_acquire) < options_.threads) {
    if (failed_) co_return false;
    co_await executor.sleep_for(kLookNs);
  }
  co_return !failed_;
}

Task<void> FsLoad::one(fs::FileSystem& files, NamedPhase& phase, FsWorker& worker, uint32_t& left,
                       base::WaitList& ended) {
  Histogram latency;
  Status done = co_await (this->*phase.phase)(files, worker, latency);
  if (!done) fail(std::move(done.error()));
  const uint64_t now_ns = files.executor().now_ns();
  {
    const std::lock_guard lock(mutex_);
    phase.latency_ns.merge(latency);
    phase.end_ns = std::max(phase.end_ns, now_ns);
  }
  if (--left == 0) ended.notify_all();
}

Task<Status> FsLoad::run_phase(fs::FileSystem& files, NamedPhase& phase, uint32_t thread) {
  Executor& executor = files.executor();
  if (!co_await all_there(executor, phase.arrived)) co_return Status{};
  uint64_t none = 0;
  const uint64_t now_ns = executor.now_ns();
  if (phase.start_ns.compare_exchange_strong(none, now_ns) && options_.ops == 0 &&
      options_.mode == FsLoadMode::kData) {
    control_.set_deadline(now_ns + static_cast<uint64_t>(options_.seconds * 1e9));
  }
  const fabric::Counters before = files.counters();
  if (model_ != nullptr && none == 0) model_->mark();  // the first client to begin
  base::WaitList ended(executor);
  uint32_t left = options_.coroutines;
  for (uint32_t i = 1; i < options_.coroutines; ++i) {
    executor.spawn(one(files, phase, workers_[thread * options_.coroutines + i], left, ended));
  }
  // The first one runs right here, so that a single one costs no scheduling.
  co_await one(files, phase, workers_[thread * options_.coroutines], left, ended);
  while (left > 0) co_await ended.wait();
  const std::lock_guard lock(mutex_);
  phase.counters += files.counters() - before;
  if (model_ != nullptr && ++phase.ended == options_.threads) {
    result_.model_counters = model_->counters_json();
  }
  co_return Status{};
}

Task<Status> FsLoad::phases(Executor& executor, fs::FileSystem& files, uint32_t thread) {
  if (thread == 0) {
    PMSTORE_CO_TRY_STATUS(co_await prepare(files));
  }
  if (!co_await all_there(executor, prepared_)) co_return Status{};
  for (const auto& phase : phases_) {
    PMSTORE_CO_TRY_STATUS(co_await run_phase(files, *phase, thread));
  }
  if (!co_await all_there(executor, closed_) || thread != 0) co_return Status{};
  co_return co_await audit(files);
}

Task<void> FsLoad::one_thread(Executor& executor, uint32_t thread) {
  const ClientOptions common = options_.session.client_options();
  fs::FileSystemOptions with;
  with.call_timeout_ns = common.call_timeout_ns;
  with.connect_timeout_ns = common.connect_timeout_ns;
  with.assume_domain = common.assume_domain;
  with.write_strategy = options_.strategy;
  with.one_sided_data = options_.one_sided;
  if (options_.fsync_every != 0) with.sync = fs::DataSync::kFsync;
  with.atomic_writes = options_.atomic;
  fabric::Uri uri;
  if (model_ != nullptr) {
    uri = model_->uri();
    with.devices = &model_->client_core(thread);
    with.secret = ClientSecret::of_number(base::mix64(options_.seed) / 2 + 1 + thread);
  } else {
    uri = options_.session.parsed_uri();
  }
  auto files = co_await fs::FileSystem::connect(executor, std::move(uri), with);
  if (!files) co_return fail(std::move(files.error()));
  Status done = Status{};
  if (co_await all_there(executor, connected_)) done = co_await phases(executor, **files, thread);
  if (!done) fail(std::move(done.error()));
  co_await (*files)->close();
}

void FsLoad::real_threads() {
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < options_.threads; ++i) {
    threads.emplace_back([this, i] {
      base::RealClock clock;
      Executor executor(clock,
                        base::ExecutorOptions{.seed = options_.seed + i, .poll = options_.poll});
      executor.run(one_thread(executor, i));
    });
  }
  for (std::thread& each : threads) each.join();
}

Task<void> FsLoad::one_of(Executor& executor, uint32_t thread, uint32_t& left,
                          base::WaitList& ended) {
  co_await one_thread(executor, thread);
  if (--left == 0) ended.notify_all();
}

void FsLoad::model_thread() {
  base::VirtualClock clock;
  Executor executor(clock, base::ExecutorOptions{.seed = options_.seed});
  const ClientOptions client = options_.session.client_options();
  ModelServiceOptions serve;
  serve.model = options_.model;
  serve.seed = options_.seed;
  serve.clients = options_.threads;
  serve.data_servers = options_.model.data_servers;
  serve.discipline = LockDiscipline::kCpu;  // files need it
  serve.log_bytes = 0;
  serve.file_bytes = *parse_bytes(options_.model.pool_bytes) / 2;
  if (client.assume_domain) serve.domain = *client.assume_domain;
  auto service = ModelService::start(executor, serve);
  if (!service) return fail(std::move(service.error()));
  model_ = service->get();
  const auto all = [&]() -> Task<void> {
    base::WaitList ended(executor);
    uint32_t left = options_.threads;
    for (uint32_t i = 0; i < options_.threads; ++i) {
      executor.spawn(one_of(executor, i, left, ended));
    }
    while (left > 0) co_await ended.wait();
  };
  executor.run(all());
  result_.model_config = model_->config_json();
  Status stopped = model_->stop();
  if (!stopped) fail(std::move(stopped.error()));
  model_ = nullptr;
}

Result<FsLoadResult> FsLoad::run() {
  std::unique_ptr<ServiceThread> service;
  const bool model = options_.model.on();
  if (!model && options_.threads > 1 &&
      options_.session.parsed_uri().scheme == fabric::Scheme::kLocal) {
    const ClientOptions client = options_.session.client_options();
    ServiceOptions serve;
    serve.listen = {options_.session.parsed_uri()};
    serve.pool = serve.listen.front().name;
    serve.open.assume_domain = client.assume_domain;
    serve.executor.poll = options_.poll;
    PMSTORE_TRY(service, ServiceThread::start(serve));
  }
  const StopOnSignal stop_on_signal(control_);
  model ? model_thread() : real_threads();
  if (error_) return *error_;
  const auto seconds_of = [](const NamedPhase& phase) {
    const uint64_t start_ns = phase.start_ns;
    return std::max(1e-9, static_cast<double>(phase.end_ns - start_ns) / 1e9);
  };
  for (const auto& phase : phases_) {
    const double seconds = seconds_of(*phase);
    if (options_.mode == FsLoadMode::kData) {
      result_.phases.push_back({"read", read_ns_, seconds, phase->counters});
      result_.phases.push_back({"write", write_ns_, seconds, phase->counters});
      continue;
    }
    result_.phases.push_back({phase->name, phase->latency_ns, seconds, phase->counters});
  }
  result_.interrupted = StopOnSignal::interrupted();
  return std::move(result_);
}

std::string_view fs_load_mode_name(FsLoadMode mode) {
  return mode == FsLoadMode::kData ? "data" : "metadata";
}

Result<FsLoadMode> parse_fs_load_mode(std::string_view text) {
  for (const FsLoadMode mode : {FsLoadMode::kData, FsLoadMode::kMetadata}) {
    if (text == fs_load_mode_name(mode)) return mode;
  }
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("'{}' is not a mode; use data or metadata", text));
}

Result<FsLoadResult> run_fs_load(const FsLoadOptions& options) { return FsLoad(options).run(); }

}  // namespace pmstore::tools
