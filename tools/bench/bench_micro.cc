// pmstore bench micro: remote reads and writes, one- and two-sided, rule by rule.
#include <fmt/format.h>
#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "tools/bench/micro_child.h"
#include "tools/bench/micro_options.h"
#include "tools/cli/bytes_text.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"

namespace pmstore::tools {
namespace {

struct MicroCommand {
  MicroOptions options;
  std::string op = "write";
  std::string side = "one";
  std::string medium;
  std::string pattern = "random";
  std::string strategy = "auto";
  std::string rules = "all";
  std::string payload = "64";
  std::vector<std::string> sweeps;
  bool factor = false;
  std::string serve;
};

constexpr std::string_view kBenchMicro = "bench micro";

// The options as one point; a sweep changes it.
Status complete(MicroCommand& command, const CLI::App& app) {
  PMSTORE_TRY_STATUS(command.options.complete(app));
  MicroPoint& point = command.options.point;
  if (command.medium.empty()) {
    const bool nvm = command.options.on_model() || !command.options.place.pool.empty();
    command.medium = nvm ? "nvm" : "dram";
  }
  // There is only one way for these.
  if (command.op == op_name(MicroOp::kAtomic) && app.count("--payload") == 0) command.payload = "8";
  if (command.op == op_name(MicroOp::kEcho) && app.count("--side") == 0) command.side = "two";
  for (const auto& [name, value] : {std::pair<const char*, const std::string&>{"op", command.op},
                                    {"side", command.side},
                                    {"medium", command.medium},
                                    {"pattern", command.pattern},
                                    {"strategy", command.strategy},
                                    {"rules", command.rules},
                                    {"payload", command.payload}}) {
    PMSTORE_TRY_STATUS(set_parameter(point, name, value));
  }
  if (!command.factor) return {};
  for (const char* option : {"--op", "--side", "--medium", "--pattern", "--rules", "--payload",
                             "--batch", "--strategy", "--persistent", "--ddio", "--sweep"}) {
    if (app.count(option) == 0) continue;
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("--factor has its own list of measurements: leave {} out", option));
  }
  return {};
}

Result<int> measure(const MicroCommand& command) {
  std::vector<MicroAxis> axes;
  for (const std::string& sweep : command.sweeps) {
    PMSTORE_TRY(MicroAxis axis, parse_axis(sweep));
    axes.push_back(std::move(axis));
  }
  const MicroOptions& options = command.options;
  const bool plots = !options.picture.path.empty();
  if (plots) {
    if (!command.factor && (axes.empty() || !is_numeric(axes.back()))) {
      return make_error(ErrorCode::kInvalidArgument,
                        "--plot draws --factor, or a curve over the last --sweep, whose values "
                        "must be numbers: for instance --sweep payload");
    }
    PMSTORE_TRY_STATUS(check_plot(options.picture.path));
  }
  PMSTORE_TRY(const auto place, options.open_place());
  std::vector<MicroCase> cases;
  if (command.factor) {
    cases = factor_cases(options.point, place->fixed_rules());
  } else {
    PMSTORE_TRY(cases, expand(options.point, axes));
  }
  if (plots) {
    PMSTORE_TRY_STATUS(check_picture(cases, axes, options.picture));
  }
  PMSTORE_TRY(const std::vector<MicroRow> rows, measure_all(*place, cases, false));
  if (plots) {
    const std::string title = fmt::format("pmstore bench micro, {}", place->name());
    const Plot picture = picture_of(rows, axes, title, options.picture.latency);
    PMSTORE_TRY_STATUS(draw(picture, options.picture.path));
  }
  if (options.json) {
    print_json(report_json("micro", *place, {{"factor", command.factor}}, rows));
  } else {
    print_text(place_text(*place) + "\n" + rows_text(rows, command.factor));
    if (plots) print_text(fmt::format("picture: {}\n", printable(options.picture.path)));
  }
  return kDone;
}

// Serves until SIGINT or SIGTERM.
Result<int> serve(const MicroCommand& command) {
  const MicroOptions& options = command.options;
  PMSTORE_TRY(const fabric::Uri listen, fabric::parse_uri(command.serve));
  if (listen.scheme == fabric::Scheme::kLocal) {
    return make_error(ErrorCode::kInvalidArgument,
                      "local has no server that others reach: use tcp, shm or verbs");
  }
  MicroServiceOptions service;
  service.listen = listen;
  service.threads = options.point.server_threads;
  service.bytes = std::max(options.place.memory_bytes, options.point.range_bytes);
  service.pool = options.place.pool;
  service.force = options.place.force;
  service.assume_domain = options.point.domain;
  service.ddio = options.point.ddio.value_or(true);
  // Blocked before the threads start, so that only sigwait() below sees them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  PMSTORE_TRY(const auto running, MicroService::start(service));
  print_text(fmt::format("{}{} ({} threads, {} bytes of dram{})\n", kServingPrefix,
                         running->uri().to_string(), service.threads, service.bytes,
                         service.pool.empty() ? "" : " and of nvm"));
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  return kDone;
}

int bench_micro(MicroCommand command, const CLI::App& app) {
  Status completed = complete(command, app);
  if (!completed) return fail_command(kBenchMicro, completed.error());
  const Result<int> done = command.serve.empty() ? measure(command) : serve(command);
  return done ? *done : fail_command(kBenchMicro, done.error());
}

void add_workload(CLI::App& app, MicroCommand& command) {
  app.add_option("--op", command.op,
                 "write, read, atomic (8-byte fetch-and-add), or echo (an RPC without memory)")
      ->check(parsed_by(parse_op, "OP"))
      ->capture_default_str();
  app.add_option("--side", command.side, "one (RDMA) or two (the server's CPU)")
      ->check(parsed_by(parse_side, "SIDE"))
      ->capture_default_str();
  app.add_option(
         "--medium", command.medium,
         "dram or nvm (default: nvm with --pool and --model, else dram); of atomics, rule h8 "
         "decides")
      ->check(parsed_by(parse_medium, "MEDIUM"));
  app.add_option("--pattern", command.pattern, "random or sequential")
      ->check(parsed_by(parse_pattern, "PATTERN"))
      ->capture_default_str();
  app.add_option("--payload", command.payload, "bytes of each request, before padding")
      ->capture_default_str();
  app.add_flag("--persistent", command.options.point.persistent,
               "writes count when they are durable");
  app.add_option("--strategy", command.strategy,
                 "how one-sided writes become durable: auto (by rule h9), naive, outstanding, "
                 "doorbell, flush")
      ->check(parsed_by(persist::parse_strategy, "STRATEGY"))
      ->capture_default_str();
  app.add_option("--batch", command.options.point.batch,
                 "one-sided requests that are posted, and complete, together")
      ->capture_default_str();
  app.add_flag("--single-dimm", command.options.point.single_dimm,
               "only every sixth 4 KiB of the range: one of six interleaved DIMMs");
  app.add_option("--rules", command.rules,
                 "which of the nine rules are followed: all or none, then changes by name, like "
                 "all,-h3 or none,+h1,+h6")
      ->check(parsed_by(persist::parse_rules, "RULES"))
      ->capture_default_str();
}

}  // namespace

