// Embedded reads and loads beside LMDB, in one process and one run: gets into the caller's buffer
// beside LMDB with a copy, views beside LMDB without, each of whose bytes is read; several keys at
// a time beside as many gets; and loads in equal batches, beside LMDB and RocksDB.
#include <fmt/format.h>
#include <lmdb.h>
#include <rocksdb/db.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/random.h"
#include "persist/pool.h"
#include "pmstore/client.h"
#include "pmstore/server.h"
#include "tests/compare/folder.h"

namespace pmstore::compare {
namespace {

struct Options {
  std::string dir = "/dev/shm";
  std::string domain = "adr";
  uint64_t records = 1'000'000;
  uint64_t value_bytes = 64;
  uint64_t batch_bytes = 256 * 1024;
  double seconds = 1;
  unsigned turns = 5;
  unsigned together = 16;
  bool ordered = false;
  uint64_t seed = 1;
};

using Key = std::array<char, 16>;

// In an order that has nothing to do with the numbers.
Key key_of(uint64_t record) {
  Key key{};
  const uint64_t mixed = record * 0x9e3779b97f4a7c15;
  fmt::format_to_n(key.data(), key.size(), "{:016x}", mixed);
  return key;
}
std::string_view text(const Key& key) { return {key.data(), key.size()}; }

// Reads every byte.
uint64_t sum_of(std::string_view bytes) {
  uint64_t sum = 0;
  for (; bytes.size() >= sizeof(sum); bytes.remove_prefix(sizeof(sum))) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof(word));
    sum += word;
  }
  for (const char each : bytes) sum += static_cast<unsigned char>(each);
  return sum;
}

class Pmstore {
 public:
  static constexpr std::string_view kName = "pmstore";

  Pmstore(Executor& executor, const Options& options, const std::string& folder)
      : executor_(executor), options_(options) {
    const std::string path = folder + "/pool";
    persist::PoolOpenOptions open;
    open.assume_domain = *persist::parse_domain(options.domain);
    const uint64_t record = options.value_bytes + 256;
    const uint64_t bytes = (uint64_t{512} << 20) + options.records * (record + record / 2);
    must("create", persist::Pool::create(path, bytes, open, false, [](persist::Pool& pool) {
           return format_store(pool, FormatOptions{});
         }));
    ClientOptions client;
    client.assume_domain = open.assume_domain;
    client.local_discipline = LockDiscipline::kCpu;
    client_ = must("open", executor.run(Client::connect(
                               executor, fabric::Uri{fabric::Scheme::kLocal, path, 0}, client)));
    const TableKind kind = options.ordered ? TableKind::kOrdered : TableKind::kHash;
    table_ = must("table", executor.run(client_->create_table("records", kind)));
  }
  Pmstore(const Pmstore&) = delete;
  Pmstore& operator=(const Pmstore&) = delete;
  ~Pmstore() { executor_.run(client_->close()); }

  void load(uint64_t first, uint64_t count, std::string_view value) {
    executor_.run(load_them(first, count, value));
  }
  Task<size_t> get(std::string_view key, std::span<std::byte> into) {
    co_return must("get", co_await client_->get(table_, key, into));
  }
  Task<uint64_t> view(std::string_view key) {
    const ValueView view = must("view", co_await client_->view(table_, key));
    co_return sum_of(view.value());
  }
  Task<size_t> get_each(std::span<const std::string_view> keys) {
    size_t bytes = 0;
    for (const std::string_view key : keys) {
      bytes += must("get", co_await client_->get(table_, key)).size();
    }
    co_return bytes;
  }
  Task<size_t> get_many(std::span<const std::string_view> keys) {
    const Values values = must("get many", co_await client_->get_many(table_, keys));
    size_t bytes = 0;
    for (const auto& value : values) bytes += value ? value->size() : 0;
    co_return bytes;
  }

