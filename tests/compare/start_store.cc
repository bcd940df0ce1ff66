// How long a start of a store takes: after an orderly stop, with and without its checkpoint, and
// after a crash; and how long the first look-ups take then, beside later ones.
//
// Makes a pool at --pool, fills it, and starts on it several times in this process. A start that
// reads all records is the same after a crash and after a stop without a checkpoint.
#include <fmt/format.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "pmstore/check.h"
#include "pmstore/server.h"
#include "pmstore/shard/store.h"
#include "tests/unit/pmstore/shard/store_fixture.h"
#include "tools/daemon/recovery_threads.h"

using namespace pmstore;

namespace {

struct Options {
  std::string pool = "/dev/shm/start_store.pool";
  uint64_t bytes = uint64_t{1} << 30;
  uint64_t records = 1'000'000;
  size_t value_bytes = 64;
  size_t threads = 0;
  unsigned turns = 3;
  bool ordered = false;
  bool no_domain = false;
  bool keep = false;
};

double now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

// Of all threads of this process: what a busy machine changes less than the time that passes.
double cpu_ms() {
  timespec spent{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  return static_cast<double>(spent.tv_sec) * 1e3 + static_cast<double>(spent.tv_nsec) / 1e6;
}

template <typename T>
T must(Result<T> result) {
  if (!result) {
    fmt::print(stderr, "start_store: {}\n", result.error().message);
    std::exit(1);
  }
  return std::move(*result);
}

std::string key_of(uint64_t i) { return fmt::format("key{:012}", i); }

struct Started {
  std::unique_ptr<persist::Pool> pool;
  std::unique_ptr<internal::Store> store;
  double pool_ms = 0;
  double store_ms = 0;
  double pool_cpu_ms = 0;
  double store_cpu_ms = 0;
};

persist::PoolOpenOptions pool_options(const Options& options) {
  persist::PoolOpenOptions open;
  open.assume_domain =
      options.no_domain ? persist::Domain::kNone : persist::Domain::kMemoryController;
  open.sparse = true;
  open.accept = check_startable;  // as open_pool()
  return open;
}

Started start(const Options& options) {
  Started started;
  tools::RecoveryThreads threads(options.threads);
  const double begin = now_ms();
  const double begin_cpu = cpu_ms();
  started.pool = must(persist::Pool::open(options.pool, pool_options(options)));
  const double opened = now_ms();
  const double opened_cpu = cpu_ms();
  started.store = must(internal::Store::open(*started.pool, {.workers = &threads}));
  started.store_ms = now_ms() - opened;
  started.pool_ms = opened - begin;
  started.pool_cpu_ms = opened_cpu - begin_cpu;
  started.store_cpu_ms = cpu_ms() - opened_cpu;
  return started;
}

void fill(const Options& options, internal::Store& store) {
  constexpr uint64_t kPerTransaction = 1000;
  const TableId table =
      must(store.create_table("t", options.ordered ? TableKind::kOrdered : TableKind::kHash));
  uint64_t sequence = must(store.begin_session());
  const std::string value(options.value_bytes, 'v');
  for (uint64_t i = 0; i < options.records;) {
    internal::TransactionMessage message(sequence++);
    for (uint64_t n = 0; n < kPerTransaction && i < options.records; ++n, ++i) {
      message.write(WriteKind::kPut, table, key_of(i), value);
    }
    const auto bytes = message.message();
    const Status done = store.commit(*internal::decode_commit(1, bytes));
    if (done) continue;
    fmt::print(stderr, "start_store: {}\n", done.error().message);
    std::exit(1);
  }
}

// Microseconds of the 99th percentile of so many look-ups, of keys all over the table.
double reads_p99(const Options& options, const internal::Store& store, Random& random,
                 size_t count) {
  const TableId table = *store.catalog().find("t");
  std::vector<double> took;
  for (size_t i = 0; i < count; ++i) {
    const std::string key = key_of(random.below(options.records));
    const double begin = now_ms();
    const auto found = store.read(table, key);
    took.push_back((now_ms() - begin) * 1000);
    PMSTORE_CHECK(found && found->value.size() == options.value_bytes, "each key is there");
  }
  std::sort(took.begin(), took.end());
  return took[count * 99 / 100 - 1];
}

void report(const char* name, const Options& options, const Started& started) {
  const RecoveryReport& recovery = started.store->recovery();
  constexpr size_t kFirst = 1000;
  constexpr size_t kUntilSteady = 300'000;
  Random random(7);
  const double first = reads_p99(options, *started.store, random, kFirst);
  reads_p99(options, *started.store, random, kUntilSteady);
  const double steady = reads_p99(options, *started.store, random, kFirst);
  fmt::print(
      "{:<8} pool {:7.1f} ms ({:.1f} of CPU)  store {:7.1f} ms ({:.1f} of CPU)  records {}  "
      "checkpoint {}  p99 of the first 1,000 look-ups {:.1f} us, of later ones {:.1f} us\n",
      name, started.pool_ms, started.pool_cpu_ms, started.store_ms, started.store_cpu_ms,
      recovery.live_records, recovery.from_checkpoint ? "used" : "not used", first, steady);
  std::fflush(stdout);
}

void make(const Options& options) {
  std::filesystem::remove(options.pool);
  FormatOptions format;
  format.log_bytes = 0;
  const auto pool =
      must(persist::Pool::create(options.pool, options.bytes, pool_options(options), false,
                                 [&](persist::Pool& made) { return format_store(made, format); }));
  const auto store = must(internal::Store::open(*pool));
  fill(options, *store);
  const double begin = now_ms();
  PMSTORE_CHECK(store->close().has_value(), "the pool can be written");
  fmt::print("stop       {:.1f} ms  {}\n", now_ms() - begin, store->no_checkpoint());
}

int run(const Options& options) {
  if (!options.keep || !std::filesystem::exists(options.pool)) make(options);
  for (unsigned turn = 0; turn < options.turns; ++turn) {
    {
      const Started orderly = start(options);
      report("orderly", options, orderly);
    }  // and the process dies
    const Started crashed = start(options);
    report("crash", options, crashed);
    PMSTORE_CHECK(crashed.store->close().has_value(), "the pool can be written");
  }
  if (!options.keep) std::filesystem::remove(options.pool);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"how long starts of a store take"};
  Options options;
  app.add_option("--pool", options.pool, "the pool's file, which is made anew");
  app.add_option("--bytes", options.bytes, "its size");
  app.add_option("--records", options.records, "how many records");
  app.add_option("--value-bytes", options.value_bytes, "of each record");
  app.add_option("--threads", options.threads, "that read; 0: one for each core");
  app.add_option("--turns", options.turns, "of starts");
  app.add_flag("--ordered", options.ordered, "in an ordered table");
  app.add_flag("--no-domain", options.no_domain, "domain none; else adr is assumed");
  app.add_flag("--keep", options.keep,
               "the pool stays; one that is there, with as many records, is used as it is");
  CLI11_PARSE(app, argc, argv);
  return run(options);
}
