// pmstore bench log: durable appends.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "tools/bench/bench_options.h"
#include "tools/bench/log_load.h"
#include "tools/bench/micro_options.h"
#include "tools/cli/bytes_text.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/invalid_argument.h"
#include "tools/cli/poll_option.h"
#include "tools/cli/revision.h"
#include "tools/cli/text_table.h"

namespace pmstore::tools {
namespace {

using persist::Rule;

constexpr std::string_view kBenchLog = "bench log";

struct LogCommand {
  LogLoadOptions load;
  std::string mode = "exclusive";
  std::string strategy = "auto";
  std::string payload = "128";
  std::string log_bytes = "2M";
  std::string poll = "adaptive";
};

Result<std::string> check_uri(std::string_view text) {
  PMSTORE_TRY_STATUS(fabric::parse_uri(text));
  return std::string(text);
}

Status complete_replicated(const LogLoadOptions& load) {
  if (load.model.on())
    return invalid_argument("the model has one server: leave --model or --replica out");
  if (load.mode == LogMode::kShared) {
    return invalid_argument("a replicated log has one producer: use --mode exclusive");
  }
  for (const std::string& uri : load.replicas) {
    if (std::count(load.replicas.begin(), load.replicas.end(), uri) > 1) {
      return invalid_argument(fmt::format("--replica {} is given twice", uri));
    }
    const bool local = fabric::parse_uri(uri)->scheme == fabric::Scheme::kLocal;
    if (local && load.threads > 1) {
      return invalid_argument(
          "--replica local:PATH is served by the one thread: leave --threads out");
    }
    if (!local && !load.session.assume_domain.empty()) {
      return invalid_argument(
          "--assume-domain is for pools that are opened here: give it to pmstored");
    }
  }
  return {};
}

// Parses texts and refuses what the parser cannot refuse.
Status complete(LogCommand& command) {
  LogLoadOptions& load = command.load;
  load.mode = *parse_log_mode(command.mode);
  load.strategy = *persist::parse_strategy(command.strategy);
  load.payload_bytes = *parse_bytes(command.payload);
  load.log_bytes = *parse_bytes(command.log_bytes);
  load.poll = *parse_poll(command.poll);
  const bool automatic = load.strategy == persist::WriteStrategy::kAuto;
  if (load.payload_bytes < kLogTagBytes || load.payload_bytes > log::kMaxEntryBytes) {
    return invalid_argument(
        fmt::format("--payload {}: an entry has {} to {} bytes here, so that it can name "
                    "itself",
                    command.payload, kLogTagBytes, log::kMaxEntryBytes));
  }
  if (load.threads > load.producers) {
    return invalid_argument("there are more --threads than --producers: a thread has at least one");
  }
  if (!automatic && load.mode == LogMode::kShared) {
    return invalid_argument("shared appends are RPCs: --strategy is for --mode exclusive");
  }
  if (!load.replicas.empty()) return complete_replicated(load);
  if (!load.model.on()) {
    if (load.session.assume_domain.empty() ||
        load.session.parsed_uri().scheme == fabric::Scheme::kLocal) {
      return {};
    }
    return invalid_argument(
        "--assume-domain is for pools that are opened here: give it to pmstored");
  }
  PMSTORE_TRY_STATUS(load.model.check());
  if (load.poll != base::PollMode::kAdaptive) {
    return invalid_argument("in virtual time nothing waits: leave --poll out");
  }
  if (load.session.assume_domain == persist::domain_name(persist::Domain::kNone)) {
    return invalid_argument(
        "the modelled nvm is never an ordinary file: use --assume-domain adr or eadr");
  }
  if (!automatic && persist::parse_rules(load.model.rules)->named.has(Rule::kH9)) {
    return invalid_argument(
        "rule h9 chooses the strategy, and --strategy does, too: leave one of them out");
  }
  PMSTORE_TRY(const persist::Rules rules, load.model.store_rules());
  // Without H9 two posts, where one-sided is right at all.
  if (automatic && !rules.has(Rule::kH9) && rules.has(Rule::kH3)) {
    load.strategy = persist::WriteStrategy::kOutstanding;
  }
  return {};
}

nlohmann::ordered_json config_of(const LogCommand& command, const LogLoadResult& result) {
  const LogLoadOptions& load = command.load;
  nlohmann::ordered_json config = {{"uri", json_bytes(load.session.uri)},
                                   {"mode", command.mode},
                                   {"producers", load.producers},
                                   {"threads", load.threads},
                                   {"coroutines", load.coroutines},
                                   {"batch", load.batch},
                                   {"payload_bytes", load.payload_bytes},
                                   {"log_bytes", load.log_bytes},
                                   {"seed", load.seed},
                                   {"strategy", nullptr},
                                   {"assumed_domain", nullptr}};
  if (!load.replicas.empty()) {
    config["uri"] = nullptr;
    config["replicas"] = load.replicas;
  }
  if (result.strategy) config["strategy"] = persist::strategy_name(*result.strategy);
  if (!load.session.assume_domain.empty()) config["assumed_domain"] = load.session.assume_domain;
  if (load.appends != 0) {
    config["ops"] = load.appends;
  } else {
    config["seconds"] = load.seconds;
  }
  if (load.model.on()) {
    config["model"] = result.model_config;
  } else {
    config["poll"] = command.poll;
  }
  return config;
}

nlohmann::ordered_json audit_json(const LogLoadResult& result) {
  const LogAuditResult& audit = result.audit;
  return {{"ok", audit.ok()},
          {"acknowledged", audit.acknowledged},
          {"read", audit.read},
          {"unacknowledged", audit.unacknowledged},
          {"missing", audit.missing},
          {"changed", audit.changed},
          {"out_of_order", audit.out_of_order},
          {"laps", result.laps},
          {"first_problem", audit.first_problem}};
}

nlohmann::ordered_json layout_json(const LogAuditResult& audit) {
  const auto each = [&](uint64_t bytes) {
    return audit.read == 0 ? 0.0 : static_cast<double>(bytes) / static_cast<double>(audit.read);
  };
  return {{"payload_bytes_per_entry", each(audit.payload_bytes)},
          {"header_bytes_per_entry", each(audit.header_bytes)},
          {"padding_bytes_per_entry", each(audit.padding_bytes)}};
}

// What the persistent memory saw, by append. A durable one-sided append ends with one READ.
nlohmann::ordered_json nvm_json(const LogLoadResult& result) {
  const auto appends = static_cast<double>(std::max<uint64_t>(1, result.append_ns.count()));
  const bool flushes = result.strategy == persist::WriteStrategy::kDoorbell ||
                       result.strategy == persist::WriteStrategy::kOutstanding ||
                       result.strategy == persist::WriteStrategy::kNaive;
  const auto each = [&](uint64_t count) { return static_cast<double>(count) / appends; };
  const double flush_reads = flushes ? 1.0 : 0.0;
  return {{"reads_per_append", each(result.dimms.read_requests)},
          {"flush_reads_per_append", flush_reads},
          {"reads_beside_flush_per_append", each(result.dimms.read_requests) - flush_reads},
          {"media_reads_per_append", each(result.dimms.media_reads)},
          {"write_requests_per_append", each(result.dimms.write_requests)},
          {"media_writes_per_append", each(result.dimms.media_writes)},
          {"write_amplification", result.dimms.write_amplification()}};
}

void print_report(const LogCommand& command, const LogLoadResult& result) {
  const LogLoadOptions& load = command.load;
  const uint64_t appends = result.append_ns.count();
  const double entries_per_s = static_cast<double>(appends) * load.batch / result.seconds;
  const auto counters = counters_json(result.counters, appends);
  if (load.session.json) {
    auto row = result_json("append", result.append_ns, result.seconds);
    row["entries_per_s"] = entries_per_s;
    row["payload_bytes_per_s"] = entries_per_s * static_cast<double>(load.payload_bytes);
    row["errors"] = 0;
    row["counters"] = counters;
    nlohmann::ordered_json object = {{"bench", "log"},
                                     {"revision", kRevision},
                                     {"config", config_of(command, result)},
                                     {"seconds", result.seconds},
                                     {"interrupted", result.interrupted},
                                     {"results", nlohmann::ordered_json::array({std::move(row)})},
                                     {"layout", layout_json(result.audit)},
                                     {"audit", audit_json(result)}};
    if (load.model.on()) {
      object["nvm"] = nvm_json(result);
      object["model_counters"] = result.model_counters;
    }
    return print_json(object);
  }
  print_text(fmt::format(
      "{}, {}{}, {} producers x {} at a time, {} x {} B, revision {}\n",
      load.replicas.empty() ? printable(load.session.uri)
                            : printable(fmt::format("{}", fmt::join(load.replicas, " + "))),
      command.mode,
      result.strategy ? fmt::format(" ({})", persist::strategy_name(*result.strategy)) : "",
      load.producers, load.coroutines, load.batch, load.payload_bytes, kRevision));
  TextTable table(1);
  table.row({"", "ops", "per second", "entries/s", "p50 us", "p99 us", "p999 us"});
  table.row({"append", std::to_string(appends),
             fmt::format("{:.0f}", static_cast<double>(appends) / result.seconds),
             fmt::format("{:.0f}", entries_per_s), us_text(result.append_ns.quantile(0.5)),
             us_text(result.append_ns.quantile(0.99)), us_text(result.append_ns.quantile(0.999))});
  print_text(table.text());
  print_text(fmt::format(
      "per append: {:.2f} doorbells, {:.2f} round trips, {:.2f} messages to the server\n",
      counters["doorbells_per_op"].get<double>(), counters["round_trips_per_op"].get<double>(),
      counters["server_messages_per_op"].get<double>()));
  const auto layout = layout_json(result.audit);
  print_text(
      fmt::format("an entry takes {:.1f} bytes of the log: {:.0f} payload, {:.0f} header, "
                  "{:.1f} padding\n",
                  layout["payload_bytes_per_entry"].get<double>() +
                      layout["header_bytes_per_entry"].get<double>() +
                      layout["padding_bytes_per_entry"].get<double>(),
                  layout["payload_bytes_per_entry"].get<double>(),
                  layout["header_bytes_per_entry"].get<double>(),
                  layout["padding_bytes_per_entry"].get<double>()));
  if (load.model.on()) {
    const auto nvm = nvm_json(result);
    print_text(fmt::format(
        "nvm, per append: {:.3f} reads beside {:.0f} to flush, {:.2f} writes; "
        "write amplification {:.3f}\n",
        nvm["reads_beside_flush_per_append"].get<double>(),
        nvm["flush_reads_per_append"].get<double>(), nvm["write_requests_per_append"].get<double>(),
        nvm["write_amplification"].get<double>()));
  }
  if (!result.audit.ok()) return;
  print_text(
      fmt::format("audit: all {} acknowledged entries are there, in order, unchanged ({} laps)\n",
                  result.audit.acknowledged, result.laps));
}

int bench_log(LogCommand command) {
  if (const Status good = complete(command); !good) return fail_command(kBenchLog, good.error());
  const auto result = run_log_load(command.load);
  if (!result) return fail(kProgram, kBenchLog, result.error());
  print_report(command, *result);
  const LogAuditResult& audit = result->audit;
  if (audit.ok()) return kDone;
  return fail(kProgram, kBenchLog,
              fmt::format("of {} acknowledged entries {} are missing, {} changed, {} out of order; "
                          "the first: {}",
                          audit.acknowledged, audit.missing, audit.changed, audit.out_of_order,
                          audit.first_problem));
}

void add_options(CLI::App& app, LogCommand& command) {
  LogLoadOptions& load = command.load;
  app.add_option("--mode", command.mode,
                 "exclusive: a log for each producer, one-sided where that is durable; shared: one "
                 "log, by RPC")
      ->check(parsed_by(parse_log_mode, "MODE"))
      ->capture_default_str();
  app.add_option("--producers", load.producers, "connections that append")
      ->check(in_range(1, 256))
      ->capture_default_str();
  app.add_option("--threads", load.threads,
                 "which the producers share; local:PATH with more than one is served by one more")
      ->check(in_range(1, 256))
      ->capture_default_str();
  app.add_option("--coroutines", load.coroutines, "appends at a time of each producer")
      ->check(in_range(1, 1024))
      ->capture_default_str();
  app.add_option("--batch", load.batch, "entries of each append")
      ->check(in_range(uint32_t{1}, static_cast<uint32_t>(log::kMaxBatchEntries)))
      ->capture_default_str();
  app.add_option("--payload", command.payload, "bytes of each entry")
      ->check(parsed_by(parse_bytes, "BYTES"))
      ->capture_default_str();
  app.add_option("--log-bytes", command.log_bytes,
                 "of each log; when one is full, all are read, checked and trimmed")
      ->check(parsed_by(parse_bytes, "BYTES"))
      ->capture_default_str();
  CLI::Option* const by_time = app.add_option("--seconds", load.seconds,
                                              "how long; only appends "
                                              "count")
                                   ->check(in_range(0.00001, 86400.0));
  by_time->capture_default_str();
  app.add_option("--ops", load.appends, "so many appends altogether, instead of a time")
      ->check(in_range(uint64_t{1}, uint64_t{1} << 32))
      ->excludes(by_time);
  app.add_option("--seed", load.seed, "of the payloads")->capture_default_str();
  app.add_option("--strategy", command.strategy,
                 "how an exclusive producer's writes become durable: auto, naive, outstanding, "
                 "doorbell, flush, two_sided")
      ->check(parsed_by(persist::parse_strategy, "STRATEGY"))
      ->capture_default_str();
  app.add_option("--poll", command.poll, kPollHelp)
      ->check(parsed_by(parse_poll, "MODE"))
      ->capture_default_str();
}

void add_replicas(CLI::App& app, LogCommand& command) {
  LogLoadOptions& load = command.load;
  app.add_option("--replica", load.replicas,
                 "instead of --uri, a server of each log's replicas; may be repeated. An append "
                 "returns when all have it")
      ->allow_extra_args(false)
      ->check(parsed_by(check_uri, "URI"));
  app.parse_complete_callback([&load] {
    if (load.replicas.empty()) return check_place(load.session, load.model);
    // A URI from the environment is not meant then.
    if (load.session.uri_given) throw CLI::ExcludesError("--replica", "--uri");
  });
}

}  // namespace

void add_bench_log(CLI::App& bench, Invocation& invocation) {
  auto command = std::make_shared<LogCommand>();
  CLI::App* const app =
      bench.add_subcommand("log", "durable appends; a reader checks every acknowledged entry");
  add_place_to(*app, command->load.session, command->load.model);
  app->remove_option(app->get_option("--locks"));  // a store's
  add_options(*app, *command);
  add_replicas(*app, *command);
  app->footer(
      "Makes logs bench/0, bench/1, ... and deletes them, also those that a killed run has left.\n"
      "example: pmstore bench log --uri local:/dev/shm/pool --assume-domain eadr --payload 64\n"
      "example: pmstore bench log --uri tcp://db:7000 --mode shared --producers 8 --json\n"
      "example: pmstore bench log --replica tcp://a:7000 --replica tcp://b:7000 --producers 4\n"
      "example: pmstore bench log --model optane-cx5 --payload 1024 --ops 2000");
  app->callback(
      [command, &invocation] { invocation.run = [command] { return bench_log(*command); }; });
}

}  // namespace pmstore::tools
