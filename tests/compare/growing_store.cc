// What requests and the server's executor feel while a store grows from nothing and shrinks again.
//
// A server on a pool of --bytes in a file, and a client with several operations under way, on one
// executor. First each insert is followed by a get of any key so far, up to --records; then the
// later nine tenths are erased, with gets between; with --scattered nine of ten everywhere. Then
// the server has time to move records together and to give space back. Turns of the executor and
// requests are measured by the processor time of their thread, so other programs on the machine do
// not change them much. A turn has the client's work of that turn in it, too.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "pmstore/client.h"
#include "pmstore/server.h"
#include "tests/compare/measured_store.h"

using namespace pmstore;
using namespace pmstore::compare;

namespace {

struct Options {
  std::string pool = "/dev/shm/growing_store.pool";
  uint64_t bytes = uint64_t{4} << 30;
  fabric::Uri uri{fabric::Scheme::kLocal, "growing-store", 0};
  bool is_device() const { return pool.starts_with("/dev/dax"); }
  uint64_t records = 1'000'000;
  size_t value_bytes = 64;
  unsigned workers = 8;
  bool scattered = false;
};

// The server moves records when few were erased for half a second.
constexpr uint64_t kSettledNs = 3'000'000'000;
constexpr uint64_t kLongTurnNs = 1'000'000;

std::string key_of(uint64_t i) { return fmt::format("key{:012}", i); }

uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t pages = 0;
  uint64_t resident = 0;
  if (!(statm >> pages >> resident)) fail("/proc/self/statm cannot be read");
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}
double now_s() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// Of the executor, in one phase.
struct Turns {
  uint64_t count = 0;
  uint64_t longest_ns = 0;
  uint64_t long_ones = 0;
};

std::unique_ptr<persist::Pool> make_pool(const Options& options) {
  persist::PoolOpenOptions with;
  if (!options.is_device()) {
    with.assume_domain = persist::Domain::kMemoryController;
    with.sparse = true;
    std::filesystem::remove(options.pool);
  }
  FormatOptions format;
  format.log_bytes = 0;
  return must(
      persist::Pool::create(options.pool, options.bytes, with, options.is_device(),
                            [&](persist::Pool& made) { return format_store(made, format); }));
}

class Load {
 public:
  explicit Load(const Options& options) : options_(options), pool_(make_pool(options)) {
    server_ = must(executor_.run(Server::start(executor_, *pool_, {})));
    const fabric::Uri uri = must(executor_.run(server_->listen(options.uri)));
    client_ = must(executor_.run(Client::connect(executor_, uri, {})));
    table_ = must(executor_.run(client_->open_table("t", true)));
  }
  ~Load() {
    executor_.run(client_->close());
    client_.reset();
    if (const Status stopped = executor_.run(server_->stop()); !stopped) {
      fail(stopped.error().to_string());
    }
    if (!options_.is_device()) std::filesystem::remove(options_.pool);
  }

  void grow() { phase("grow", 0, &Load::insert); }
  void shrink() { phase("shrink", options_.scattered ? 0 : options_.records / 10, &Load::erase); }
  void settle() { phase("settle", 0, &Load::wait); }

