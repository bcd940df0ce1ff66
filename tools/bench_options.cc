#include "tools/bench_options.h"

#include <fmt/format.h>

#include "base/random.h"
#include "persist/strategy.h"
#include "tools/bytes_text.h"
#include "tools/revision.h"

namespace pmstore::tools {
namespace {

double us(uint64_t ns) { return static_cast<double>(ns) / 1000.0; }

}  // namespace

void BenchOptions::add_to(CLI::App& command, const std::string& threads_option) {
  session.add_to(command);
  model.add_to(command);
  command.get_option("--uri")->required(false);
  command.parse_complete_callback([this] {
    if (!model.on() && session.uri.empty()) throw CLI::RequiredError("--uri or --model");
    // A URI from the environment is not meant then.
    if (model.on()) session.uri = "local:model:" + model.name;
  });
  command
      .add_option(threads_option, threads,
                  "connections, each with a thread; local:PATH with more than one is served by one "
                  "thread more")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command.add_option("--coroutines", coroutines, "transactions at a time on each connection")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  CLI::Option* const by_time =
      command.add_option("--seconds", seconds, "how long")->check(CLI::Range(0.01, 86400.0));
  by_time->capture_default_str();
  command.add_option("--ops", ops, "so many operations altogether, instead of a time")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40))
      ->excludes(by_time);
  command.add_option("--seed", seed, "of the random choices")->capture_default_str();
  command.add_option("--client-id", client_id,
                     "name the first connection's client so, the next ones count on; a client that "
                     "comes back under its old name gets its old ring (default: random)");
  command
      .add_option("--ride-through", ride_through_seconds,
                  "go on when the server is away, for at most so many seconds")
      ->check(CLI::Range(0.0, 3600.0));
  command
      .add_option(
          "--strategy", strategy,
          "how redo records get to a server whose locks are rnic: auto, naive, outstanding, "
          "doorbell, flush, two_sided")
      ->check(parsed_by(persist::parse_strategy, "STRATEGY"))
      ->capture_default_str();
  command.add_flag("--no-one-sided-reads", no_one_sided, "read by RPC only");
  command
      .add_option("--location-cache", cache_entries, "places of records that a client remembers")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 28))
      ->capture_default_str();
}

ClientOptions BenchOptions::client_options(uint32_t thread) const {
  ClientOptions options = session.client_options();
  if (client_id != 0) options.client = client_id + thread;
  // On the model everything comes from the seed.
  if (client_id == 0 && model.on()) options.client = base::mix64(seed) / 2 + 1 + thread;
  options.reconnect_timeout_ns = static_cast<uint64_t>(ride_through_seconds * 1e9);
  options.log_strategy = *persist::parse_strategy(strategy);
  if (model.on() && strategy == "auto") {
    const auto rules =
        model.store_rules();  // without H9 two posts, where one-sided is right at all
    if (rules && !rules->has(persist::Rule::kH9) && rules->has(persist::Rule::kH3)) {
      options.log_strategy = persist::WriteStrategy::kOutstanding;
    }
  }
  options.one_sided_reads = !no_one_sided;
  options.location_cache_entries = cache_entries;
  return options;
}

bool BenchOptions::serves_itself() const {
  return threads > 1 && !model.on() && session.parsed_uri().scheme == fabric::Scheme::kLocal;
}

nlohmann::ordered_json config_json(const BenchOptions& options, const SessionInfo& info) {
  nlohmann::ordered_json config = {{"uri", json_bytes(options.session.uri)},
                                   {"threads", options.threads},
                                   {"coroutines", options.coroutines},
                                   {"seed", options.seed},
                                   {"domain", persist::domain_name(info.persist.domain)},
                                   {"assumed_domain", nullptr},
                                   {"landing", persist::landing_name(info.persist.landing)},
                                   {"locks", discipline_name(info.discipline)},
                                   {"log_strategy", persist::strategy_name(info.log_strategy)},
                                   {"one_sided_reads", info.one_sided_reads},
                                   {"one_sided_commit", info.one_sided_commit},
                                   {"location_cache", options.cache_entries}};
  if (!options.session.assume_domain.empty()) {
    config["assumed_domain"] = options.session.assume_domain;
  }
  if (options.ops != 0) {
    config["ops"] = options.ops;
  } else {
    config["seconds"] = options.seconds;
  }
  return config;
}

std::string config_text(const BenchOptions& options, const SessionInfo& info) {
  return fmt::format("{}, {} x {} at a time, domain {}{}, locks {}, log {}, reads {}, revision {}",
                     printable(options.session.uri), options.threads, options.coroutines,
                     persist::domain_name(info.persist.domain),
                     options.session.assume_domain.empty() ? "" : " (assumed)",
                     discipline_name(info.discipline), persist::strategy_name(info.log_strategy),
                     info.one_sided_reads ? "one-sided" : "by RPC", kRevision);
}

nlohmann::ordered_json counters_json(const fabric::Counters& counters, uint64_t ops) {
  const auto per_op = [ops](uint64_t total) {
    return ops == 0 ? 0.0 : static_cast<double>(total) / static_cast<double>(ops);
  };
  return {{"doorbells_per_op", per_op(counters.doorbells)},
          {"work_requests_per_op", per_op(counters.work_requests)},
          {"completions_per_op", per_op(counters.completions)},
          {"round_trips_per_op", per_op(counters.round_trips)},
          {"server_messages_per_op", per_op(counters.server_messages)},
          {"bytes_written_per_op", per_op(counters.bytes_written)},
          {"bytes_read_per_op", per_op(counters.bytes_read)}};
}

nlohmann::ordered_json result_json(std::string_view name, const Histogram& latency_ns,
                                   double seconds) {
  return {{"name", name},
          {"ops", latency_ns.count()},
          {"rate_per_s", static_cast<double>(latency_ns.count()) / seconds},
          {"p50_us", us(latency_ns.quantile(0.5))},
          {"p99_us", us(latency_ns.quantile(0.99))},
          {"p999_us", us(latency_ns.quantile(0.999))},
          {"max_us", us(latency_ns.max())}};
}

std::string us_text(uint64_t ns) { return fmt::format("{:.2f}", us(ns)); }

}  // namespace pmstore::tools
