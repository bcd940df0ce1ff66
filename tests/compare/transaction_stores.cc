// pmstore beside RocksDB's OptimisticTransactionDB, in one process and one run, one thread: durable
// puts of one record, and SmallBank (tools/bench/smallbank.h has its transactions and its mix).
#include <fmt/format.h>
#include <rocksdb/cache.h>
#include <rocksdb/table.h>
#include <rocksdb/utilities/optimistic_transaction_db.h>
#include <rocksdb/utilities/transaction.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/histogram.h"
#include "base/random.h"
#include "persist/pool.h"
#include "pmstore/client.h"
#include "pmstore/server.h"
#include "tests/compare/folder.h"
#include "tests/compare/ordered_engine.h"
#include "tools/bench/smallbank.h"

namespace pmstore::compare {
namespace {

using tools::smallbank::account_key;
using tools::smallbank::Balance;
using tools::smallbank::Kind;
using tools::smallbank::Order;
using tools::smallbank::OrderSource;

struct Options {
  std::string dir = "/dev/shm";
  std::string domain = "adr";
  uint64_t accounts = 100'000;
  uint64_t keys = 1'000'000;
  double seconds = 3;
  uint64_t operations = 0;  // 0: as many as there is time for
  unsigned turns = 1;
  uint64_t seed = 1;
  std::string only;  // "": both stores
};

// The tables of a bank, and one for single puts.
enum class Table : uint8_t { kSavings, kChecking, kSingle };
constexpr size_t kTables = 3;

// ---- engines ----

// A hash table for each Table, in a pool in a file.
class Pmstore {
 public:
  static constexpr std::string_view kName = "pmstore";

  Pmstore(Executor& executor, const Options& options, const std::string& folder)
      : executor_(executor) {
    const std::string path = folder + "/pool";
    persist::PoolOpenOptions open;
    open.assume_domain = *persist::parse_domain(options.domain);
    const uint64_t bytes = (uint64_t{512} << 20) + (options.keys + 2 * options.accounts) * 256;
    must(persist::Pool::create(path, bytes, open, false, [](persist::Pool& pool) {
      return format_store(pool, FormatOptions{});
    }));
    ClientOptions how;
    how.assume_domain = open.assume_domain;
    how.local_discipline = LockDiscipline::kCpu;
    client_ = must(
        executor.run(Client::connect(executor, fabric::Uri{fabric::Scheme::kLocal, path, 0}, how)));
    for (size_t i = 0; i < kTables; ++i) {
      tables_[i] = must(executor.run(client_->open_table("table" + std::to_string(i), true)));
    }
  }
  ~Pmstore() { executor_.run(client_->close()); }
  Pmstore(const Pmstore&) = delete;
  Pmstore& operator=(const Pmstore&) = delete;

  class Tx {
   public:
    explicit Tx(Pmstore& store) : store_(store), tx_(store.client_->begin()) {}
    Task<Result<size_t>> get(Table table, std::string_view key, std::span<char> value) {
      return tx_.get(store_.id(table), key, std::as_writable_bytes(value));
    }
    void put(Table table, std::string_view key, std::string_view value) {
      tx_.put(store_.id(table), key, value);
    }
    Task<Status> commit() { return tx_.commit(); }

   private:
    Pmstore& store_;
    Transaction tx_;
  };

  Task<bool> put(Table table, std::string_view key, std::string_view value) {
    const Status done = co_await client_->put(id(table), key, value);
    if (!done) give_up(kName, done.error().to_string());
    co_return true;
  }

 private:
  TableId id(Table table) const { return tables_[static_cast<size_t>(table)]; }
  static void must(const Status& status) {
    if (!status) give_up(kName, status.error().to_string());
  }
  template <typename T>
  static T must(Result<T> result) {
    if (!result) give_up(kName, result.error().to_string());
    return std::move(*result);
  }

