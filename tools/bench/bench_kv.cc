// pmstore bench kv: single reads and writes.
#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "tools/bench/bench_run.h"
#include "tools/bench/micro_options.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/revision.h"
#include "tools/cli/text_table.h"

namespace pmstore::tools {
namespace {

struct KvBenchOptions {
  BenchOptions bench;
  std::string mix = "mixed";
  double put_share = 0.5;
  uint64_t keys = 10'000;
  uint32_t value_bytes = 64;
};

constexpr std::string_view kTable = "bench_kv";
constexpr size_t kKeyBytes = 16;

// All keys behind one another, so that choosing one is an addition.
class Keys {
 public:
  explicit Keys(uint64_t count) : bytes_(count * kKeyBytes, '0') {
    for (uint64_t i = 0; i < count; ++i) {
      const std::string key = fmt::format("{:016}", i);
      std::memcpy(bytes_.data() + i * kKeyBytes, key.data(), kKeyBytes);
    }
  }
  std::string_view operator[](uint64_t i) const {
    return {bytes_.data() + i * kKeyBytes, kKeyBytes};
  }

 private:
  std::string bytes_;
};

class KvBench final : public Bench {
 public:
  explicit KvBench(const KvBenchOptions& options)
      : options_(options),
        keys_(options.keys),
        put_below_(static_cast<uint64_t>(options.put_share * (1u << 16))),
        tallies_(options.bench.threads) {}

  Task<Status> prepare(Client& client) override;
  Task<Status> work(Client& client, uint32_t thread, uint32_t coroutine,
                    BenchControl& control) override;
  Task<Status> finish(Client&) override { co_return Status{}; }
  std::string progress(double seconds) override;

  struct Tally {
    Histogram get_ns;
    Histogram put_ns;
    uint64_t conflicts = 0;
    std::atomic<uint64_t> done{0};
  };
  const std::vector<Tally>& tallies() const { return tallies_; }

