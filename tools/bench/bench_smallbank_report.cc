#include <fmt/format.h>

#include "tools/bench/bench_smallbank.h"
#include "tools/cli/revision.h"
#include "tools/cli/text_table.h"

namespace pmstore::tools {

using namespace smallbank;

namespace {

std::string money(int64_t cents) {
  const uint64_t absolute =
      cents < 0 ? 0 - static_cast<uint64_t>(cents) : static_cast<uint64_t>(cents);
  return fmt::format("{}{}.{:02}", cents < 0 ? "-" : "", absolute / 100, absolute % 100);
}

}  // namespace

SmallbankReport::SmallbankReport(const SmallbankOptions& options, const SmallbankBench& bench,
                                 const BenchRun& run)
    : options_(options),
      run_(run),
      audit_(bench.audit()),
      accounts_(bench.accounts()),
      run_id_(bench.run_id()),
      server_msyncs_(bench.server_msyncs()) {
  for (const Tally& tally : bench.tallies()) {
    for (size_t i = 0; i < kKinds; ++i) {
      kinds_[i].latency_ns.merge(tally.kinds[i].latency_ns);
      kinds_[i].rolled_back += tally.kinds[i].rolled_back;
      kinds_[i].conflicts += tally.kinds[i].conflicts;
    }
    unknown_committed_ += tally.unknown_committed;
    unknown_aborted_ += tally.unknown_aborted;
    reconnected_tries_ += tally.reconnected_tries;
    mismatches_ += tally.mismatches;
    if (first_mismatch_.empty()) first_mismatch_ = tally.first_mismatch;
  }
  for (const Tally::OfKind& kind : kinds_) {
    all_ns_.merge(kind.latency_ns);
    rolled_back_ += kind.rolled_back;
    conflicts_ += kind.conflicts;
  }
}

nlohmann::ordered_json SmallbankReport::audit_json() const {
  nlohmann::ordered_json audit = {{"ok", ok()},
                                  {"expected_total", audit_.expected_cents()},
                                  {"actual_total", audit_.actual_cents},
                                  {"initial_total", audit_.initial_cents},
                                  {"ledger_net", audit_.ledger_net_cents},
                                  {"ledger_transactions", audit_.ledger_transactions},
                                  {"ledger_records", audit_.ledger_records},
                                  {"account_records", audit_.account_records},
                                  {"bad_records", audit_.bad_records},
                                  {"expected_writes", audit_.expected_writes},
                                  {"actual_writes", audit_.actual_writes},
                                  {"workers_compared", audit_.workers_compared},
                                  {"workers_different", audit_.workers_different},
                                  {"mismatches", mismatches_},
                                  {"unknown_committed", unknown_committed_},
                                  {"unknown_aborted", unknown_aborted_}};
  if (!ok()) audit["why_not"] = why_not();
  return audit;
}

nlohmann::ordered_json SmallbankReport::json() const {
  nlohmann::ordered_json config = config_json(options_.bench, run_.session);
  config["accounts"] = accounts_;
  config["run"] = fmt::format("{:016x}", run_id_);
  if (options_.bench.model.on()) config["model"] = run_.model_config;
  nlohmann::ordered_json object = {
      {"bench", "smallbank"}, {"revision", kRevision}, {"config", std::move(config)}};
  if (!options_.audit_only) {
    nlohmann::ordered_json results = nlohmann::ordered_json::array();
    auto all = result_json("all", all_ns_, run_.seconds);
    all["rolled_back"] = rolled_back_;
    all["conflicts"] = conflicts_;
    all["errors"] = 0;
    all["counters"] = counters_json(run_.counters, all_ns_.count() + rolled_back_);
    results.push_back(std::move(all));
    for (size_t i = 0; i < kKinds; ++i) {
      auto one = result_json(kind_name(static_cast<Kind>(i)), kinds_[i].latency_ns, run_.seconds);
      one["rolled_back"] = kinds_[i].rolled_back;
      one["conflicts"] = kinds_[i].conflicts;
      results.push_back(std::move(one));
    }
    const double tries = static_cast<double>(all_ns_.count() + rolled_back_ + conflicts_);
    object["seconds"] = run_.seconds;
    object["interrupted"] = run_.interrupted;
    object["abort_rate"] = tries > 0 ? static_cast<double>(conflicts_) / tries : 0.0;
    object["reconnects"] = run_.reconnects;
    object["tries_without_server"] = reconnected_tries_;
    if (server_msyncs_) object["server_msyncs"] = *server_msyncs_;
    object["results"] = std::move(results);
  }
  if (options_.bench.model.on()) object["model_counters"] = run_.model_counters;
  object["audit"] = audit_json();
  return object;
}

std::string SmallbankReport::table_text() const {
  TextTable table(1);
  table.row({"transaction", "committed", "per second", "p50 us", "p99 us", "p999 us", "max us",
             "conflicts", "rolled back"});
  const auto add = [&](std::string_view name, const Histogram& latency, uint64_t conflicts,
                       uint64_t rolled_back) {
    table.row({std::string(name), std::to_string(latency.count()),
               fmt::format("{:.0f}", static_cast<double>(latency.count()) / run_.seconds),
               us_text(latency.quantile(0.5)), us_text(latency.quantile(0.99)),
               us_text(latency.quantile(0.999)), us_text(latency.max()), std::to_string(conflicts),
               std::to_string(rolled_back)});
  };
  for (size_t i = 0; i < kKinds; ++i) {
    add(kind_name(static_cast<Kind>(i)), kinds_[i].latency_ns, kinds_[i].conflicts,
        kinds_[i].rolled_back);
  }
  add("all", all_ns_, conflicts_, rolled_back_);
  return table.text();
}

std::string SmallbankReport::text() const {
  std::string text;
  if (!options_.audit_only) {
    text += config_text(options_.bench, run_.session) + "\n" + table_text();
    if (run_.reconnects > 0) {
      text += fmt::format(
          "the server went away: {} reconnections; of the transactions in doubt, {} "
          "had committed and {} had not\n",
          run_.reconnects, unknown_committed_, unknown_aborted_);
    }
  }
  text += fmt::format(
      "audit: {}; {} accounts hold {}, initial money {} and {} ledgered transactions make {}\n",
      ok() ? "ok" : "FAILED", accounts_, money(audit_.actual_cents), money(audit_.initial_cents),
      audit_.ledger_transactions, money(audit_.expected_cents()));
  return text;
}

}  // namespace pmstore::tools