  Executor& executor_;
  std::unique_ptr<Client> client_;
  TableId tables_[kTables]{};
};

// With a sync of its log at each commit. Blocks are not compressed, and its cache has room for
// everything; otherwise as it is. A transaction validates what it has read at its commit.
class Rocksdb {
 public:
  static constexpr std::string_view kName = "rocksdb";

  Rocksdb(Executor&, const Options&, const std::string& folder) {
    rocksdb::BlockBasedTableOptions table;
    table.block_cache = rocksdb::NewLRUCache(uint64_t{4} << 30);
    rocksdb::Options options;
    options.create_if_missing = true;
    options.error_if_exists = true;
    options.compression = rocksdb::kNoCompression;
    options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    rocksdb::OptimisticTransactionDB* db = nullptr;
    must(rocksdb::OptimisticTransactionDB::Open(options, folder + "/rocksdb", &db));
    db_.reset(db);
    durable_.sync = true;
  }

  class Tx {
   public:
    explicit Tx(Rocksdb& store) : store_(store), tx_(store.db_->BeginTransaction(store.durable_)) {}
    Ready<Result<size_t>> get(Table table, std::string_view key, std::span<char> value) {
      rocksdb::PinnableSlice seen;
      const auto got = tx_->GetForUpdate(rocksdb::ReadOptions(), store_.db_->DefaultColumnFamily(),
                                         name(table, key), &seen);
      if (got.IsNotFound()) return {make_error(ErrorCode::kNotFound)};
      must(got);
      std::copy_n(seen.data(), std::min(seen.size(), value.size()), value.data());
      return {seen.size()};
    }
    void put(Table table, std::string_view key, std::string_view value) {
      must(tx_->Put(name(table, key), rocksdb::Slice(value.data(), value.size())));
    }
    Ready<Status> commit() {
      const auto done = tx_->Commit();
      if (done.IsBusy()) return {make_error(ErrorCode::kConflict)};
      must(done);
      return {Status()};
    }

   private:
    Rocksdb& store_;
    std::unique_ptr<rocksdb::Transaction> tx_;
  };

  Ready<bool> put(Table table, std::string_view key, std::string_view value) {
    must(db_->Put(durable_, name(table, key), rocksdb::Slice(value.data(), value.size())));
    return {true};
  }

 private:
  static std::string name(Table table, std::string_view key) {
    return std::string(1, static_cast<char>('a' + static_cast<int>(table))).append(key);
  }
  static void must(const rocksdb::Status& status) {
    if (!status.ok()) give_up(kName, status.ToString());
  }

