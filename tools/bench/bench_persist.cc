// pmstore bench persist: every way to make a remote write durable, side by side.
#include <fmt/format.h>

#include <memory>

#include "tools/bench/micro_options.h"
#include "tools/cli/bytes_text.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"

namespace pmstore::tools {
namespace {

using persist::WriteStrategy;

constexpr std::string_view kBenchPersist = "bench persist";
constexpr WriteStrategy kStrategies[] = {WriteStrategy::kNaive, WriteStrategy::kOutstanding,
                                         WriteStrategy::kDoorbell, WriteStrategy::kFlush,
                                         WriteStrategy::kTwoSided};

struct PersistCommand {
  MicroOptions options;
  std::vector<std::string> payloads = {"64", "256", "1024", "4096"};
  std::vector<std::string> domains;
  std::string rules = "all";
};

Status complete(PersistCommand& command, const CLI::App& app) {
  PMSTORE_TRY_STATUS(command.options.complete(app));
  MicroPoint& point = command.options.point;
  point.op = MicroOp::kWrite;
  point.persistent = true;
  point.medium = MicroMedium::kNvm;
  return set_parameter(point, "rules", command.rules);
}

// Domains, then payloads, then strategies, so that the ways are next to each other.
Result<std::vector<MicroCase>> cases_of(const PersistCommand& command) {
  std::vector<std::string> domains = command.domains;
  if (domains.empty()) domains.push_back("");
  std::vector<MicroCase> cases;
  for (const std::string& domain : domains) {
    for (const std::string& payload : command.payloads) {
      for (const WriteStrategy strategy : kStrategies) {
        MicroCase one;
        one.point = command.options.point;
        if (!domain.empty()) {
          PMSTORE_TRY(one.point.domain, persist::parse_domain(domain));
        }
        PMSTORE_TRY_STATUS(set_parameter(one.point, "payload", payload));
        one.point.strategy = strategy;
        const bool two_sided = strategy == WriteStrategy::kTwoSided;
        one.point.side = two_sided ? MicroSide::kTwoSided : MicroSide::kOneSided;
        one.group = fmt::format("{}{}{} B", domain, domain.empty() ? "" : " ", payload);
        one.x = persist::strategy_name(strategy);
        one.label = two_sided ? "two-sided" : one.x;
        one.name = fmt::format("{} {}", one.group, one.x);
        cases.push_back(std::move(one));
      }
    }
  }
  return cases;
}

Result<int> measure(const PersistCommand& command) {
  const MicroOptions& options = command.options;
  const bool plots = !options.picture.path.empty();
  PMSTORE_TRY(const std::vector<MicroCase> cases, cases_of(command));
  if (plots) {
    PMSTORE_TRY_STATUS(check_picture(cases, {}, options.picture));
  }
  PMSTORE_TRY(const auto place, options.open_place());
  PMSTORE_TRY(const std::vector<MicroRow> rows, measure_all(*place, cases, true));
  bool any = false;
  for (const MicroRow& row : rows) any |= row.result.has_value();
  // Nothing at all could be measured: that is a failure, with the first reason.
  if (!any) return make_error(ErrorCode::kUnsupported, rows.front().refused);
  if (plots) {
    const std::string title = fmt::format("pmstore bench persist, {}", place->name());
    PMSTORE_TRY_STATUS(
        draw(picture_of(rows, {}, title, options.picture.latency), options.picture.path));
  }
  if (options.json) {
    print_json(report_json("persist", *place, nlohmann::ordered_json::object(), rows));
  } else {
    print_text(place_text(*place) + "\n" + rows_text(rows, false));
    if (plots) print_text(fmt::format("picture: {}\n", printable(options.picture.path)));
  }
  return kDone;
}

int bench_persist(PersistCommand command, const CLI::App& app) {
  Status completed = complete(command, app);
  if (!completed) return fail_command(kBenchPersist, completed.error());
  const Result<int> done = measure(command);
  return done ? *done : fail_command(kBenchPersist, done.error());
}

}  // namespace

void add_bench_persist(CLI::App& bench, Invocation& invocation) {
  auto command = std::make_shared<PersistCommand>();
  command->options.point.window = 1;
  command->options.model_clients = 1;
  CLI::App* const app = bench.add_subcommand(
      "persist", "durable remote writes: all strategies against payload and persistence domain");
  command->options.add_to(*app);
  app->add_option("--payload", command->payloads, "bytes of each write; several, with commas")
      ->delimiter(',')
      ->capture_default_str();
  app->add_option("--domain", command->domains,
                  "treat the nvm of a server of our own as this persistence domain: none, adr, "
                  "eadr; several, with commas (default: the one that is detected)")
      ->delimiter(',')
      ->check(parsed_by(persist::parse_domain, "DOMAIN"));
  app->add_option("--rules", command->rules,
                  "which of the nine rules are followed, like all,-h6; h9 cannot be named, "
                  "since the strategies are what it is about")
      ->check(parsed_by(persist::parse_rules, "RULES"))
      ->capture_default_str();
  command->options.add_picture(*app, "bars, a panel for each payload and domain");
  app->footer(
      "A way that would not be durable is refused, and the reason is printed. The rate is that of\n"
      "one write at a time; --window and --clients make it more.\n"
      "example: pmstore bench persist --pool /dev/shm/persist-pool --domain adr,eadr --payload "
      "64,1024 --seconds 0.1\n"
      "example: pmstore bench persist --fabric shm --pool /dev/shm/persist-pool --domain eadr "
      "--ops 1000 --json\n"
      "example: pmstore bench persist --model optane-cx5 --clients 1 --ddio off --seconds 0.001");
  app->callback([command, app, &invocation] {
    invocation.run = [command, app] { return bench_persist(*command, *app); };
  });
}

}  // namespace pmstore::tools