 private:
  template <typename T>
  static T must(const char* what, Result<T> result) {
    if (!result) give_up(kName, std::string(what) + ": " + result.error().to_string());
    return std::move(*result);
  }
  Task<void> load_them(uint64_t first, uint64_t count, std::string_view value) {
    Transaction transaction = client_->begin();
    for (uint64_t i = first; i < first + count; ++i) {
      transaction.put(table_, text(key_of(i)), value);
    }
    const Status done = co_await transaction.commit();
    if (!done) give_up(kName, done.error().to_string());
  }

  Executor& executor_;
  const Options& options_;
  std::unique_ptr<Client> client_;
  TableId table_{};
};

class Lmdb {
 public:
  static constexpr std::string_view kName = "lmdb";

  Lmdb(Executor& /*executor*/, const Options& options, const std::string& folder) {
    const std::string path = folder + "/lmdb";
    if (mkdir(path.c_str(), 0700) != 0) give_up(kName, "cannot make " + path);
    must("create", mdb_env_create(&env_));
    const uint64_t record = 4 * (options.value_bytes + 256) + 4096;
    must("map", mdb_env_set_mapsize(env_, (uint64_t{256} << 20) + options.records * record));
    must("open", mdb_env_open(env_, path.c_str(), 0, 0600));
    MDB_txn* txn = nullptr;
    must("begin", mdb_txn_begin(env_, nullptr, 0, &txn));
    must("open", mdb_dbi_open(txn, nullptr, 0, &dbi_));
    must("commit", mdb_txn_commit(txn));
    must("begin", mdb_txn_begin(env_, nullptr, MDB_RDONLY, &reader_));
    mdb_txn_reset(reader_);
  }
  Lmdb(const Lmdb&) = delete;
  Lmdb& operator=(const Lmdb&) = delete;
  ~Lmdb() {
    mdb_txn_abort(reader_);
    mdb_env_close(env_);
  }

  void load(uint64_t first, uint64_t count, std::string_view value) {
    MDB_txn* txn = nullptr;
    must("begin", mdb_txn_begin(env_, nullptr, 0, &txn));
    for (uint64_t i = first; i < first + count; ++i) {
      const Key key = key_of(i);
      MDB_val k{key.size(), const_cast<char*>(key.data())};
      MDB_val v{value.size(), const_cast<char*>(value.data())};
      must("put", mdb_put(txn, dbi_, &k, &v, 0));
    }
    must("commit", mdb_txn_commit(txn));
  }
  Task<size_t> get(std::string_view key, std::span<std::byte> into) {
    must("renew", mdb_txn_renew(reader_));
    MDB_val k{key.size(), const_cast<char*>(key.data())};
    MDB_val v{};
    must("get", mdb_get(reader_, dbi_, &k, &v));
    if (v.mv_size <= into.size()) std::memcpy(into.data(), v.mv_data, v.mv_size);
    mdb_txn_reset(reader_);
    co_return v.mv_size;
  }
  Task<uint64_t> view(std::string_view key) {
    must("renew", mdb_txn_renew(reader_));
    MDB_val k{key.size(), const_cast<char*>(key.data())};
    MDB_val v{};
    must("get", mdb_get(reader_, dbi_, &k, &v));
    const uint64_t sum = sum_of({static_cast<const char*>(v.mv_data), v.mv_size});
    mdb_txn_reset(reader_);
    co_return sum;
  }

 private:
  static void must(const char* what, int error) {
    if (error != 0) give_up(kName, std::string(what) + ": " + mdb_strerror(error));
  }

  MDB_env* env_ = nullptr;
  MDB_dbi dbi_ = 0;
  MDB_txn* reader_ = nullptr;
};

