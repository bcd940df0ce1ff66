#include "tools/bench/bench_run.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "tools/bench/model_service.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/damage_warning.h"
#include "tools/cli/poll_option.h"
#include "tools/daemon/pool_service.h"

namespace pmstore::tools {
namespace {

constexpr uint64_t kAwayPauseNs = 50'000'000;

class Runner {
 public:
  Runner(Bench& bench, const BenchOptions& options) : bench_(bench), options_(options) {}
  Result<BenchRun> run();

 private:
  void thread(uint32_t index);
  // All of them on one executor, on the modelled machine.
  void model_thread();
  Task<void> one_of(Executor& executor, uint32_t index, uint32_t& left, base::WaitList& ended);
  Task<void> tell_time(Executor& executor);
  Task<void> phases(Executor& executor, uint32_t index);
  Task<void> work(Client& client, uint32_t index);
  Task<void> one(Client& client, uint32_t index, uint32_t coroutine, uint32_t& left,
                 base::WaitList& ended);
  // The server may be away at these moments, too, for as long as the options allow.
  Task<Result<std::unique_ptr<Client>>> connect(Executor& executor, uint32_t index);
  Task<Status> ride_through(Client& client, Task<Status> (Bench::*phase)(Client&));
  bool worth_another_try(const Executor& executor, ErrorCode code, uint64_t since_ns) const;
  void show_progress();
  void fail(Error error);
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // Until `count` has reached `goal`, or the run has failed; false then.
  Task<bool> reached(Executor& executor, const std::atomic<uint32_t>& count, uint32_t goal);

