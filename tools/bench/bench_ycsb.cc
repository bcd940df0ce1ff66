// pmstore bench ycsb: the workloads of the Yahoo! Cloud Serving Benchmark.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "tools/bench/bench_run.h"
#include "tools/bench/micro_options.h"
#include "tools/bench/ycsb_workload.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/revision.h"
#include "tools/cli/text_table.h"

namespace pmstore::tools {
namespace {

constexpr std::string_view kYcsbTable = "bench_ycsb";

struct YcsbOptions {
  BenchOptions bench;
  std::string workload = "a";
  bool ordered = false;
  std::string load = "random";
  uint64_t records = 10'000;
  uint32_t value_bytes = 0;  // 0: as the workload has it

  const YcsbWorkload& of() const {
    const auto& all = ycsb_workloads();
    return *std::find_if(all.begin(), all.end(),
                         [&](const YcsbWorkload& each) { return each.name == workload; });
  }
  size_t bytes() const { return value_bytes == 0 ? of().value_bytes : value_bytes; }
};

class YcsbBench final : public Bench {
 public:
  explicit YcsbBench(const YcsbOptions& options)
      : options_(options),
        workload_(options.of()),
        keys_(workload_, options.load == "ascending"),
        popular_(options.records),
        records_(options.records),
        tallies_(options.bench.threads) {}

  Task<Status> prepare(Client& client) override;
  Task<Status> work(Client& client, uint32_t thread, uint32_t coroutine,
                    BenchControl& control) override;
  Task<Status> finish(Client&) override { co_return Status{}; }
  std::string progress(double seconds) override;

  struct Tally {
    std::array<Histogram, kYcsbOperations> latency_ns;
    uint64_t scanned = 0;  // records
    uint64_t conflicts = 0;
    std::atomic<uint64_t> done{0};
  };
  const std::vector<Tally>& tallies() const { return tallies_; }
  double load_seconds() const { return load_seconds_; }

 private:
  Task<Status> one(Client& client, const YcsbStep& step, std::string_view value, Tally& tally);
  Task<Status> scan(Client& client, std::string_view from, uint32_t most, Tally& tally);
  Task<Status> modify(Client& client, std::string_view key, std::string_view value);
  Status check_value(std::string_view key, size_t bytes) const {
    if (bytes == options_.bytes()) return {};
    return make_error(ErrorCode::kBadPool, fmt::format("the value of '{}' has {} bytes, not {}",
                                                       key, bytes, options_.bytes()));
  }