// Only loads. A write of a batch is durable, as RocksDB says (sync), and blocks are not compressed.
class Rocksdb {
 public:
  explicit Rocksdb(const std::string& folder) {
    rocksdb::Options options;
    options.create_if_missing = true;
    options.compression = rocksdb::kNoCompression;
    rocksdb::DB* db = nullptr;
    must(rocksdb::DB::Open(options, folder + "/rocksdb", &db));
    db_.reset(db);
  }
  void load(uint64_t first, uint64_t count, std::string_view value) {
    rocksdb::WriteBatch batch;
    for (uint64_t i = first; i < first + count; ++i) {
      const Key key = key_of(i);
      must(batch.Put({key.data(), key.size()}, {value.data(), value.size()}));
    }
    rocksdb::WriteOptions durable;
    durable.sync = true;
    must(db_->Write(durable, &batch));
  }

 private:
  static void must(const rocksdb::Status& status) {
    if (!status.ok()) give_up("rocksdb", status.ToString());
  }
  std::unique_ptr<rocksdb::DB> db_;
};

double median(std::vector<double> of) {
  std::sort(of.begin(), of.end());
  return of[of.size() / 2];
}

template <typename Engine>
double load(Engine& engine, const Options& options) {
  const std::string value(options.value_bytes, 'v');
  const uint64_t batch =
      std::max<uint64_t>(1, options.batch_bytes / (options.value_bytes + sizeof(Key)));
  const base::RealClock clock;
  const uint64_t start_ns = clock.now_ns();
  for (uint64_t done = 0; done < options.records;) {
    const uint64_t count = std::min(batch, options.records - done);
    engine.load(done, count, value);
    done += count;
  }
  return static_cast<double>(options.records) * 1e9 /
         static_cast<double>(clock.now_ns() - start_ns);
}

// The median of what `read`, a Task<uint64_t>(keys), takes for one key, in ns. It gives `expected`.
template <typename Read>
Task<double> read_for_a_turn(const Options& options, uint64_t seed, unsigned together,
                             uint64_t expected, Read read) {
  std::vector<double> took;
  std::vector<Key> keys(together);
  std::vector<std::string_view> texts(together);
  Random random(seed);
  const base::RealClock clock;
  const uint64_t until_ns = clock.now_ns() + static_cast<uint64_t>(options.seconds * 1e9);
  uint64_t last_ns = clock.now_ns();
  while (last_ns < until_ns) {
    for (unsigned i = 0; i < together; ++i) {
      keys[i] = key_of(random.below(options.records));
      texts[i] = text(keys[i]);
    }
    const uint64_t before_ns = clock.now_ns();
    const uint64_t result = co_await read(std::span<const std::string_view>(texts));
    last_ns = clock.now_ns();
    if (result != expected) give_up("read_stores", "a value is not what was written");
    took.push_back(static_cast<double>(last_ns - before_ns) / together);
  }
  co_return median(std::move(took));
}

template <typename Engine>
Task<double> get_for_a_turn(Engine& engine, const Options& options, uint64_t seed) {
  std::vector<std::byte> into(options.value_bytes);
  const auto get = [&](std::span<const std::string_view> keys) -> Task<uint64_t> {
    const size_t bytes = co_await engine.get(keys[0], into);
    co_return into.back() == std::byte{'v'} ? bytes : 0;
  };
  co_return co_await read_for_a_turn(options, seed, 1, options.value_bytes, get);
}

template <typename Engine>
Task<double> view_for_a_turn(Engine& engine, const Options& options, uint64_t seed) {
  const auto view = [&](std::span<const std::string_view> keys) { return engine.view(keys[0]); };
  const uint64_t expected = sum_of(std::string(options.value_bytes, 'v'));
  co_return co_await read_for_a_turn(options, seed, 1, expected, view);
}

// What the turns of one store and of its peer took, and the median of their ratios.
struct Turns {
  std::vector<double> ones, others;

  double one_us() const { return median(ones) / 1000; }
  double other_us() const { return median(others) / 1000; }
  double ratio() const {
    std::vector<double> ratios;
    for (size_t i = 0; i < ones.size(); ++i) ratios.push_back(ones[i] / others[i]);
    return median(std::move(ratios));
  }
};