  Bench& bench_;
  const BenchOptions& options_;
  BenchControl control_;
  std::atomic<bool> failed_{false};
  std::atomic<uint32_t> prepared_{0};
  std::atomic<uint32_t> connected_{0};
  std::atomic<uint32_t> started_{0};
  std::atomic<uint32_t> worked_{0};
  std::atomic<uint32_t> closed_{0};
  std::atomic<uint64_t> start_ns_{0};
  std::mutex mutex_;
  std::condition_variable thread_ended_;
  uint32_t threads_ended_ = 0;
  std::optional<Error> error_;
  uint64_t end_ns_ = 0;
  BenchRun run_;
  ModelService* model_ = nullptr;      // while model_thread() runs
  uint32_t threads_to_end_ = 0;        // of the process
  std::atomic<uint64_t> model_ns_{0};  // virtual time, for the progress line
};

void Runner::fail(Error error) {
  const std::lock_guard lock(mutex_);
  // If there are several errors, the one that needs an action of the user.
  if (!error_ || (error.code == ErrorCode::kCommitUnknown && error_->code != error.code)) {
    error_ = std::move(error);
  }
  failed_.store(true, std::memory_order_release);
  control_.stop();
}

Task<bool> Runner::reached(Executor& executor, const std::atomic<uint32_t>& count, uint32_t goal) {
  constexpr uint64_t kLookNs = 100'000;
  while (count.load(std::memory_order_acquire) < goal) {
    if (failed()) co_return false;
    co_await executor.sleep_for(kLookNs);
  }
  co_return !failed();
}

Task<void> Runner::one(Client& client, uint32_t index, uint32_t coroutine, uint32_t& left,
                       base::WaitList& ended) {
  Status done = co_await bench_.work(client, index, coroutine, control_);
  if (!done) fail(std::move(done.error()));
  if (--left == 0) ended.notify_all();
}

Task<void> Runner::work(Client& client, uint32_t index) {
  Executor& executor = client.executor();
  const fabric::Counters before = client.counters();
  base::WaitList ended(executor);
  uint32_t left = options_.coroutines;
  for (uint32_t i = 1; i < options_.coroutines; ++i) {
    executor.spawn(one(client, index, i, left, ended));
  }
  // The first one runs right here, so that a single one costs no scheduling.
  co_await one(client, index, 0, left, ended);
  while (left > 0) co_await ended.wait();
  const uint64_t now_ns = executor.now_ns();
  const std::lock_guard lock(mutex_);
  end_ns_ = std::max(end_ns_, now_ns);
  run_.counters += client.counters() - before;
  run_.reconnects += client.session().reconnects;
}

bool Runner::worth_another_try(const Executor& executor, ErrorCode code, uint64_t since_ns) const {
  const bool away = code == ErrorCode::kDisconnected || code == ErrorCode::kTimeout ||
                    code == ErrorCode::kBackPressure || code == ErrorCode::kCommitUnknown;
  return away && !failed() &&
         executor.now_ns() - since_ns < static_cast<uint64_t>(options_.ride_through_seconds * 1e9);
}

Task<Result<std::unique_ptr<Client>>> Runner::connect(Executor& executor, uint32_t index) {
  const uint64_t since_ns = executor.now_ns();
  for (;;) {
    fabric::Uri uri = options_.session.parsed_uri();
    ClientOptions client_options = options_.client_options(index);
    if (model_ != nullptr) {
      uri = model_->uri();
      client_options.devices = &model_->client_core(index);
    }
    auto client = co_await Client::connect(executor, std::move(uri), std::move(client_options));
    if (client || !worth_another_try(executor, client.code(), since_ns)) co_return client;
    co_await executor.sleep_for(kAwayPauseNs);
  }
}

// Both phases can be repeated: loading starts anew, and an audit only reads.
Task<Status> Runner::ride_through(Client& client, Task<Status> (Bench::*phase)(Client&)) {
  Executor& executor = client.executor();
  const uint64_t since_ns = executor.now_ns();
  for (;;) {
    Status done = co_await (bench_.*phase)(client);
    if (done || !worth_another_try(executor, done.code(), since_ns)) co_return done;
    co_await executor.sleep_for(kAwayPauseNs);
  }
}

Task<void> Runner::phases(Executor& executor, uint32_t index) {
  const bool first = index == 0;
  if (!first && !co_await reached(executor, prepared_, 1)) co_return;
  auto connected = co_await connect(executor, index);
  if (!connected) co_return fail(std::move(connected.error()));
  Client& client = **connected;
  if (first) {
    warn_of_damage(kProgram, client);
    run_.session = client.session();
    Status prepared = co_await ride_through(client, &Bench::prepare);
    if (!prepared) fail(std::move(prepared.error()));
    ++prepared_;
  }
  ++connected_;
  if (first && co_await reached(executor, connected_, options_.threads)) {
    start_ns_ = executor.now_ns();
    if (model_ != nullptr) model_->mark();
    if (options_.ops == 0) {
      control_.set_deadline(start_ns_ + static_cast<uint64_t>(options_.seconds * 1e9));
    }
    ++started_;
  }
  if (co_await reached(executor, started_, 1)) co_await work(client, index);
  if (++worked_ == options_.threads && model_ != nullptr) {
    run_.model_config = model_->config_json();
    run_.model_counters = model_->counters_json();
  }
  if (first && co_await reached(executor, closed_, options_.threads - 1)) {
    Status finished = co_await ride_through(client, &Bench::finish);
    if (!finished) fail(std::move(finished.error()));
  }
  co_await client.close();
  ++closed_;
}

void Runner::thread(uint32_t index) {
  base::RealClock clock;
  Executor executor(clock, base::ExecutorOptions{.seed = options_.seed + index,
                                                 .poll = *parse_poll(options_.poll)});
  executor.run(phases(executor, index));
  const std::lock_guard lock(mutex_);
  ++threads_ended_;
  thread_ended_.notify_all();
}

Task<void> Runner::one_of(Executor& executor, uint32_t index, uint32_t& left,
                          base::WaitList& ended) {
  co_await phases(executor, index);
  if (--left == 0) ended.notify_all();
}

Task<void> Runner::tell_time(Executor& executor) {
  constexpr uint64_t kStepNs = 100'000;
  for (;;) {
    model_ns_.store(executor.now_ns(), std::memory_order_relaxed);
    co_await executor.sleep_for(kStepNs);
  }
}

void Runner::model_thread() {
  base::VirtualClock clock;
  Executor executor(clock, base::ExecutorOptions{.seed = options_.seed});
  const ClientOptions client = options_.client_options(0);
  ModelServiceOptions serve;
  serve.model = options_.model;
  serve.seed = options_.seed;
  serve.clients = options_.threads;
  serve.discipline = client.required_discipline;
  if (client.assume_domain) serve.domain = *client.assume_domain;
  auto service = ModelService::start(executor, serve);
  if (service) {
    model_ = service->get();
    executor.spawn(tell_time(executor));
    const auto all = [&]() -> Task<void> {
      base::WaitList ended(executor);
      uint32_t left = options_.threads;
      for (uint32_t i = 0; i < options_.threads; ++i) {
        executor.spawn(one_of(executor, i, left, ended));
      }
      while (left > 0) co_await ended.wait();
    };
    executor.run(all());
    Status stopped = model_->stop();
    if (!stopped) fail(std::move(stopped.error()));
    model_ = nullptr;
  } else {
    fail(std::move(service.error()));
  }
  const std::lock_guard lock(mutex_);
  ++threads_ended_;
  thread_ended_.notify_all();
}

void Runner::show_progress() {
  ProgressLine line;
  const base::RealClock clock;
  std::unique_lock lock(mutex_);
  while (threads_ended_ < threads_to_end_) {
    thread_ended_.wait_for(lock, std::chrono::milliseconds(250));
    if (!line.shown()) continue;
    const uint64_t start_ns = start_ns_;
    const uint64_t now_ns =
        options_.model.on() ? std::max<uint64_t>(model_ns_, start_ns) : clock.now_ns();
    const double seconds = start_ns == 0 ? 0 : static_cast<double>(now_ns - start_ns) / 1e9;
    line.update(bench_.progress(seconds));
  }
}

Result<BenchRun> Runner::run() {
  std::unique_ptr<ServiceThread> service;
  if (options_.serves_itself()) {
    const ClientOptions client = options_.client_options(0);
    ServiceOptions serve;
    serve.listen = {options_.session.parsed_uri()};
    serve.pool = serve.listen.front().name;
    serve.open.assume_domain = client.assume_domain;
    serve.server.discipline = client.local_discipline;
    serve.executor.poll = *parse_poll(options_.poll);
    PMSTORE_TRY(service, ServiceThread::start(serve));
  }
  const StopOnSignal stop_on_signal(control_);
  std::vector<std::thread> threads;
  threads_to_end_ = options_.model.on() ? 1 : options_.threads;
  for (uint32_t i = 0; i < threads_to_end_; ++i) {
    threads.emplace_back([this, i] { options_.model.on() ? model_thread() : thread(i); });
  }
  show_progress();
  for (std::thread& each : threads) each.join();
  if (error_) return *error_;
  run_.seconds = std::max(1e-9, static_cast<double>(end_ns_ - start_ns_) / 1e9);
  run_.interrupted = StopOnSignal::interrupted();
  return run_;
}

}  // namespace

Result<BenchRun> run_bench(Bench& bench, const BenchOptions& options) {
  return Runner(bench, options).run();
}

}  // namespace pmstore::tools
