// pmstore bench fs: file data, and the rates of metadata.
#include <fmt/format.h>

#include <memory>

#include "fs/types.h"
#include "tools/bench/bench_options.h"
#include "tools/bench/fs_factors.h"
#include "tools/bench/fs_load.h"
#include "tools/bench/fs_scaling.h"
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

constexpr std::string_view kBenchFs = "bench fs";

struct FsCommand {
  FsLoadOptions load;
  std::string mode = "data";
  std::string payload = "4K";
  std::string file_bytes = "4M";
  std::string strategy = "auto";
  std::string poll = "adaptive";
  bool factors = false;
  bool scaling = false;
  std::string plot;
};

// What the modelled machine can be asked for, and what follows from its rules.
Status complete_model(FsCommand& command) {
  FsLoadOptions& load = command.load;
  PMSTORE_TRY_STATUS(load.model.check());
  if (!command.scaling && load.model.data_servers >= load.model.hosts) {
    return invalid_argument(
        fmt::format("{} data servers and a client need a host each: give --hosts {} or more",
                    load.model.data_servers, load.model.data_servers + 1));
  }
  if (load.poll != base::PollMode::kAdaptive) {
    return invalid_argument("in virtual time nothing waits: leave --poll out");
  }
  if (load.session.assume_domain == persist::domain_name(persist::Domain::kNone)) {
    return invalid_argument(
        "the modelled nvm is never an ordinary file: use --assume-domain adr or eadr");
  }
  const bool automatic = load.strategy == persist::WriteStrategy::kAuto;
  if (!automatic && persist::parse_rules(load.model.rules)->named.has(persist::Rule::kH9)) {
    return invalid_argument(
        "rule h9 chooses the strategy, and --strategy does, too: leave one of them out");
  }
  PMSTORE_TRY(const persist::Rules rules, load.model.store_rules());
  // Without H9 two posts, where one-sided is right at all.
  if (automatic && !rules.has(persist::Rule::kH9) && rules.has(persist::Rule::kH3)) {
    load.strategy = persist::WriteStrategy::kOutstanding;
  }
  return {};
}

// Parses texts and refuses what the parser cannot refuse.
Status complete(FsCommand& command) {
  FsLoadOptions& load = command.load;
  load.mode = *parse_fs_load_mode(command.mode);
  load.payload_bytes = *parse_bytes(command.payload);
  load.file_bytes = *parse_bytes(command.file_bytes);
  load.strategy = *persist::parse_strategy(command.strategy);
  load.poll = *parse_poll(command.poll);
  if (command.factors && !load.model.on()) return invalid_argument("--factors needs --model");
  if (command.scaling && !load.model.on()) return invalid_argument("--scaling needs --model");
  if (!command.plot.empty() && !command.factors && !command.scaling) {
    return invalid_argument("--plot needs --factors or --scaling");
  }
  if (load.model.on()) {
    PMSTORE_TRY_STATUS(complete_model(command));
  }
  if (load.mode == FsLoadMode::kMetadata) return {};
  if (load.payload_bytes == 0 || load.file_bytes == 0 ||
      load.file_bytes % load.payload_bytes != 0) {
    return invalid_argument(
        fmt::format("--file-bytes {} is no multiple of --payload {}: give one that is",
                    command.file_bytes, command.payload));
  }
  if (load.atomic && load.payload_bytes > fs::kMaxMessageData) {
    return invalid_argument("--atomic writes have at most 1M: give a smaller --payload");
  }
  if (load.blocks() < load.workers()) {
    return invalid_argument(fmt::format(
        "{} workers need a block each, and there are {}: give more --files or --file-bytes",
        load.workers(), load.blocks()));
  }
  return {};
}

