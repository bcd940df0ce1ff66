// Threads, and where they meet.
#include "tools/bench/log_load_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "log/ring_layout.h"
#include "tools/cli/console.h"
#include "tools/cli/log_session.h"
#include "tools/daemon/pool_service.h"

namespace pmstore::tools {

void LogLoad::fail(Error error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  failed_.store(true, std::memory_order_release);
  control_.stop();
}

Task<bool> LogLoad::meet(Executor& executor, uint32_t& meetings) {
  constexpr uint64_t kLookNs = 100'000;
  const uint32_t goal = options_.threads * ++meetings;
  ++arrived_;
  while (arrived_.load(std::memory_order_acquire) < goal) {
    if (failed()) co_return false;
    co_await executor.sleep_for(kLookNs);
  }
  co_return !failed();
}

Task<void> LogLoad::member(Executor& executor, uint32_t thread) {
  const bool first = thread == 0;
  uint32_t meetings = 0;
  if (first) {
    Status prepared = co_await prepare(executor);
    if (!prepared) fail(std::move(prepared.error()));
  }
  if (co_await meet(executor, meetings)) {
    Status connected = co_await connect(executor, thread);
    if (!connected) fail(std::move(connected.error()));
  }
  while (co_await meet(executor, meetings) && !last_lap_) {
    if (first) begin_lap(executor);
    if (!co_await meet(executor, meetings)) break;
    co_await lap(executor, thread);
    for (uint32_t p = thread; p < options_.producers; p += options_.threads) {
      if (options_.mode == LogMode::kShared || failed()) continue;
      Status published = co_await publish(producers_[p]);
      if (!published) fail(std::move(published.error()));
    }
    if (!co_await meet(executor, meetings)) break;
    if (!first) continue;
    end_lap();
    Status checked = co_await check();
    if (!checked) fail(std::move(checked.error()));
  }
  for (uint32_t p = thread; p < options_.producers; p += options_.threads) {
    if ((producers_[p].exclusive || producers_[p].replicated) && !failed()) {
      Status closed = co_await close(producers_[p]);
      if (!closed) fail(std::move(closed.error()));
    }
    producers_[p].exclusive.reset();
    producers_[p].replicated.reset();
    if (p > 0) producers_[p].client.reset();
  }
  if (co_await meet(executor, meetings) && first) {
    Status deleted = co_await delete_logs();
    if (!deleted) fail(std::move(deleted.error()));
  }
  if (first) {
    producers_[0].client.reset();
    embedded_.reset();
    servers_.clear();
  }
}

Task<void> LogLoad::member_of(Executor& executor, uint32_t thread, uint32_t& left,
                              base::WaitList& ended) {
  co_await member(executor, thread);
  if (--left == 0) ended.notify_all();
}

void LogLoad::thread_ended() {
  const std::lock_guard lock(mutex_);
  ++threads_ended_;
  ended_condition_.notify_all();
}

void LogLoad::real_thread(uint32_t thread) {
  base::RealClock clock;
  Executor executor(clock,
                    base::ExecutorOptions{.seed = options_.seed + thread, .poll = options_.poll});
  executor.run(member(executor, thread));
  thread_ended();
}

void LogLoad::model_thread() {
  constexpr uint64_t kBesideLogs = 2u << 20;  // the area's directory, with room to spare
  base::VirtualClock clock;
  Executor executor(clock, base::ExecutorOptions{.seed = options_.seed});
  const auto assumed = log_client_options(options_.session).assume_domain;
  ModelServiceOptions serve;
  serve.model = options_.model;
  serve.seed = options_.seed;
  serve.clients = 1;
  serve.log_bytes = logs_.size() * (options_.log_bytes + log::kRingHeaderBytes) + kBesideLogs;
  if (assumed) serve.domain = *assumed;
  auto service = ModelService::start(executor, serve);
  if (service) {
    model_ = service->get();
    const auto all = [&]() -> Task<void> {
      base::WaitList ended(executor);
      uint32_t left = options_.threads;
      for (uint32_t i = 0; i < options_.threads; ++i) {
        executor.spawn(member_of(executor, i, left, ended));
      }
      while (left > 0) co_await ended.wait();
    };
    executor.run(all());
    result_.model_config = model_->config_json();
    if (!failed()) {
      result_.model_counters = model_->counters_json();
      result_.dimms = model_->dimms();
    }
    Status stopped = model_->stop();
    if (!stopped) fail(std::move(stopped.error()));
    model_ = nullptr;
  } else {
    fail(std::move(service.error()));
  }
  thread_ended();
}

void LogLoad::show_progress() {
  ProgressLine line;
  std::unique_lock lock(mutex_);
  const auto start = std::chrono::steady_clock::now();
  while (threads_ended_ < threads_to_end_) {
    ended_condition_.wait_for(lock, std::chrono::milliseconds(250));
    if (!line.shown()) continue;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    line.update(fmt::format("{:.0f} s: {} appends, lap {}", seconds.count(), appended_.load(),
                            laps_.load()));
  }
}

Result<LogLoadResult> LogLoad::run() {
  std::unique_ptr<ServiceThread> service;
  const bool model = options_.model.on();
  if (!model && options_.replicas.empty() && options_.threads > 1 &&
      options_.session.parsed_uri().scheme == fabric::Scheme::kLocal) {
    ServiceOptions serve;
    serve.listen = {options_.session.parsed_uri()};
    serve.pool = serve.listen.front().name;
    serve.open.assume_domain = log_client_options(options_.session).assume_domain;
    serve.executor.poll = options_.poll;
    PMSTORE_TRY(service, ServiceThread::start(serve));
  }
  const StopOnSignal stop_on_signal(control_);
  std::vector<std::thread> threads;
  threads_to_end_ = model ? 1 : options_.threads;
  for (uint32_t i = 0; i < threads_to_end_; ++i) {
    threads.emplace_back([this, i, model] { model ? model_thread() : real_thread(i); });
  }
  show_progress();
  for (std::thread& each : threads) each.join();
  if (error_) return *error_;
  for (const Histogram& histogram : histograms_) result_.append_ns.merge(histogram);
  result_.seconds = std::max(1e-9, static_cast<double>(measured_ns_) / 1e9);
  result_.laps = laps_.load();
  result_.interrupted = StopOnSignal::interrupted();
  return std::move(result_);
}

}  // namespace pmstore::tools