 private:
  void phase(const char* name, uint64_t first, Task<void> (Load::*work)(uint64_t)) {
    next_ = first;
    took_ns_.clear();
    took_ns_.reserve(2 * options_.records);
    turns_ = {};
    const auto counters = client_->counters();
    const double begin = now_s();
    const uint64_t begin_cpu = thread_cpu_ns();
    std::vector<Task<void>> tasks;
    for (unsigned i = 0; i < options_.workers; ++i) tasks.push_back((this->*work)(i));
    for (auto& task : tasks) task.start();
    executor_.run(wait_for(tasks));
    const double seconds = now_s() - begin;
    const double cpu_seconds = static_cast<double>(thread_cpu_ns() - begin_cpu) / 1e9;
    std::sort(took_ns_.begin(), took_ns_.end());
    const auto percentile = [&](double of) {
      if (took_ns_.empty()) return 0.0;
      const auto at = static_cast<size_t>(of * static_cast<double>(took_ns_.size() - 1));
      return static_cast<double>(took_ns_[at]) / 1e3;
    };
    const auto spent = client_->counters() - counters;
    fmt::print(
        R"({{"phase": "{}", "records": {}, "value_bytes": {}, "requests": {}, )"
        R"("seconds": {:.1f}, "cpu_seconds": {:.1f}, "server_messages": {}, "bytes_read": {}, )"
        R"("p50_us": {:.1f}, "p99_us": {:.1f}, "p999_us": {:.1f}, "turns": {}, )"
        R"("longest_turn_us": {:.1f}, "turns_over_1_ms": {}, "resident_bytes": {}, "stat": {}}})"
        "\n",
        name, options_.records, options_.value_bytes, took_ns_.size(), seconds, cpu_seconds,
        spent.server_messages, spent.bytes_read, percentile(0.5), percentile(0.99),
        percentile(0.999), turns_.count, static_cast<double>(turns_.longest_ns) / 1e3,
        turns_.long_ones, resident_bytes(), must(executor_.run(client_->server_stat())));
    std::fflush(stdout);
  }
  // Counts the turns until they are over: all else on the executor runs between two of its steps.
  Task<void> wait_for(const std::vector<Task<void>>& tasks) {
    uint64_t before = thread_cpu_ns();
    for (size_t over = 0; over < tasks.size();) {
      co_await executor_.yield();
      const uint64_t now = thread_cpu_ns();
      const uint64_t took = now - before;
      before = now;
      ++turns_.count;
      turns_.longest_ns = std::max(turns_.longest_ns, took);
      turns_.long_ones += took > kLongTurnNs;
      while (over < tasks.size() && tasks[over].done()) ++over;
    }
  }
  Task<void> get(Random& random) {
    const std::string key = key_of(random.below(std::max<uint64_t>(next_, 1)));
    const uint64_t begin = thread_cpu_ns();
    const auto got = co_await client_->get(table_, key);
    if (!got && got.code() != ErrorCode::kNotFound) fail(got.error().to_string());
    took_ns_.push_back(static_cast<uint32_t>(thread_cpu_ns() - begin));
  }
  Task<void> insert(uint64_t seed) {
    Random random(seed);
    const std::string value(options_.value_bytes, 'v');
    while (next_ < options_.records) {
      const std::string key = key_of(next_++);
      const uint64_t begin = thread_cpu_ns();
      const Status put = co_await client_->put(table_, key, value);
      if (!put) fail(put.error().to_string());
      took_ns_.push_back(static_cast<uint32_t>(thread_cpu_ns() - begin));
      co_await get(random);
    }
  }
  Task<void> erase(uint64_t seed) {
    Random random(seed);
    while (next_ < options_.records) {
      if (options_.scattered && next_ % 10 == 0) ++next_;  // it stays
      if (next_ >= options_.records) break;
      const std::string key = key_of(next_++);
      const uint64_t begin = thread_cpu_ns();
      const Status erased = co_await client_->erase(table_, key);
      if (!erased) fail(erased.error().to_string());
      took_ns_.push_back(static_cast<uint32_t>(thread_cpu_ns() - begin));
      co_await get(random);
    }
  }
  // Until the server has moved nothing and given nothing back for a while.
  Task<void> wait(uint64_t worker) {
    std::string before;
    for (std::string now = frames(); worker == 0 && now != before; now = frames()) {
      before = std::move(now);
      const uint64_t until_ns = clock_.now_ns() + kSettledNs;
      while (clock_.now_ns() < until_ns) {
        co_await executor_.sleep_for(kSettledNs / 64);
        co_await get(random_);  // its answer tells of frames that go
      }
    }
  }
  std::string frames() const {
    const std::string stat = server_->stat_json();
    const size_t at = stat.find("\"frames\"");
    if (at == std::string::npos) fail("the statistics do not tell what becomes of frames");
    return stat.substr(at, stat.find('}', at) - at);
  }

  const Options& options_;
  std::unique_ptr<persist::Pool> pool_;
  base::RealClock clock_;
  Executor executor_{clock_};
  std::unique_ptr<Server> server_;
  std::unique_ptr<Client> client_;
  Turns turns_;
  TableId table_{};
  uint64_t next_ = 0;
  Random random_{1};
  std::vector<uint32_t> took_ns_;
};

int run(const Options& options) {
  Load load(options);
  load.grow();
  load.shrink();
  load.settle();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "what requests and the server's executor feel while a store grows and shrinks\n"
      "example: growing_store --records 5000000"};
  Options options;
  std::string uri = "local:growing-store";
  app.add_option("--pool", options.pool, "the pool's file or DAX device, which is made anew");
  app.add_option("--uri", uri, "where it is served, as verbs://10.77.0.1:7000")
      ->capture_default_str();
  app.add_option("--bytes", options.bytes, "of the pool");
  app.add_option("--records", options.records, "so many at most")->check(CLI::PositiveNumber);
  app.add_option("--value-bytes", options.value_bytes, "of each record");
  app.add_option("--workers", options.workers, "operations under way")->check(CLI::PositiveNumber);
  app.add_flag("--scattered", options.scattered,
               "nine of ten records are erased everywhere, not the later nine tenths");
  CLI11_PARSE(app, argc, argv);
  options.uri = must(fabric::parse_uri(uri));
  return run(options);
}