  const YcsbOptions& options_;
  const YcsbWorkload& workload_;
  const YcsbKeys keys_;
  const Zipfian popular_;
  YcsbRecords records_;
  TableId table_{};
  double load_seconds_ = 0;
  std::vector<Tally> tallies_;
};

Task<Status> YcsbBench::prepare(Client& client) {
  // What another run has left may be of the other kind, and have other records.
  const Status dropped = co_await client.drop_table(kYcsbTable);
  if (!dropped && dropped.code() != ErrorCode::kUnknownTable) co_return dropped;
  const auto kind = options_.ordered ? TableKind::kOrdered : TableKind::kHash;
  PMSTORE_CO_TRY(table_, co_await client.create_table(kYcsbTable, kind));
  const std::string value(options_.bytes(), 'v');
  const uint64_t start_ns = client.executor().now_ns();
  // Small enough for the smallest ring.
  const uint64_t at_a_time = std::max<uint64_t>(1, 8192 / (value.size() + 64));
  char room[YcsbKeys::kLongest];
  for (uint64_t first = 0; first < options_.records; first += at_a_time) {
    Transaction transaction = client.begin();
    for (uint64_t i = first; i < std::min(first + at_a_time, options_.records); ++i) {
      transaction.put(table_, keys_.write(i, room), value);
    }
    PMSTORE_CO_TRY_STATUS(co_await transaction.commit());
  }
  load_seconds_ = static_cast<double>(client.executor().now_ns() - start_ns) / 1e9;
  co_return Status{};
}

Task<Status> YcsbBench::scan(Client& client, std::string_view from, uint32_t most, Tally& tally) {
  Transaction transaction = client.begin();
  TransactionScan scan = transaction.scan(table_, {std::string(from), {}});
  uint32_t seen = 0;
  while (seen < most) {
    PMSTORE_CO_TRY(const RecordPage page, co_await scan.next(most - seen));
    if (page.empty()) break;
    for (const RecordRef record : page) {
      PMSTORE_CO_TRY_STATUS(check_value(record.key, record.value.size()));
    }
    seen += static_cast<uint32_t>(page.size());
  }
  PMSTORE_CO_TRY_STATUS(co_await transaction.commit());
  tally.scanned += seen;
  co_return Status{};
}

Task<Status> YcsbBench::modify(Client& client, std::string_view key, std::string_view value) {
  Transaction transaction = client.begin();
  PMSTORE_CO_TRY(const std::string before, co_await transaction.get(table_, key));
  PMSTORE_CO_TRY_STATUS(check_value(key, before.size()));
  transaction.put(table_, key, value);
  co_return co_await transaction.commit();
}

Task<Status> YcsbBench::one(Client& client, const YcsbStep& step, std::string_view value,
                            Tally& tally) {
  char room[YcsbKeys::kLongest];
  const std::string_view key = keys_.write(step.record, room);
  switch (step.operation) {
    case YcsbOperation::kRead: {
      const auto got = co_await client.get(table_, key);
      if (!got) co_return Error(got.error());
      co_return check_value(key, got->size());
    }
    case YcsbOperation::kUpdate: co_return co_await client.put(table_, key, value);
    case YcsbOperation::kInsert: {
      Status inserted = co_await client.insert(table_, key, value);
      // Nobody else has this number.
      while (!inserted && inserted.code() == ErrorCode::kConflict) {
        ++tally.conflicts;
        inserted = co_await client.insert(table_, key, value);
      }
      if (inserted) records_.end_insert(step.record);
      co_return inserted;
    }
    case YcsbOperation::kScan: co_return co_await scan(client, key, step.records, tally);
    case YcsbOperation::kReadModifyWrite: co_return co_await modify(client, key, value);
  }
  co_return Status{};
}

Task<Status> YcsbBench::work(Client& client, uint32_t thread, uint32_t coroutine,
                             BenchControl& control) {
  const BenchOptions& bench = options_.bench;
  const uint64_t workers = uint64_t{bench.threads} * bench.coroutines;
  const uint64_t mine = uint64_t{thread} * bench.coroutines + coroutine;
  const uint64_t ops =
      bench.ops == 0 ? UINT64_MAX : bench.ops / workers + (mine < bench.ops % workers ? 1 : 0);
  Tally& tally = tallies_[thread];
  YcsbSteps steps(workload_, popular_, records_, base::mix64(bench.seed) + mine);
  std::string value(options_.bytes(), 'v');
  Executor& executor = client.executor();
  uint64_t start_ns = executor.now_ns();
  for (uint64_t done = 0; done < ops && !control.over(start_ns); ++done) {
    const YcsbStep step = steps.next();
    std::memcpy(value.data(), &done, std::min(sizeof(done), value.size()));
    const Status status = co_await one(client, step, value, tally);
    const uint64_t end_ns = executor.now_ns();
    if (status) [[likely]] {
      tally.latency_ns[static_cast<size_t>(step.operation)].record(end_ns - start_ns);
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

std::string YcsbBench::progress(double seconds) {
  uint64_t done = 0;
  for (const Tally& tally : tallies_) done += tally.done.load(std::memory_order_relaxed);
  if (seconds <= 0) return fmt::format("writing {} records", options_.records);
  return fmt::format("{:.0f} s: {} operations, {:.0f} per second", seconds, done,
                     static_cast<double>(done) / seconds);
}

struct YcsbResults {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  TextTable table{1};
  uint64_t ops = 0;
};

void collect(const BenchRun& run, const YcsbBench::Tally& all, YcsbResults& results) {
  for (const Histogram& each : all.latency_ns) results.ops += each.count();
  results.table.row({"", "ops", "per second", "p50 us", "p99 us", "p999 us"});
  for (size_t i = 0; i < kYcsbOperations; ++i) {
    const Histogram& latency = all.latency_ns[i];
    if (latency.count() == 0) continue;
    const std::string_view name = ycsb_operation_name(static_cast<YcsbOperation>(i));
    auto result = result_json(name, latency, run.seconds);
    if (static_cast<YcsbOperation>(i) == YcsbOperation::kScan) {
      result["records"] = all.scanned;
      result["records_per_s"] = static_cast<double>(all.scanned) / run.seconds;
    }
    result["errors"] = 0;
    result["counters"] = counters_json(run.counters, results.ops);
    results.json.push_back(std::move(result));
    results.table.row({std::string(name), std::to_string(latency.count()),
                       fmt::format("{:.0f}", static_cast<double>(latency.count()) / run.seconds),
                       us_text(latency.quantile(0.5)), us_text(latency.quantile(0.99)),
                       us_text(latency.quantile(0.999))});
  }
}

void print_ycsb(const YcsbOptions& options, const BenchRun& run, const YcsbBench::Tally& all,
                double load_seconds) {
  YcsbResults results;
  collect(run, all, results);
  const double rate = static_cast<double>(results.ops) / run.seconds;
  if (options.bench.session.json) {
    nlohmann::ordered_json config = config_json(options.bench, run.session);
    config["workload"] = options.workload;
    config["ordered"] = options.ordered;
    config["load"] = options.load;
    config["records"] = options.records;
    config["value_bytes"] = options.bytes();
    if (options.bench.model.on()) config["model"] = run.model_config;
    nlohmann::ordered_json object = {{"bench", "ycsb"},
                                     {"revision", kRevision},
                                     {"config", std::move(config)},
                                     {"load_seconds", load_seconds},
                                     {"seconds", run.seconds},
                                     {"rate_per_s", rate},
                                     {"interrupted", run.interrupted},
                                     {"conflicts", all.conflicts},
                                     {"reconnects", run.reconnects},
                                     {"results", std::move(results.json)}};
    if (options.bench.model.on()) object["model_counters"] = run.model_counters;
    print_json(object);
    return;
  }
  print_text(config_text(options.bench, run.session) + "\n" + results.table.text());
  const auto counters = counters_json(run.counters, results.ops);
  print_text(fmt::format(
      "workload {}: {:.0f} operations per second; {} records loaded in {:.2f} s\n"
      "per operation: {:.2f} doorbells, {:.2f} round trips, {:.2f} messages to the server; {} "
      "conflicts\n",
      options.workload, rate, options.records, load_seconds,
      counters["doorbells_per_op"].get<double>(), counters["round_trips_per_op"].get<double>(),
      counters["server_messages_per_op"].get<double>(), all.conflicts));
  if (all.scanned > 0) {
    print_text(fmt::format("scanned {} records, {:.0f} per second\n", all.scanned,
                           static_cast<double>(all.scanned) / run.seconds));
  }
}

int bench_ycsb(const YcsbOptions& options) {
  Status good = options.bench.check();
  if (good && options.of().scans() && !options.ordered) {
    good = make_error(ErrorCode::kInvalidArgument,
                      fmt::format("workload {} scans, and only an ordered table can be scanned: "
                                  "add --ordered",
                                  options.workload));
  }
  if (!good) return fail_command("bench ycsb", good.error());
  YcsbBench bench(options);
  const auto run = run_bench(bench, options.bench);
  if (!run) return fail(kProgram, "bench ycsb", run.error());
  YcsbBench::Tally all;
  for (const YcsbBench::Tally& tally : bench.tallies()) {
    for (size_t i = 0; i < kYcsbOperations; ++i) all.latency_ns[i].merge(tally.latency_ns[i]);
    all.scanned += tally.scanned;
    all.conflicts += tally.conflicts;
  }
  print_ycsb(options, *run, all, bench.load_seconds());
  return kDone;
}

}  // namespace

void add_bench_ycsb(CLI::App& bench, Invocation& invocation) {
  auto options = std::make_shared<YcsbOptions>();
  CLI::App* const command =
      bench.add_subcommand("ycsb", "workloads A to F of YCSB, and gets and scans of an index");
  options->bench.add_to(*command, "--threads");
  std::vector<std::string> names;
  for (const YcsbWorkload& each : ycsb_workloads()) names.emplace_back(each.name);
  command->add_option("--workload", options->workload, "a to f, or mixed-index; see below")
      ->check(one_of(names))
      ->capture_default_str();
  command->add_flag("--ordered", options->ordered, "an ordered table; for e and mixed-index");
  command->add_option("--load", options->load, "keys in random or ascending order")
      ->check(one_of({"random", "ascending"}))
      ->capture_default_str();
  command->add_option("--records", options->records, "so many records, written before the start")
      ->check(in_range(uint64_t{1}, uint64_t{1} << 30))
      ->capture_default_str();
  command
      ->add_option("--value-bytes", options->value_bytes,
                   "of each value (default 64; mixed-index 8)")
      ->check(in_range(size_t{1}, kMaxValueBytes));
  command->footer(
      "a: 50% read, 50% update; b: 95% read, 5% update; c: read; d: 95% read of what was inserted\n"
      "lately, 5% insert; e: 95% scan of 1 to 100 records, 5% insert; f: 50% read, 50% read, "
      "modify\n"
      "and write in a transaction; mixed-index: 90% read, 10% scan of 64, keys and values of 8 "
      "bytes.\n"
      "Records are chosen by a Zipfian distribution (0.99). Makes the table bench_ycsb anew.\n"
      "example: pmstore bench ycsb --uri tcp://127.0.0.1:7000 --workload e --ordered --threads 4");
  command->callback(
      [options, &invocation] { invocation.run = [options] { return bench_ycsb(*options); }; });
}

}  // namespace pmstore::tools
