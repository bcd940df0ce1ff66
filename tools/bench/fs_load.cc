#include "tools/bench/fs_load.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "base/executor.h"
#include "base/random.h"
#include "fs/file_system.h"
#include "tools/bench/bench_control.h"
#include "tools/bench/model_service.h"
#include "tools/daemon/pool_service.h"

namespace pmstore::tools {
namespace {

constexpr std::string_view kDirectory = "/bench-fs";
constexpr uint64_t kLookNs = 100'000;

Error error_of(const fs::PosixError& error, std::string_view what) {
  const bool unsupported = error.number == EOPNOTSUPP;
  return make_error(unsupported ? ErrorCode::kUnsupported : ErrorCode::kIo,
                    fmt::format("{}: {}", what, error.to_string()));
}

// What the block `block` (of all files) has after its write number `number`; 0: at the start.
void fill(std::span<std::byte> payload, uint64_t block, uint64_t number) {
  uint64_t word = base::mix64(block * 0x10001 + number);
  for (size_t at = 0; at < payload.size(); at += sizeof(word), ++word) {
    std::memcpy(payload.data() + at, &word, std::min(sizeof(word), payload.size() - at));
  }
}

struct Worker {
  uint64_t number = 0;
  uint64_t operations = 0;        // begun
  std::vector<uint64_t> written;  // of its blocks: acknowledged writes
};

class FsLoad {
 public:
  explicit FsLoad(const FsLoadOptions& options);
  Result<FsLoadResult> run();

 private:
  using Phase = Task<Status> (FsLoad::*)(fs::FileSystem&, Worker&, Histogram&);
  struct NamedPhase {
    std::string name;
    Phase phase;
    Histogram latency_ns = {};
    fabric::Counters counters = {};
    std::atomic<uint64_t> start_ns{0};
    uint64_t end_ns = 0;
    std::atomic<uint32_t> arrived{0};
    uint32_t ended = 0;  // clients
  };

  void real_threads();
  // All clients on one executor, on the modelled machine.
  void model_thread();
  Task<void> one_of(Executor& executor, uint32_t thread, uint32_t& left, base::WaitList& ended);
  Task<void> one_thread(Executor& executor, uint32_t thread);
  Task<Status> phases(Executor& executor, fs::FileSystem& files, uint32_t thread);
  Task<void> one(fs::FileSystem& files, NamedPhase& phase, Worker& worker, uint32_t& left,
                 base::WaitList& ended);
  Task<Status> run_phase(fs::FileSystem& files, NamedPhase& phase, uint32_t thread);
  Task<bool> all_there(Executor& executor, std::atomic<uint32_t>& arrived);

  Task<Status> prepare(fs::FileSystem& files);
  Task<Status> remove_all(fs::FileSystem& files, std::string path);
  Task<Status> audit(fs::FileSystem& files);
  Task<Status> audit_data(fs::FileSystem& files);
  Task<Status> audit_metadata(fs::FileSystem& files);
  void problem(std::string text);

  Task<Status> data(fs::FileSystem& files, Worker& worker, Histogram& latency);
  Task<Status> create(fs::FileSystem& files, Worker& worker, Histogram& latency);
  Task<Status> stat(fs::FileSystem& files, Worker& worker, Histogram& latency);
  Task<Status> list(fs::FileSystem& files, Worker& worker, Histogram& latency);
  Task<Status> rename(fs::FileSystem& files, Worker& worker, Histogram& latency);
  Task<Status> unlink(fs::FileSystem& files, Worker& worker, Histogram& latency);

  std::string data_path(uint64_t file) const { return fmt::format("{}/{}", kDirectory, file); }
  std::string directory_of(const Worker& worker) const {
    return fmt::format("{}/w{}", kDirectory, worker.number);
  }
  std::string path_of(const Worker& worker, uint64_t file, bool renamed = false) const {
    return fmt::format("{}/{}{}", directory_of(worker), renamed ? "r" : "f", file);
  }
  uint64_t blocks_of(const Worker& worker) const {
    const uint64_t workers = options_.workers();
    return options_.blocks() / workers + (worker.number < options_.blocks() % workers ? 1 : 0);
  }
  bool over(const Worker& worker, uint64_t now_ns) const;
  void fail(Error error);

