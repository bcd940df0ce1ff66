// pmstore bench smallbank: the whole bank, and its audit.
#include "tools/bench/bench_smallbank.h"

#include <fmt/format.h>

#include <memory>
#include <random>

#include "tools/bench/micro_options.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/revision.h"

namespace pmstore::tools {

using namespace smallbank;

Task<Status> SmallbankBench::prepare(Client& client) {
  PMSTORE_CO_TRY_STATUS(co_await find_or_load(client));
  // The file is made after the bank, so that a run that ends earlier leaves no file.
  if (!journal_) {
    PMSTORE_CO_TRY_STATUS(open_journal());
  }
  before_ = co_await count_server(client);
  co_return Status{};
}

Task<std::optional<SmallbankBench::ServerCount>> SmallbankBench::count_server(
    Client& client) const {
  if (options_.bench.model.on() || options_.audit_only) co_return std::nullopt;
  const Result<std::string> stat = co_await client.server_stat();
  if (!stat) co_return std::nullopt;
  const auto json = nlohmann::json::parse(*stat, nullptr, false);
  if (!json.is_object() || !json.contains("epoch") || !json.contains("msyncs")) {
    co_return std::nullopt;
  }
  co_return ServerCount{json["epoch"].get<uint64_t>(), json["msyncs"].get<uint64_t>()};
}

std::optional<uint64_t> SmallbankBench::server_msyncs() const {
  if (!before_ || !after_ || before_->epoch != after_->epoch) return std::nullopt;
  return after_->msyncs - before_->msyncs;
}

Task<Status> SmallbankBench::find_or_load(Client& client) {
  PMSTORE_CO_TRY(tables_, co_await open_tables(client, !options_.no_load && !options_.audit_only));
  PMSTORE_CO_TRY(accounts_, co_await find_bank(client, tables_));
  if (accounts_ != 0) {
    if (options_.accounts == 0 || options_.accounts == accounts_) co_return Status{};
    co_return make_error(ErrorCode::kAlreadyExists,
                         fmt::format("there is a bank of {} accounts in this store, not of {}; "
                                     "leave --accounts out, or use another pool",
                                     accounts_, options_.accounts));
  }
  if (options_.no_load || options_.audit_only) {
    co_return make_error(ErrorCode::kNotFound,
                         "there is no bank in this store, or its loading was cut short; run "
                         "without --no-load and --audit-only");
  }
  accounts_ = options_.accounts != 0 ? options_.accounts : kDefaultAccounts;
  co_return co_await load_bank(client, tables_, accounts_, loaded_);
}

Task<Status> SmallbankBench::work(Client& client, uint32_t thread, uint32_t coroutine,
                                  BenchControl& control) {
  if (options_.audit_only) co_return Status{};
  const BenchOptions& bench = options_.bench;
  const uint64_t workers = uint64_t{bench.threads} * bench.coroutines;
  const uint64_t mine = uint64_t{thread} * bench.coroutines + coroutine;
  const uint64_t ops = bench.ops / workers + (mine < bench.ops % workers ? 1 : 0);
  if (bench.ops != 0 && ops == 0) co_return Status{};
  WorkerPlan plan;
  plan.tables = tables_;
  plan.run = run_id_;
  plan.client = thread;
  plan.coroutine = coroutine;
  plan.accounts = accounts_;
  plan.seed = base::mix64(bench.seed) + mine;
  plan.ops = ops;
  plan.ride_through_ns = static_cast<uint64_t>(bench.ride_through_seconds * 1e9);
  plan.call_timeout_ns = static_cast<uint64_t>(bench.session.timeout_seconds * 1e9);
  plan.journal = journal_.get();
  Worker worker(client, plan, tallies_[thread]);
  const Status status = co_await worker.run(control);
  expected_[mine] = worker.expected();
  // The audit reports the errors of the store; it continues, to find all of them.
  if (!status && tallies_[thread].mismatches > 0) {
    control.stop();
    co_return Status{};
  }
  co_return status;
}

Task<Status> SmallbankBench::finish(Client& client) {
  auditing_ = true;
  // Only the first time: what an audit that is repeated has done is none of the work.
  if (!after_) after_ = co_await count_server(client);
  PMSTORE_CO_TRY(audit_, co_await audit_bank(client, tables_, accounts_));
  if (options_.audit_only) {
    if (journal_) compare_journal(audit_, *journal_);
    co_return Status{};
  }
  for (uint32_t thread = 0; thread < options_.bench.threads; ++thread) {
    for (uint32_t coroutine = 0; coroutine < options_.bench.coroutines; ++coroutine) {
      const std::string key = ledger_key(run_id_, thread, coroutine);
      audit_.compare(key, expected_[thread * options_.bench.coroutines + coroutine]);
    }
  }
  co_return Status{};
}

std::string SmallbankBench::progress(double seconds) {
  if (auditing_) return fmt::format("auditing {} accounts", accounts_);
  if (seconds <= 0) return fmt::format("opening accounts: {}", loaded_.load());
  uint64_t committed = 0;
  uint64_t conflicts = 0;
  for (const Tally& tally : tallies_) {
    committed += tally.committed.load(std::memory_order_relaxed);
    conflicts += tally.conflicted.load(std::memory_order_relaxed);
  }
  return fmt::format("{:.0f} s: {} transactions, {:.0f} per second, {} conflicts", seconds,
                     committed, static_cast<double>(committed) / seconds, conflicts);
}

Status SmallbankBench::open_journal() {
  if (options_.journal.empty()) return {};
  const BenchOptions& bench = options_.bench;
  if (options_.audit_only) {
    PMSTORE_TRY(journal_, Journal::open(options_.journal));
  } else {
    PMSTORE_TRY(journal_,
                Journal::create(options_.journal, run_id_, bench.threads, bench.coroutines));
  }
  return {};
}

namespace {

uint64_t random_run_id() {
  // Ledger records are named after it for ever, so it comes from the system, not from the seed.
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

SmallbankBench::SmallbankBench(const SmallbankOptions& options)
    : options_(options),
      run_id_(options.bench.model.on() ? base::mix64(options.bench.seed) : random_run_id()),
      tallies_(options.bench.threads),
      expected_(uint64_t{options.bench.threads} * options.bench.coroutines) {}

namespace {

int bench_smallbank(SmallbankOptions options) {
  if (options.audit_only) {
    options.bench.threads = 1;
    options.bench.coroutines = 1;
  }
  if (const Status good = options.bench.check(); !good) {
    return fail_command("bench smallbank", good.error());
  }
  SmallbankBench bench(options);
  const auto run = run_bench(bench, options.bench);
  if (!run) return fail(kProgram, "bench smallbank", run.error());
  const SmallbankReport report(options, bench, *run);
  if (options.bench.session.json) {
    print_json(report.json());
  } else {
    print_text(report.text());
  }
  if (!report.ok()) {
    std::fflush(stdout);
    return fail(kProgram, "bench smallbank: the audit failed", report.why_not());
  }
  return kDone;
}

}  // namespace

void add_bench_smallbank(CLI::App& bench, Invocation& invocation) {
  auto options = std::make_shared<SmallbankOptions>();
  options->bench.threads = 2;
  options->bench.coroutines = 4;
  CLI::App* const command =
      bench.add_subcommand("smallbank", "the SmallBank benchmark, with an exact audit at its end");
  options->bench.add_to(*command, "--clients");
  command
      ->add_option("--accounts", options->accounts,
                   fmt::format("how many the bank has; the bank that the store has already is used "
                               "as it is (default: {})",
                               kDefaultAccounts))
      ->check(in_range(uint64_t{2}, kMaxAccounts));
  command->add_flag("--no-load", options->no_load, "fail when there is no bank yet");
  command->add_flag("--audit-only", options->audit_only, "no transactions, only the audit");
  command->add_option("--journal", options->journal,
                      "note in this file what was acknowledged; with --audit-only, compare with "
                      "the journal of a run that was killed");
  command->footer(
      "The audit reads the whole bank: its money must be the initial money plus the net effect of\n"
      "every committed transaction, as the ledger has it, and the ledger must say what was\n"
      "acknowledged. When it fails, the exit status is 1. Run nothing else on the bank meanwhile.\n"
      "example: pmstore bench smallbank --uri tcp://127.0.0.1:7000 --accounts 10000 --clients 2 "
      "--seconds 10 --ride-through 30");
  command->callback(
      [options, &invocation] { invocation.run = [options] { return bench_smallbank(*options); }; });
}

}  // namespace pmstore::tools
