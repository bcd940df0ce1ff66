// pmstore beside RocksDB and LMDB, in one process and one run: durable inserts of records of 64 B
// in random and in ascending order, gets, scans, and the workloads of YCSB.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/histogram.h"
#include "base/random.h"
#include "tests/compare/folder.h"
#include "tests/compare/lmdb_engine.h"
#include "tests/compare/ordered_engine.h"
#include "tests/compare/pmstore_engine.h"
#include "tests/compare/rocksdb_engine.h"
#include "tools/bench/ycsb_workload.h"

namespace pmstore::compare {
namespace {

using tools::YcsbKeys;
using tools::YcsbOperation;
using tools::YcsbRecords;
using tools::YcsbSteps;
using tools::YcsbWorkload;
using tools::Zipfian;

constexpr size_t kValueBytes = 64;

struct Options {
  std::string dir = "/dev/shm";
  std::string domain = "adr";
  std::vector<std::string> engines = {"pmstore", "rocksdb", "lmdb"};
  uint64_t records = 1'000'000;
  double seconds = 3;
  uint64_t seed = 1;
};

struct Measured {
  std::string engine;
  std::string what;
  uint64_t ops = 0;
  uint64_t records = 0;  // of scans
  double seconds = 0;
  Histogram latency_ns;
};

class Results {
 public:
  void add(Measured measured) {
    fmt::print("{:<8} {:<18} {:>10} ops {:>12.0f} per s {:>9.2f} us p50 {:>10.2f} us p99{}\n",
               measured.engine, measured.what, measured.ops, rate(measured),
               static_cast<double>(measured.latency_ns.quantile(0.5)) / 1000,
               static_cast<double>(measured.latency_ns.quantile(0.99)) / 1000,
               measured.records == 0
                   ? std::string()
                   : fmt::format(" {:>12.0f} records per s",
                                 static_cast<double>(measured.records) / measured.seconds));
    std::fflush(stdout);
    all_.push_back(std::move(measured));
  }
  // How many times as many operations pmstore does.
  void print_ratios() const {
    for (const Measured& mine : all_) {
      if (mine.engine != PmstoreEngine::kName) continue;
      std::string ratios;
      for (const Measured& other : all_) {
        if (other.what != mine.what || other.engine == mine.engine) continue;
        ratios += fmt::format("  {:.2f} x {}", rate(mine) / rate(other), other.engine);
      }
      if (!ratios.empty()) fmt::print("{:<18}{}\n", mine.what, ratios);
    }
  }

 private:
  static double rate(const Measured& measured) {
    return static_cast<double>(measured.ops) / measured.seconds;
  }
  std::vector<Measured> all_;
};

// One store, from empty on.
template <typename Engine>
class Run {
 public:
  Run(Engine& engine, const Options& options, bool ascending, Results& results)
      : engine_(engine),
        options_(options),
        ascending_(ascending),
        workload_(tools::ycsb_workloads().front()),
        keys_(workload_, ascending),
        results_(results) {}

  Task<void> load() {
    Measured measured = begin(ascending_ ? "insert ascending" : "insert random");
    const uint64_t start_ns = clock_.now_ns();
    uint64_t last_ns = start_ns;
    for (uint64_t i = 0; i < options_.records; ++i) {
      const bool inserted = co_await engine_.put(key(i), value_);
      if (!inserted) give_up(Engine::kName, "an insert was refused");
      note(measured, last_ns);
    }
    end(std::move(measured), start_ns);
  }

  Task<void> gets() {
    Measured measured = begin("get");
    Random random(options_.seed);
    const uint64_t start_ns = clock_.now_ns();
    uint64_t last_ns = start_ns;
    while (!over(start_ns, last_ns)) {
      co_await read(random.below(options_.records));
      note(measured, last_ns);
    }
    end(std::move(measured), start_ns);
  }

  Task<void> scans(uint64_t length) {
    Measured measured = begin(fmt::format("scan of {}", length));
    Random random(options_.seed);
    const uint64_t start_ns = clock_.now_ns();
    uint64_t last_ns = start_ns;
    while (!over(start_ns, last_ns)) {
      const uint64_t seen = co_await engine_.scan(key(random.below(options_.records)), length);
      if (seen == 0) give_up(Engine::kName, "a scan from a key that is there saw none");
      measured.records += seen;
      note(measured, last_ns);
    }
    end(std::move(measured), start_ns);
  }