nlohmann::ordered_json config_of(const FsCommand& command, const FsLoadResult& result) {
  const FsLoadOptions& load = command.load;
  nlohmann::ordered_json config = {{"uri", json_bytes(load.session.uri)},
                                   {"mode", command.mode},
                                   {"threads", load.threads},
                                   {"coroutines", load.coroutines},
                                   {"files", load.files},
                                   {"seed", load.seed},
                                   {"assumed_domain", nullptr}};
  if (load.model.on()) {
    config["model"] = result.model_config;
    config["data_servers"] = load.model.data_servers;
  } else {
    config["poll"] = command.poll;
  }
  if (!load.session.assume_domain.empty()) config["assumed_domain"] = load.session.assume_domain;
  if (load.mode == FsLoadMode::kMetadata) return config;
  config["payload_bytes"] = load.payload_bytes;
  config["file_bytes"] = load.file_bytes;
  config["read_share"] = load.read_share;
  config["access"] = load.sequential ? "sequential" : "random";
  config["one_sided"] = load.one_sided;
  config["fsync_every"] = load.fsync_every;
  config["atomic"] = load.atomic;
  config["strategy"] = persist::strategy_name(load.strategy);
  if (load.ops != 0) {
    config["ops"] = load.ops;
  } else {
    config["seconds"] = load.seconds;
  }
  return config;
}

nlohmann::ordered_json results_of(const FsCommand& command, const FsLoadResult& result) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  uint64_t all = 0;  // the counters of data are those of reads and writes together
  for (const FsLoadPhase& phase : result.phases) all += phase.latency_ns.count();
  for (const FsLoadPhase& phase : result.phases) {
    if (phase.latency_ns.count() == 0) continue;
    auto row = result_json(phase.name, phase.latency_ns, phase.seconds);
    const bool data = command.load.mode == FsLoadMode::kData;
    if (data) {
      row["bytes_per_s"] = static_cast<double>(phase.latency_ns.count()) *
                           static_cast<double>(command.load.payload_bytes) / phase.seconds;
    }
    row["errors"] = 0;
    row["counters"] = counters_json(phase.counters, data ? all : phase.latency_ns.count());
    rows.push_back(std::move(row));
  }
  return rows;
}

void print_report(const FsCommand& command, const FsLoadResult& result) {
  const FsLoadOptions& load = command.load;
  const auto rows = results_of(command, result);
  if (load.session.json) {
    nlohmann::ordered_json object = {{"bench", "fs"},
                                     {"revision", kRevision},
                                     {"config", config_of(command, result)},
                                     {"interrupted", result.interrupted},
                                     {"results", rows},
                                     {"audit",
                                      {{"ok", result.audit.ok()},
                                       {"checked", result.audit.checked},
                                       {"wrong", result.audit.wrong},
                                       {"first_problem", result.audit.first_problem}}}};
    if (load.model.on()) object["model_counters"] = result.model_counters;
    print_json(object);
    return;
  }
  const bool data = load.mode == FsLoadMode::kData;
  print_text(fmt::format("{}, {}, {} clients x {} at a time, {} files{}, revision {}\n",
                         printable(load.session.uri), command.mode, load.threads, load.coroutines,
                         load.files, data ? " of " + command.file_bytes : " each", kRevision));
  TextTable table(1);
  table.row({"", "ops", "per second", data ? "MiB/s" : "", "p50 us", "p99 us", "doorbells",
             "round trips", "messages"});
  for (const auto& row : rows) {
    const auto number = [&](std::string_view name) { return row[name].get<double>(); };
    const auto counted = [&](std::string_view name) {
      return fmt::format("{:.2f}", row["counters"][name].get<double>());
    };
    table.row({row["name"].get<std::string>(), std::to_string(row["ops"].get<uint64_t>()),
               fmt::format("{:.0f}", number("rate_per_s")),
               data ? fmt::format("{:.0f}", number("bytes_per_s") / (1 << 20)) : "",
               fmt::format("{:.1f}", number("p50_us")), fmt::format("{:.1f}", number("p99_us")),
               counted("doorbells_per_op"), counted("round_trips_per_op"),
               counted("server_messages_per_op")});
  }
  print_text(table.text());
  if (!result.audit.ok()) return;
  print_text(
      data
          ? fmt::format("audit: all {} blocks have what was written last\n", result.audit.checked)
          : fmt::format("audit: all {} files were there, and are removed\n", result.audit.checked));
}