  rocksdb::WriteOptions durable_;
  std::unique_ptr<rocksdb::OptimisticTransactionDB> db_;
};

// ---- the bank ----

template <typename Tx>
Task<Balance> read(Tx& tx, Table table, std::string_view account) {
  char text[64];
  const auto bytes = co_await tx.get(table, account, text);
  if (!bytes) give_up("smallbank", bytes.error().to_string());
  const auto balance =
      *bytes <= sizeof(text) ? tools::smallbank::decode_balance({text, *bytes}) : std::nullopt;
  if (!balance) give_up("smallbank", "an account is missing or damaged");
  co_return *balance;
}

template <typename Tx>
void set(Tx& tx, Table table, std::string_view account, const Balance& before, int64_t cents) {
  tx.put(table, account, tools::smallbank::encode(Balance{cents, before.writes + 1}));
}

// What smallbank::execute() does, for any engine. False: it lost against another.
template <typename Engine>
Task<bool> serve(Engine& engine, Order order) {
  const std::string first = account_key(order.first);
  const bool of_two = order.kind == Kind::kAmalgamate || order.kind == Kind::kSendPayment;
  const std::string second = of_two ? account_key(order.second) : std::string();
  constexpr Table kSavings = Table::kSavings;
  constexpr Table kChecking = Table::kChecking;
  typename Engine::Tx tx(engine);
  const bool both = order.kind == Kind::kAmalgamate || order.kind == Kind::kBalance ||
                    order.kind == Kind::kWriteCheck;
  Balance savings, checking;
  if (both || order.kind == Kind::kTransactSavings) {
    savings = co_await read(tx, kSavings, first);
  }
  if (order.kind != Kind::kTransactSavings) checking = co_await read(tx, kChecking, first);
  const int64_t cents = order.cents;
  switch (order.kind) {
    case Kind::kAmalgamate: {
      const Balance other = co_await read(tx, kChecking, second);
      set(tx, kSavings, first, savings, 0);
      set(tx, kChecking, first, checking, 0);
      set(tx, kChecking, second, other, other.cents + savings.cents + checking.cents);
      break;
    }
    case Kind::kBalance: break;
    case Kind::kDepositChecking: set(tx, kChecking, first, checking, checking.cents + cents); break;
    case Kind::kSendPayment: {
      if (checking.cents < cents) break;
      const Balance other = co_await read(tx, kChecking, second);
      set(tx, kChecking, first, checking, checking.cents - cents);
      set(tx, kChecking, second, other, other.cents + cents);
      break;
    }
    case Kind::kTransactSavings:
      if (savings.cents + cents >= 0) set(tx, kSavings, first, savings, savings.cents + cents);
      break;
    case Kind::kWriteCheck: {
      const bool overdrawn = savings.cents + checking.cents < cents;
      const int64_t penalty = overdrawn ? tools::smallbank::kOverdraftPenaltyCents : 0;
      set(tx, kChecking, first, checking, checking.cents - cents - penalty);
    }
  }
  const Status done = co_await tx.commit();
  if (!done && done.code() != ErrorCode::kConflict) {
    give_up("smallbank", done.error().to_string());
  }
  co_return done.has_value();
}

// ---- measuring ----

struct Measured {
  std::string_view engine;
  std::string_view what;
  double per_second = 0;
  double p50_us = 0;
  double processor_us = 0;  // of this thread, for one operation
};

// What this thread has had: where others compete for the processors, it tells more than the rate.
double processor_seconds() {
  timespec had{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &had);
  return static_cast<double>(had.tv_sec) + static_cast<double>(had.tv_nsec) / 1e9;
}

template <typename Engine>
class Run {
 public:
  Run(Engine& engine, const Options& options) : engine_(engine), options_(options) {}

  Task<void> load() {
    const std::string balance = tools::smallbank::encode(Balance{1'000'000, 0});
    for (uint64_t i = 0; i < options_.accounts; ++i) {
      for (const Table table : {Table::kSavings, Table::kChecking}) {
        co_await engine_.put(table, account_key(i), balance);
      }
    }
    for (uint64_t i = 0; i < options_.keys; ++i) {
      co_await engine_.put(Table::kSingle, account_key(i), value_);
    }
  }
  Task<Measured> puts(uint64_t turn) {
    Random random(options_.seed + turn);
    const auto put = [&]() -> Task<void> {
      co_await engine_.put(Table::kSingle, account_key(random.below(options_.keys)), value_);
    };
    co_return co_await measure("put", put);
  }
  Task<Measured> bank(uint64_t turn) {
    OrderSource orders(options_.seed + turn, options_.accounts);
    const auto one = [&]() -> Task<void> {
      const Order order = orders.next();
      while (!co_await serve(engine_, order)) {
      }
    };
    co_return co_await measure("smallbank", one);
  }

 private:
  template <typename Operation>
  Task<Measured> measure(std::string_view what, Operation& operation) {
    Histogram latency_ns;
    const double had_s = processor_seconds();
    const uint64_t start_ns = clock_.now_ns();
    const auto most_ns = static_cast<uint64_t>(options_.seconds * 1e9);
    uint64_t last_ns = start_ns;
    const uint64_t most = options_.operations;
    while (most > 0 ? latency_ns.count() < most : last_ns - start_ns < most_ns) {
      co_await operation();
      const uint64_t now_ns = clock_.now_ns();
      latency_ns.record(now_ns - last_ns);
      last_ns = now_ns;
    }
    Measured measured{Engine::kName, what};
    measured.processor_us =
        (processor_seconds() - had_s) * 1e6 / static_cast<double>(latency_ns.count());
    measured.per_second =
        static_cast<double>(latency_ns.count()) / (static_cast<double>(last_ns - start_ns) / 1e9);
    measured.p50_us = static_cast<double>(latency_ns.quantile(0.5)) / 1000;
    fmt::print(
        "{:<8} {:<10} {:>12.0f} per s {:>8.2f} us p50 {:>8.2f} us p99 {:>8.2f} us of processor\n",
        measured.engine, what, measured.per_second, measured.p50_us,
        static_cast<double>(latency_ns.quantile(0.99)) / 1000, measured.processor_us);
    std::fflush(stdout);
    co_return measured;
  }