void run(const Options& options) {
  base::RealClock clock;
  Executor executor(clock);
  const Folder folder(options.dir, "read_stores");
  Pmstore mine(executor, options, folder.path());
  Lmdb lmdb(executor, options, folder.path());
  const double my_load = load(mine, options);
  const double its_load = load(lmdb, options);
  double rocksdb_load = 0;
  {
    Rocksdb rocksdb(folder.path());
    rocksdb_load = load(rocksdb, options);
  }
  const unsigned together = options.together;
  const uint64_t bytes = together * options.value_bytes;
  Turns gets, views, many;
  for (unsigned turn = 0; turn < options.turns; ++turn) {
    const uint64_t seed = options.seed + turn;
    gets.ones.push_back(executor.run(get_for_a_turn(mine, options, seed)));
    gets.others.push_back(executor.run(get_for_a_turn(lmdb, options, seed)));
    views.ones.push_back(executor.run(view_for_a_turn(mine, options, seed)));
    views.others.push_back(executor.run(view_for_a_turn(lmdb, options, seed)));
    const auto get_many = [&](std::span<const std::string_view> keys) {
      return mine.get_many(keys);
    };
    const auto get_each = [&](std::span<const std::string_view> keys) {
      return mine.get_each(keys);
    };
    many.ones.push_back(executor.run(read_for_a_turn(options, seed, together, bytes, get_many)));
    many.others.push_back(executor.run(read_for_a_turn(options, seed, together, bytes, get_each)));
  }
  fmt::print(
      "{} records of {} B, {}, medians: get into a buffer: pmstore {:.2f} us, lmdb with a copy "
      "{:.2f} us, ratio {:.2f}; view: {:.2f} us, lmdb without a copy {:.2f} us, ratio {:.2f}; {} "
      "keys at a time: {:.2f} us each, by as many gets {:.2f} us, ratio {:.2f}; load in batches of "
      "{} KiB: {:.0f}, lmdb {:.0f}, rocksdb {:.0f} records per s\n",
      options.records, options.value_bytes, options.ordered ? "ordered" : "hashed", gets.one_us(),
      gets.other_us(), gets.ratio(), views.one_us(), views.other_us(), views.ratio(), together,
      many.one_us(), many.other_us(), many.ratio(), options.batch_bytes / 1024, my_load, its_load,
      rocksdb_load);
}

}  // namespace
}  // namespace pmstore::compare

int main(int argc, char** argv) {
  pmstore::compare::Options options;
  CLI::App app("Embedded gets and loads beside LMDB: one process, one thread, keys of 16 bytes",
               "read_stores");
  app.add_option("--dir", options.dir, "the stores' folder is made there")->capture_default_str();
  app.add_option("--domain", options.domain, "pmstore takes its pool's memory for this")
      ->check(CLI::IsMember({"adr", "eadr", "none"}))
      ->capture_default_str();
  app.add_option("--records", options.records)
      ->check(CLI::Range(1u, 1u << 30))
      ->capture_default_str();
  app.add_option("--value-bytes", options.value_bytes)
      ->check(CLI::Range(1u, 1u << 20))
      ->capture_default_str();
  app.add_option("--batch-bytes", options.batch_bytes, "keys and values of a transaction of a load")
      ->check(CLI::Range(1u, 1u << 24))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "of each turn")
      ->check(CLI::Range(0.01, 3600.0))
      ->capture_default_str();
  app.add_option("--turns", options.turns, "of each store, one after the other")
      ->check(CLI::Range(1u, 1000u))
      ->capture_default_str();
  app.add_option("--together", options.together, "keys of one call of get_many")
      ->check(CLI::Range(1u, 4096u))
      ->capture_default_str();
  app.add_flag("--ordered", options.ordered, "an ordered table");
  app.add_option("--seed", options.seed)->capture_default_str();
  app.footer("example: read_stores --records 100000 --value-bytes 16384");
  CLI11_PARSE(app, argc, argv);
  pmstore::compare::run(options);
  return 0;
}