// Of several runs on modelled machines: a picture, one JSON object, or a text.
template <typename Row>
int print_cases(const FsCommand& command, const Result<std::vector<Row>>& rows,
                nlohmann::ordered_json (*json)(const std::vector<Row>&),
                std::string (*text)(const std::vector<Row>&),
                Plot (*picture)(const std::vector<Row>&, const std::string&)) {
  const bool plots = !command.plot.empty();
  if (!rows) return fail(kProgram, kBenchFs, rows.error());
  const FsLoadOptions& load = command.load;
  const std::string title = fmt::format("bench fs, {} clients x {} at a time, {}, revision {}",
                                        load.threads, load.coroutines, load.model.name, kRevision);
  if (plots) {
    const Status drawn = draw(picture(*rows, title), command.plot);
    if (!drawn) return fail(kProgram, kBenchFs, drawn.error());
  }
  if (load.session.json) {
    print_json({{"bench", "fs"},
                {"revision", kRevision},
                {"config",
                 {{"threads", load.threads},
                  {"coroutines", load.coroutines},
                  {"hosts", command.scaling ? nlohmann::ordered_json(nullptr)
                                            : nlohmann::ordered_json(load.model.hosts)},
                  {"machine", load.model.name},
                  {"seed", load.seed}}},
                {"results", json(*rows)}});
    return kDone;
  }
  print_text(title + "\n" + text(*rows));
  if (plots) print_text(fmt::format("picture: {}\n", printable(command.plot)));
  return kDone;
}

int bench_cases(const FsCommand& command) {
  if (!command.plot.empty()) {
    if (const Status good = check_plot(command.plot); !good) {
      return fail_command(kBenchFs, good.error());
    }
  }
  if (command.scaling) {
    return print_cases<FsScalingRow>(command, run_fs_scaling(command.load), fs_scaling_json,
                                     fs_scaling_text, fs_scaling_picture);
  }
  return print_cases<FsFactorRow>(command, run_fs_factors(command.load), fs_factors_json,
                                  fs_factors_text, fs_factors_picture);
}

int bench_fs(FsCommand command) {
  if (const Status good = complete(command); !good) return fail_command(kBenchFs, good.error());
  if (command.factors || command.scaling) return bench_cases(command);
  const auto result = run_fs_load(command.load);
  if (!result) return fail(kProgram, kBenchFs, result.error());
  print_report(command, *result);
  const FsLoadAudit& audit = result->audit;
  if (audit.ok()) return kDone;
  return fail(kProgram, kBenchFs,
              fmt::format("{} of {} are wrong; the first: {}", audit.wrong, audit.checked,
                          audit.first_problem));
}