  Task<void> ycsb(const YcsbWorkload& workload, const Zipfian& popular, YcsbRecords& records) {
    Measured measured = begin(fmt::format("ycsb {}", workload.name));
    YcsbSteps steps(workload, popular, records, options_.seed);
    const uint64_t start_ns = clock_.now_ns();
    uint64_t last_ns = start_ns;
    while (!over(start_ns, last_ns)) {
      const tools::YcsbStep step = steps.next();
      switch (step.operation) {
        case YcsbOperation::kRead: co_await read(step.record); break;
        case YcsbOperation::kReadModifyWrite:
          co_await read(step.record);
          co_await engine_.put(key(step.record), value_);
          break;
        case YcsbOperation::kUpdate: co_await engine_.put(key(step.record), value_); break;
        case YcsbOperation::kInsert:
          co_await engine_.put(key(step.record), value_);
          records.end_insert(step.record);
          break;
        case YcsbOperation::kScan:
          measured.records += co_await engine_.scan(key(step.record), step.records);
      }
      note(measured, last_ns);
    }
    end(std::move(measured), start_ns);
  }

 private:
  Measured begin(std::string what) const {
    Measured measured;
    measured.engine = Engine::kName;
    measured.what = std::move(what);
    return measured;
  }
  void note(Measured& measured, uint64_t& last_ns) const {
    const uint64_t now_ns = clock_.now_ns();
    measured.latency_ns.record(now_ns - last_ns);
    ++measured.ops;
    last_ns = now_ns;
  }
  void end(Measured measured, uint64_t start_ns) {
    measured.seconds = static_cast<double>(clock_.now_ns() - start_ns) / 1e9;
    results_.add(std::move(measured));
  }
  bool over(uint64_t start_ns, uint64_t now_ns) const {
    return static_cast<double>(now_ns - start_ns) >= options_.seconds * 1e9;
  }
  std::string_view key(uint64_t record) { return keys_.write(record, room_); }
  Task<void> read(uint64_t record) {
    const bool there = co_await engine_.get(key(record), got_);
    if (!there) give_up(Engine::kName, "a record is lost");
    if (got_.size() != kValueBytes) give_up(Engine::kName, "a value has another size");
    co_return;
  }

  Engine& engine_;
  const Options& options_;
  const bool ascending_;
  const YcsbWorkload& workload_;
  const YcsbKeys keys_;
  const base::RealClock clock_;
  Results& results_;
  char room_[YcsbKeys::kLongest];
  const std::string value_ = std::string(kValueBytes, 'v');
  std::string got_;
};

template <typename Engine>
Task<void> measure(Engine& engine, const Options& options, bool ascending, Results& results) {
  Run<Engine> run(engine, options, ascending, results);
  co_await run.load();
  if (ascending) co_return;
  co_await run.gets();
  co_await run.scans(64);
  co_await run.scans(10'000);
  const Zipfian popular(options.records);
  YcsbRecords records(options.records);
  for (const YcsbWorkload& workload : tools::ycsb_workloads()) {
    if (!workload.short_keys) co_await run.ycsb(workload, popular, records);
  }
}

// Twice: filled in random order, and measured; and filled in ascending order.
template <typename Make>
void measure_both(Executor& executor, const Options& options, Results& results, Make make) {
  for (const bool ascending : {false, true}) {
    const Folder folder(options.dir, "ordered_stores");
    const auto engine = make(folder.path());
    executor.run(measure(*engine, options, ascending, results));
  }
}

void run(const Options& options) {
  base::RealClock clock;
  Executor executor(clock);
  Results results;
  for (const std::string& name : options.engines) {
    if (name == PmstoreEngine::kName) {
      measure_both(executor, options, results, [&](const std::string& folder) {
        return std::make_unique<PmstoreEngine>(executor, *persist::parse_domain(options.domain),
                                               folder, options.records);
      });
    } else if (name == RocksdbEngine::kName) {
      measure_both(executor, options, results, [&](const std::string& folder) {
        return std::make_unique<RocksdbEngine>(folder, options.records);
      });
    } else {
      measure_both(executor, options, results, [&](const std::string& folder) {
        return std::make_unique<LmdbEngine>(folder, options.records);
      });
    }
  }
  results.print_ratios();
}

}  // namespace
}  // namespace pmstore::compare

int main(int argc, char** argv) {
  pmstore::compare::Options options;
  CLI::App app(
      "pmstore beside RocksDB and LMDB: ordered stores in this process, durable writes, one "
      "thread, "
      "keys of 16 and values of 64 bytes",
      "ordered_stores");
  app.add_option("--dir", options.dir, "the stores' folder is made there")->capture_default_str();
  app.add_option("--domain", options.domain, "pmstore takes its pool's memory for this")
      ->check(CLI::IsMember({"adr", "eadr", "none"}))
      ->capture_default_str();
  app.add_option("--engines", options.engines, "some of pmstore,rocksdb,lmdb, in this order")
      ->check(CLI::IsMember({"pmstore", "rocksdb", "lmdb"}))
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--records", options.records)
      ->check(CLI::Range(2u, 1u << 30))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "of each measurement but the inserts")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
  app.footer("example: ordered_stores --records 5000000 --seconds 10");
  CLI11_PARSE(app, argc, argv);
  pmstore::compare::run(options);
  return 0;
}