  Engine& engine_;
  const Options& options_;
  const base::RealClock clock_;
  const std::string value_ = std::string(64, 'v');
};

// One store alone, for a profiler.
template <typename Engine>
void run_alone(const Options& options, Executor& executor, const Folder& folder) {
  Engine engine(executor, options, folder.path());
  Run<Engine> measured(engine, options);
  executor.run(measured.load());
  for (unsigned turn = 0; turn < options.turns; ++turn) {
    executor.run(measured.puts(turn));
    executor.run(measured.bank(turn));
  }
}

// Both stores stand beside each other, and are measured in turns.
void run(const Options& options) {
  base::RealClock clock;
  Executor executor(clock);
  const Folder folder(options.dir, "transaction_stores");
  if (options.only == Pmstore::kName) return run_alone<Pmstore>(options, executor, folder);
  if (options.only == Rocksdb::kName) return run_alone<Rocksdb>(options, executor, folder);
  Pmstore pmstore(executor, options, folder.path());
  Rocksdb rocksdb(executor, options, folder.path());
  Run<Pmstore> mine(pmstore, options);
  Run<Rocksdb> other(rocksdb, options);
  executor.run(mine.load());
  executor.run(other.load());
  for (unsigned turn = 0; turn < options.turns; ++turn) {
    const auto compare = [](const Measured& here, const Measured& there) {
      fmt::print("{}: {:.2f} x the rate, {:.2f} x the p50, {:.2f} x the processor time\n",
                 here.what, here.per_second / there.per_second, here.p50_us / there.p50_us,
                 here.processor_us / there.processor_us);
    };
    const Measured put = executor.run(mine.puts(turn));
    compare(put, executor.run(other.puts(turn)));
    const Measured bank = executor.run(mine.bank(turn));
    compare(bank, executor.run(other.bank(turn)));
  }
}

}  // namespace
}  // namespace pmstore::compare

int main(int argc, char** argv) {
  pmstore::compare::Options options;
  CLI::App app(
      "pmstore beside RocksDB's OptimisticTransactionDB: stores in this process, durable writes, "
      "one thread; single puts of 64 bytes, and SmallBank",
      "transaction_stores");
  app.add_option("--dir", options.dir, "the stores' folder is made there")->capture_default_str();
  app.add_option("--domain", options.domain, "pmstore takes its pool's memory for this")
      ->check(CLI::IsMember({"adr", "eadr", "none"}))
      ->capture_default_str();
  app.add_option("--accounts", options.accounts, "of the bank")
      ->check(CLI::Range(2u, 99'999'999u))
      ->capture_default_str();
  app.add_option("--keys", options.keys, "of the single puts")
      ->check(CLI::Range(1u, 99'999'999u))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "of each measurement")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  app.add_option("--operations", options.operations, "of each measurement, whatever they take")
      ->check(CLI::Range(1u, 999'999'999u));
  app.add_option("--only", options.only, "measures one store alone, as for a profiler")
      ->check(CLI::IsMember({"pmstore", "rocksdb"}));
  app.add_option("--turns", options.turns, "of both stores")
      ->check(CLI::Range(1u, 100u))
      ->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
  app.footer("example: transaction_stores --turns 3");
  CLI11_PARSE(app, argc, argv);
  pmstore::compare::run(options);
  return 0;
}