  const FsLoadOptions& options_;
  BenchControl control_;
  std::vector<Worker> workers_;
  std::vector<std::unique_ptr<NamedPhase>> phases_;
  Histogram read_ns_;
  Histogram write_ns_;
  std::atomic<uint32_t> connected_{0};
  std::atomic<uint32_t> prepared_{0};
  std::atomic<uint32_t> closed_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::optional<Error> error_;
  FsLoadResult result_;
  ModelService* model_ = nullptr;  // while model_thread() runs
};

FsLoad::FsLoad(const FsLoadOptions& options) : options_(options), workers_(options.workers()) {
  for (size_t i = 0; i < workers_.size(); ++i) {
    workers_[i].number = i;
    if (options_.mode == FsLoadMode::kData) workers_[i].written.resize(blocks_of(workers_[i]));
  }
  const auto add = [this](std::string name, Phase phase) {
    phases_.push_back(std::make_unique<NamedPhase>(std::move(name), phase));
  };
  if (options_.mode == FsLoadMode::kData) {
    add("data", &FsLoad::data);
    return;
  }
  add("create", &FsLoad::create);
  add("stat", &FsLoad::stat);
  add("readdir", &FsLoad::list);
  add("rename", &FsLoad::rename);
  add("unlink", &FsLoad::unlink);
}

void FsLoad::fail(Error error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  failed_ = true;
  control_.stop();
}

bool FsLoad::over(const Worker& worker, uint64_t now_ns) const {
  const uint64_t share = options_.ops / options_.workers() +
                         (worker.number < options_.ops % options_.workers() ? 1 : 0);
  return control_.over(now_ns) || (options_.ops != 0 && worker.operations >= share);
}

// ---- data ----

Task<Status> FsLoad::data(fs::FileSystem& files, Worker& worker, Histogram&) {
  Histogram reads;
  Histogram writes;
  std::vector<std::unique_ptr<fs::File>> open(options_.files);
  Random random(base::mix64(options_.seed) + worker.number);
  std::vector<std::byte> payload(options_.payload_bytes);
  Executor& executor = files.executor();
  const uint64_t workers = options_.workers();
  const auto read_below = static_cast<uint64_t>(options_.read_share * (1u << 16));
  uint64_t next = 0;
  while (!over(worker, executor.now_ns()) && !failed_) {
    const bool reads_one = (random.next() & 0xffff) < read_below;
    const uint64_t own =
        options_.sequential ? next++ % worker.written.size() : random.below(worker.written.size());
    const uint64_t block = reads_one && !options_.sequential ? random.below(options_.blocks())
                                                             : worker.number + own * workers;
    const uint64_t file = block / options_.blocks_per_file();
    const uint64_t offset = block % options_.blocks_per_file() * options_.payload_bytes;
    if (open[file] == nullptr) {
      const std::string path = data_path(file);
      auto opened = co_await files.open(path, O_RDWR);
      if (!opened) co_return error_of(opened.error(), path);
      open[file] = std::move(*opened);
    }
    ++worker.operations;
    if (!reads_one) fill(payload, block, worker.written[own] + 1);
    const uint64_t start_ns = executor.now_ns();
    fs::PosixResult<uint64_t> done = 0;
    if (reads_one) {
      done = co_await open[file]->pread(payload, offset);
    } else {
      done = co_await open[file]->pwrite(payload, offset);
    }
    if (!done) co_return error_of(done.error(), data_path(file));
    (reads_one ? reads : writes).record(executor.now_ns() - start_ns);
    if (!reads_one) ++worker.written[own];
  }
  for (auto& each : open) {
    if (each == nullptr) continue;
    const fs::PosixStatus closed = co_await each->close();
    if (!closed) co_return error_of(closed.error(), "close");
  }
  const std::lock_guard lock(mutex_);
  read_ns_.merge(reads);
  write_ns_.merge(writes);
  co_return Status{};
}

// ---- metadata ----

Task<Status> FsLoad::create(fs::FileSystem& files, Worker& worker, Histogram& latency) {
  for (uint64_t i = 0; i < options_.files && !control_.stopped(); ++i) {
    const std::string path = path_of(worker, i);
    const uint64_t start_ns = files.executor().now_ns();
    auto file = co_await files.open(path, O_RDWR | O_CREAT | O_EXCL);
    if (!file) co_return error_of(file.error(), path);
    const fs::PosixStatus closed = co_await (*file)->close();
    if (!closed) co_return error_of(closed.error(), path);
    latency.record(files.executor().now_ns() - start_ns);
  }
  co_return Status{};
}

Task<Status> FsLoad::stat(fs::FileSystem& files, Worker& worker, Histogram& latency) {
  for (uint64_t i = 0; i < options_.files && !control_.stopped(); ++i) {
    const std::string path = path_of(worker, i);
    const uint64_t start_ns = files.executor().now_ns();
    const auto there = co_await files.stat(path);
    if (!there) co_return error_of(there.error(), path);
    latency.record(files.executor().now_ns() - start_ns);
  }
  co_return Status{};
}

// One operation is a page of entries.
Task<Status> FsLoad::list(fs::FileSystem& files, Worker& worker, Histogram& latency) {
  const std::string path = directory_of(worker);
  uint64_t cookie = 0;
  uint64_t found = 0;
  for (;;) {
    const uint64_t start_ns = files.executor().now_ns();
    const auto page = co_await files.list(path, cookie);
    if (!page) co_return error_of(page.error(), path);
    latency.record(files.executor().now_ns() - start_ns);
    if (page->empty()) break;
    found += page->size();
    cookie = page->back().entry.cookie;
  }
  if (found != options_.files && !control_.stopped()) {
    const std::lock_guard lock(mutex_);
    problem(fmt::format("{} has {} entries, not {}", path, found, options_.files));
  }
  co_return Status{};
}

Task<Status> FsLoad::rename(fs::FileSystem& files, Worker& worker, Histogram& latency) {
  for (uint64_t i = 0; i < options_.files && !control_.stopped(); ++i) {
    const std::string from = path_of(worker, i);
    const std::string to = path_of(worker, i, true);
    const uint64_t start_ns = files.executor().now_ns();
    const auto done = co_await files.rename(from, to);
    if (!done) co_return error_of(done.error(), from);
    latency.record(files.executor().now_ns() - start_ns);
  }
  co_return Status{};
}

Task<Status> FsLoad::unlink(fs::FileSystem& files, Worker& worker, Histogram& latency) {
  for (uint64_t i = 0; i < options_.files && !control_.stopped(); ++i) {
    const std::string path = path_of(worker, i, true);
    const uint64_t start_ns = files.executor().now_ns();
    const auto done = co_await files.remove(path);
    if (!done) co_return error_of(done.error(), path);
    latency.record(files.executor().now_ns() - start_ns);
  }
  co_return Status{};
}

// ---- before and after ----

Task<Status> FsLoad::remove_all(fs::FileSystem& files, std::string path) {
  for (;;) {
    auto page = co_await files.list(path);
    if (!page && page.number() == ENOENT) co_return Status{};
    if (!page) co_return error_of(page.error(), path);
    if (page->empty()) break;
    for (const auto& each : *page) {
      const std::string inner = path + "/" + each.entry.name;
      if (each.entry.type == fs::FileType::kDirectory) {
        PMSTORE_CO_TRY_STATUS(co_await remove_all(files, inner));
        continue;
      }
      const auto removed = co_await files.remove(inner);
      if (!removed) co_return error_of(removed.error(), inner);
    }
  }
  const auto removed = co_await files.remove(path);
  if (!removed) co_return error_of(removed.error(), path);
  co_return Status{};
}

Task<Status> FsLoad::prepare(fs::FileSystem& files) {
  PMSTORE_CO_TRY_STATUS(co_await remove_all(files, std::string(kDirectory)));
  const auto made = co_await files.make_directory(kDirectory);
  if (!made) co_return error_of(made.error(), kDirectory);
  if (options_.mode == FsLoadMode::kMetadata) {
    for (const Worker& worker : workers_) {
      const std::string path = directory_of(worker);
      const auto inner = co_await files.make_directory(path);
      if (!inner) co_return error_of(inner.error(), path);
    }
    co_return Status{};
  }
  std::vector<std::byte> payload(options_.payload_bytes);
  for (uint64_t i = 0; i < options_.files; ++i) {
    const std::string path = data_path(i);
    auto file = co_await files.open(path, O_RDWR | O_CREAT | O_EXCL);
    if (!file) co_return error_of(file.error(), path);
    const auto room = co_await (*file)->allocate(fs::AllocateMode::kExtend, 0, options_.file_bytes);
    if (!room) co_return error_of(room.error(), path);
    for (uint64_t b = 0; b < options_.blocks_per_file() && !control_.stopped(); ++b) {
      fill(payload, i * options_.blocks_per_file() + b, 0);
      const auto done = co_await (*file)->pwrite(payload, b * payload.size());
      if (!done) co_return error_of(done.error(), path);
    }
    const auto closed = co_await (*file)->close();
    if (!closed) co_return error_of(closed.error(), path);
  }
  co_return Status{};
}

void FsLoad::problem(std::string text) {
  if (++result_.audit.wrong == 1) result_.audit.first_problem = std::move(text);
}

Task<Status> FsLoad::audit_data(fs::FileSystem& files) {
  std::vector<std::byte> payload(options_.payload_bytes);
  std::vector<std::byte> wanted(options_.payload_bytes);
  for (uint64_t i = 0; i < options_.files; ++i) {
    const std::string path = data_path(i);
    auto file = co_await files.open(path, O_RDONLY);
    if (!file) co_return error_of(file.error(), path);
    for (uint64_t b = 0; b < options_.blocks_per_file(); ++b) {
      const uint64_t block = i * options_.blocks_per_file() + b;
      const Worker& owner = workers_[block % workers_.size()];
      fill(wanted, block, owner.written[block / workers_.size()]);
      const auto got = co_await (*file)->pread(payload, b * payload.size());
      if (!got) co_return error_of(got.error(), path);
      ++result_.audit.checked;
      if (*got != payload.size() || payload != wanted) {
        problem(fmt::format("{} at {}: not what was written last", path, b * payload.size()));
      }
    }
  }
  co_return Status{};
}

Task<Status> FsLoad::audit_metadata(fs::FileSystem& files) {
  for (const Worker& worker : workers_) {
    const std::string path = directory_of(worker);
    const auto page = co_await files.list(path);
    if (!page) co_return error_of(page.error(), path);
    result_.audit.checked += options_.files;
    if (!page->empty()) problem(fmt::format("{} has entries that were removed", path));
  }
  co_return Status{};
}

Task<Status> FsLoad::audit(fs::FileSystem& files) {
  if (options_.mode == FsLoadMode::kData) {
    PMSTORE_CO_TRY_STATUS(co_await audit_data(files));
  } else if (!control_.stopped()) {
    PMSTORE_CO_TRY_STATUS(co_await audit_metadata(files));
  }
  co_return co_await remove_all(files, std::string(kDirectory));
}

// ---- threads and phases ----

Task<bool> FsLoad::all_there(Executor& executor, std::atomic<uint32_t>& arrived) {
  ++arrived;
  while (arrived.load(std::memory_order_acquire) < options_.threads) {
    if (failed_) co_return false;
    co_await executor.sleep_for(kLookNs);
  }
  co_return !failed_;
}

Task<void> FsLoad::one(fs::FileSystem& files, NamedPhase& phase, Worker& worker, uint32_t& left,
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

}  // namespace

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