void add_bench_micro(CLI::App& bench, Invocation& invocation) {
  auto command = std::make_shared<MicroCommand>();
  CLI::App* const app = bench.add_subcommand(
      "micro", "remote reads and writes, one- and two-sided, with each rule on or off");
  command->options.add_to(*app);
  add_workload(*app, *command);
  app->add_option("--sweep", command->sweeps,
                  "NAME=VALUE,VALUE: once for each value of a parameter (payload alone: 8 to "
                  "65536); repeatable, then every combination; values of rules are separated by ;")
      ->check(parsed_by(parse_axis, "AXIS"));
  app->add_flag("--factor", command->factor,
                "what each rule adds to the ones before it: 16 B and 2,048 B one-sided, 16 B "
                "two-sided, writes to nvm");
  command->options.add_picture(*app, "curves over the last --sweep, or --factor's bars");
  app->add_option(
         "--dimm-trace", command->options.place.dimm_trace,
         "write the counters of the modelled server's DIMMs to this file, for pmstore tune "
         "counters --trace")
      ->needs("--model");
  CLI::Option* const serve =
      app->add_option("--serve", command->serve,
                      "no measurements: serve at this URI until SIGINT or SIGTERM")
          ->check(parsed_by(fabric::parse_uri, "URI"));
  serve->excludes("--uri")->excludes("--fabric")->excludes("--sweep")->excludes("--factor");
  serve->excludes("--plot")->excludes("--plot-latency")->excludes("--json")->excludes("--model");
  app->add_option("--assume-domain", command->options.assume_domain,
                  "treat the nvm of a server of our own as this persistence domain: none, adr, "
                  "eadr")
      ->check(parsed_by(persist::parse_domain, "DOMAIN"));
  app->footer(
      "What each rule means here, and how to read the figures: docs/bench.md.\n"
      "example: pmstore bench micro --payload 64 --sweep side=one,two --sweep window=1,16 "
      "--seconds 0.2\n"
      "example: pmstore bench micro --pool /dev/shm/micro-pool --assume-domain eadr --persistent "
      "--sweep strategy=naive,outstanding,doorbell --seconds 0.2\n"
      "example: pmstore bench micro --fabric tcp --sweep payload --ops 1000 --json\n"
      "example: pmstore bench micro --model optane-cx5 --payload 16 --sweep 'rules=none;all' "
      "--seconds 0.001\n"
      "two machines: pmstore bench micro --serve tcp://0.0.0.0:7100 on the one, and on the other\n"
      "pmstore bench micro --uri tcp://HOST:7100");
  app->callback([command, app, &invocation] {
    invocation.run = [command, app] { return bench_micro(*command, *app); };
  });
}

}  // namespace pmstore::tools