 private:
  Task<Status> one(Client& client, bool put, std::string_view key, std::string_view value);
  const KvBenchOptions& options_;
  Keys keys_;
  uint64_t put_below_;  // of 2^16
  TableId table_{};
  std::vector<Tally> tallies_;
};

Task<Status> KvBench::prepare(Client& client) {
  PMSTORE_CO_TRY(table_, co_await client.open_table(kTable, true));
  const std::string value(options_.value_bytes, 'v');
  // Small enough for the smallest ring.
  const uint64_t at_a_time = std::max<uint64_t>(1, 8192 / (value.size() + 64));
  for (uint64_t first = 0; first < options_.keys; first += at_a_time) {
    Transaction transaction = client.begin();
    for (uint64_t i = first; i < std::min(first + at_a_time, options_.keys); ++i) {
      transaction.put(table_, keys_[i], value);
    }
    PMSTORE_CO_TRY_STATUS(co_await transaction.commit());
  }
  co_return Status{};
}

Task<Status> KvBench::one(Client& client, bool put, std::string_view key, std::string_view value) {
  if (put) co_return co_await client.put(table_, key, value);
  auto got = co_await client.get(table_, key);
  if (!got) co_return std::move(got.error());
  if (got->size() != value.size()) {
    co_return make_error(ErrorCode::kBadPool, fmt::format("the value of '{}' has {} bytes, not {}",
                                                          key, got->size(), value.size()));
  }
  co_return Status{};
}

Task<Status> KvBench::work(Client& client, uint32_t thread, uint32_t coroutine,
                           BenchControl& control) {
  const BenchOptions& bench = options_.bench;
  const uint64_t workers = uint64_t{bench.threads} * bench.coroutines;
  const uint64_t mine = uint64_t{thread} * bench.coroutines + coroutine;
  const uint64_t ops =
      bench.ops == 0 ? UINT64_MAX : bench.ops / workers + (mine < bench.ops % workers ? 1 : 0);
  Tally& tally = tallies_[thread];
  Random random(base::mix64(bench.seed) + mine);
  std::string value(options_.value_bytes, 'v');
  Executor& executor = client.executor();
  uint64_t start_ns = executor.now_ns();
  for (uint64_t done = 0; done < ops && !control.over(start_ns); ++done) {
    const bool put = (random.next() & 0xffff) < put_below_;
    const std::string_view key = keys_[random.below(options_.keys)];
    if (put) std::memcpy(value.data(), &done, std::min(sizeof(done), value.size()));
    const Status status = co_await one(client, put, key, value);
    const uint64_t end_ns = executor.now_ns();
    if (status) [[likely]] {
      (put ? tally.put_ns : tally.get_ns).record(end_ns - start_ns);
      tally.done.store(tally.done.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    } else if (status.code() == ErrorCode::kConflict) {
      ++tally.conflicts;
    } else {
      co_return status;
    }
    start_ns = end_ns;
  }
  co_return Status{};
}

std::string KvBench::progress(double seconds) {
  uint64_t done = 0;
  for (const Tally& tally : tallies_) done += tally.done.load(std::memory_order_relaxed);
  if (seconds <= 0) return fmt::format("writing {} keys", options_.keys);
  return fmt::format("{:.0f} s: {} operations, {:.0f} per second", seconds, done,
                     static_cast<double>(done) / seconds);
}

void print(const KvBenchOptions& options, const BenchRun& run, const KvBench::Tally& all) {
  const uint64_t ops = all.get_ns.count() + all.put_ns.count();
  nlohmann::ordered_json config = config_json(options.bench, run.session);
  config["mix"] = options.mix;
  config["put_share"] = options.put_share;
  config["keys"] = options.keys;
  config["value_bytes"] = options.value_bytes;
  if (options.bench.model.on()) config["model"] = run.model_config;
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  TextTable table(1);
  table.row({"", "ops", "per second", "p50 us", "p99 us", "p999 us"});
  const auto add = [&](std::string_view name, const Histogram& latency) {
    if (latency.count() == 0) return;
    auto result = result_json(name, latency, run.seconds);
    result["errors"] = 0;
    result["counters"] = counters_json(run.counters, ops);
    results.push_back(std::move(result));
    table.row({std::string(name), std::to_string(latency.count()),
               fmt::format("{:.0f}", static_cast<double>(latency.count()) / run.seconds),
               us_text(latency.quantile(0.5)), us_text(latency.quantile(0.99)),
               us_text(latency.quantile(0.999))});
  };
  add("get", all.get_ns);
  add("put", all.put_ns);
  if (options.bench.session.json) {
    nlohmann::ordered_json object = {{"bench", "kv"},
                                     {"revision", kRevision},
                                     {"config", std::move(config)},
                                     {"seconds", run.seconds},
                                     {"interrupted", run.interrupted},
                                     {"conflicts", all.conflicts},
                                     {"reconnects", run.reconnects},
                                     {"results", std::move(results)}};
    if (options.bench.model.on()) object["model_counters"] = run.model_counters;
    print_json(object);
    return;
  }
  print_text(config_text(options.bench, run.session) + "\n" + table.text());
  const auto counters = counters_json(run.counters, ops);
  print_text(fmt::format(
      "per operation: {:.2f} doorbells, {:.2f} round trips, {:.2f} messages to "
      "the server; {} conflicts\n",
      counters["doorbells_per_op"].get<double>(), counters["round_trips_per_op"].get<double>(),
      counters["server_messages_per_op"].get<double>(), all.conflicts));
}

int bench_kv(KvBenchOptions options) {
  if (options.mix == "get") options.put_share = 0;
  if (options.mix == "put") options.put_share = 1;
  if (const Status good = options.bench.check(); !good) {
    return fail_command("bench kv", good.error());
  }
  KvBench bench(options);
  const auto run = run_bench(bench, options.bench);
  if (!run) return fail(kProgram, "bench kv", run.error());
  KvBench::Tally all;
  for (const KvBench::Tally& tally : bench.tallies()) {
    all.get_ns.merge(tally.get_ns);
    all.put_ns.merge(tally.put_ns);
    all.conflicts += tally.conflicts;
  }
  print(options, *run, all);
  return kDone;
}

}  // namespace

void add_bench_kv(CLI::App& bench, Invocation& invocation) {
  auto options = std::make_shared<KvBenchOptions>();
  CLI::App* const command =
      bench.add_subcommand("kv", "single reads and durable writes of random keys");
  options->bench.add_to(*command, "--threads");
  command->add_option("--mix", options->mix, "get, put, or mixed")
      ->check(one_of({"get", "put", "mixed"}))
      ->capture_default_str();
  command->add_option("--put-share", options->put_share, "share of puts in mixed")
      ->check(in_range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--keys", options->keys, "so many keys, written before the start")
      ->check(in_range(uint64_t{1}, uint64_t{1} << 32))
      ->capture_default_str();
  command->add_option("--value-bytes", options->value_bytes, "of each value")
      ->check(in_range(size_t{0}, kMaxValueBytes))
      ->capture_default_str();
  command->footer(
      "Works in the table bench_kv. Counters are those of all operations together.\n"
      "example: pmstore bench kv --uri local:/dev/shm/pool --assume-domain eadr --mix put "
      "--seconds 5");
  command->callback(
      [options, &invocation] { invocation.run = [options] { return bench_kv(*options); }; });
}

}  // namespace pmstore::tools