void add_data_options(CLI::App& app, FsCommand& command) {
  FsLoadOptions& load = command.load;
  app.add_option("--payload", command.payload, "data: bytes of each read and write")
      ->check(parsed_by(parse_bytes, "BYTES"))
      ->capture_default_str();
  app.add_option("--file-bytes", command.file_bytes, "data: of each file")
      ->check(parsed_by(parse_bytes, "BYTES"))
      ->capture_default_str();
  app.add_option("--read-share", load.read_share, "data: share of reads; the others are writes")
      ->check(in_range(0.0, 1.0))
      ->capture_default_str();
  app.add_flag("--sequential", load.sequential,
               "data: each worker goes through its own blocks, instead of random ones");
  app.add_flag("!--no-one-sided", load.one_sided, "data: all through the namespace server");
  app.add_option("--fsync-every", load.fsync_every,
                 "data: each worker makes its writes durable by an fsync after so many, whose time "
                 "counts as the last one's; 0: each write is durable by itself")
      ->check(in_range(uint64_t{0}, uint64_t{1} << 32))
      ->capture_default_str();
  app.add_flag("--atomic", load.atomic, "data: each write happens as a whole, or not at all");
  app.add_option("--strategy", command.strategy,
                 "data: how writes become durable: auto, naive, outstanding, doorbell, flush, "
                 "two_sided")
      ->check(parsed_by(persist::parse_strategy, "STRATEGY"))
      ->capture_default_str();
  CLI::Option* const by_time = app.add_option("--seconds", load.seconds, "data: how long")
                                   ->check(in_range(0.00001, 86400.0));
  by_time->capture_default_str();
  app.add_option("--ops", load.ops, "data: so many operations altogether, instead of a time")
      ->check(in_range(uint64_t{1}, uint64_t{1} << 32))
      ->excludes(by_time);
  CLI::Option* const factors = app.add_flag(
      "--factors", command.factors,
      "with --model: reads and writes of 1K to 1M, with each rule alone switched off, and with "
      "each strategy; --ops each, at most 64M and at least 20 of each worker");
  for (const char* option : {"--mode", "--payload", "--file-bytes", "--files", "--read-share",
                             "--strategy", "--rules", "--seconds", "--fsync-every", "--atomic"}) {
    factors->excludes(app.get_option(option));
  }
  CLI::Option* const scaling = app.add_flag(
      "--scaling", command.scaling,
      "with --model: reads and writes of 64K to 1M of files that are striped over 1, 2, 4 and 8 "
      "data servers, with a host for each server and client; --ops each, at most 256M and at least "
      "20 of each worker");
  for (const char* option : {"--mode", "--payload", "--file-bytes", "--files", "--read-share",
                             "--hosts", "--data-servers", "--factors", "--seconds"}) {
    scaling->excludes(app.get_option(option));
  }
  app.add_option("--plot", command.plot,
                 "draw what --factors or --scaling measures as FILE.png or FILE.svg");
}

}  // namespace

void add_bench_fs(CLI::App& bench, Invocation& invocation) {
  auto command = std::make_shared<FsCommand>();
  CLI::App* const app = bench.add_subcommand("fs", "reads, writes and metadata of files");
  FsLoadOptions& load = command->load;
  add_place_to(*app, load.session, load.model);
  app->add_option("--data-servers", load.model.data_servers,
                  "of the model: so many hosts serve, and the data of files is striped over them")
      ->check(in_range(1, 64))
      ->needs(app->get_option("--model"))
      ->capture_default_str();
  app->add_option("--mode", command->mode,
                  "data: blocks of files; metadata: create, stat, readdir, rename and unlink")
      ->check(parsed_by(parse_fs_load_mode, "MODE"))
      ->capture_default_str();
  app->add_option("--threads", load.threads, "clients, on a thread each")
      ->check(in_range(1, 256))
      ->capture_default_str();
  app->add_option("--coroutines", load.coroutines, "operations at a time of each client")
      ->check(in_range(1, 1024))
      ->capture_default_str();
  app->add_option("--files", load.files, "data: altogether; metadata: of each worker")
      ->check(in_range(uint64_t{1}, uint64_t{1} << 24))
      ->capture_default_str();
  app->add_option("--seed", load.seed, "of places and contents")->capture_default_str();
  app->add_option("--poll", command->poll, kPollHelp)
      ->check(parsed_by(parse_poll, "MODE"))
      ->capture_default_str();
  add_data_options(*app, *command);
  app->footer(
      "Works in the directory /bench-fs of the file system, which it removes. Counters are per "
      "operation; of data, those of reads and writes together.\n"
      "example: pmstore bench fs --uri tcp://db:7000 --payload 4K --read-share 0\n"
      "example: pmstore bench fs --uri tcp://db:7000 --read-share 0 --fsync-every 32\n"
      "example: pmstore bench fs --uri shm://db --mode metadata --files 10000 --json\n"
      "example: pmstore bench fs --model optane-cx5 --hosts 6 --threads 5 --ops 2000\n"
      "example: pmstore bench fs --model optane-cx5 --hosts 6 --threads 5 --ops 2000 --factors "
      "--plot files.png\n"
      "example: pmstore bench fs --model optane-cx5 --threads 8 --ops 2000 --scaling "
      "--plot scaling.png");
  app->callback(
      [command, &invocation] { invocation.run = [command] { return bench_fs(*command); }; });
}

}  // namespace pmstore::tools
