#include "tools/bench/bench_options.h"

#include <fmt/format.h>

#include "base/random.h"
#include "persist/strategy.h"
#include "tools/cli/bytes_text.h"
#include "tools/cli/revision.h"

namespace pmstore::tools {
namespace {

double us(uint64_t ns) { return static_cast<double>(ns) / 1000.0; }

}  // namespace

Status BenchOptions::check() const {
  if (!model.on()) return {};
  PMSTORE_TRY_STATUS(model.check());
  const auto wrong = [](const char* what) { return make_error(ErrorCode::kInvalidArgument, what); };
  if (session.assume_domain == persist::domain_name(persist::Domain::kNone)) {
    return wrong("the modelled nvm is never an ordinary file: use --assume-domain adr or eadr");
  }
  if (strategy != "auto" && persist::parse_rules(model.rules)->named.has(persist::Rule::kH9)) {
    return wrong("rule h9 chooses the strategy, and --strategy does, too: leave one of them out");
  }
  if (poll != "adaptive") return wrong("in virtual time nothing waits: leave --poll out");
  return {};
}

ClientOptions BenchOptions::client_options(uint32_t thread) const {
  ClientOptions options = session.client_options();
  if (client_id != 0) options.secret = ClientSecret::of_number(client_id + thread);
  // On the modelled machine the seed decides everything.
  if (client_id == 0 && model.on()) {
    options.secret = ClientSecret::of_number(base::mix64(seed) / 2 + 1 + thread);
  }
  options.reconnect_timeout_ns = static_cast<uint64_t>(ride_through_seconds * 1e9);
  options.log_strategy = *persist::parse_strategy(strategy);
  if (model.on() && strategy == "auto" && session.locks != discipline_name(LockDiscipline::kCpu)) {
    // Without H9 two posts, where one-sided is right at all.
    const auto rules = model.store_rules();
    if (rules && !rules->has(persist::Rule::kH9) && rules->has(persist::Rule::kH3)) {
      options.log_strategy = persist::WriteStrategy::kOutstanding;
    }
  }
  options.one_sided_reads = !no_one_sided;
  options.misses = *parse_miss_path(misses);
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
                                   {"misses", miss_path_name(info.misses)},
                                   {"one_sided_commit", info.one_sided_commit},
                                   {"location_cache", options.cache_entries}};
  if (!options.model.on()) config["poll"] = options.poll;
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
  std::string kept;
  if (options.model.on()) {
    for (const persist::Rule rule : options.model.kept_rules()) {
      kept += fmt::format("{}{}", kept.empty() ? "\na store always follows: " : ", ",
                          persist::rule_name(rule));
    }
  }
  return fmt::format(
      "{}, {} x {} at a time, domain {}{}, locks {}, log {}, reads {}, misses {}, revision {}{}",
      printable(options.session.uri), options.threads, options.coroutines,
      persist::domain_name(info.persist.domain),
      options.session.assume_domain.empty() ? "" : " (assumed)", discipline_name(info.discipline),
      persist::strategy_name(info.log_strategy),
      info.one_sided_reads ? "one-sided" : "by the server", miss_path_name(info.misses), kRevision,
      kept);
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
