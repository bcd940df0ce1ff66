// pmstore tune advise: which rules pay here. Each rule is measured with a request that it is about:
// with all rules, and with all but this one.
#include <fmt/format.h>

#include <memory>

#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/console.h"
#include "tools/micro_options.h"
#include "tools/micro_report.h"
#include "tools/text_table.h"
#include "tools/tune_command.h"

namespace pmstore::tools {
namespace {

using persist::Rule;

constexpr std::string_view kWhat = "tune advise";
// Below this much, on either side, is no difference.
constexpr double kDifference = 0.05;

struct Trial {
  Rule rule;
  std::string_view request;
  void (*shape)(MicroPoint& point);
};

constexpr Trial kTrials[] = {
    {Rule::kH1, "two-sided 2,048 B writes",
     [](MicroPoint& p) {
       p.side = MicroSide::kTwoSided;
       p.payload_bytes = 2048;
     }},
    {Rule::kH2, "two-sided 2,048 B writes to one DIMM, 20 server threads",
     [](MicroPoint& p) {
       p.side = MicroSide::kTwoSided;
       p.payload_bytes = 2048;
       p.single_dimm = true;
       p.server_threads = 20;
     }},
    // Where few threads cannot load a DIMM.
    {Rule::kH2, "two-sided 256 B writes to one DIMM, 20 server threads",
     [](MicroPoint& p) {
       p.side = MicroSide::kTwoSided;
       p.payload_bytes = 256;
       p.single_dimm = true;
       p.server_threads = 20;
     }},
    {Rule::kH3, "one-sided 2,048 B writes", [](MicroPoint& p) { p.payload_bytes = 2048; }},
    {Rule::kH4, "two-sided 2,048 B writes",
     [](MicroPoint& p) {
       p.side = MicroSide::kTwoSided;
       p.payload_bytes = 2048;
     }},
    {Rule::kH5, "one-sided 1,000 B writes", [](MicroPoint& p) { p.payload_bytes = 1000; }},
    {Rule::kH6, "one-sided 16 B writes", [](MicroPoint& p) { p.payload_bytes = 16; }},
    {Rule::kH7, "two-sided 16 B writes",
     [](MicroPoint& p) {
       p.side = MicroSide::kTwoSided;
       p.payload_bytes = 16;
     }},
    {Rule::kH8, "atomics",
     [](MicroPoint& p) {
       p.op = MicroOp::kAtomic;
       p.payload_bytes = 8;
     }},
    {Rule::kH9, "persistent 64 B writes, one at a time",
     [](MicroPoint& p) {
       p.payload_bytes = 64;
       p.persistent = true;
       p.window = 1;
       p.clients = 1;
     }},
};

MicroPoint point_of(const Trial& trial, const MicroPoint& base, MicroMedium medium, bool with) {
  MicroPoint point = base;
  point.medium = medium;
  trial.shape(point);
  point.rules = with ? persist::Rules::all() : persist::Rules::all().without(trial.rule);
  // By name, so that a place that cannot switch it says so.
  point.named_rules = persist::Rules::none().with(trial.rule);
  return point;
}

struct Advice {
  const Trial* trial;
  double off_per_s = 0, on_per_s = 0;
  std::string unknown;  // why it was not measured
  double gain() const { return off_per_s > 0 ? on_per_s / off_per_s : 0; }
  std::string_view verdict() const {
    if (!unknown.empty()) return "not measured";
    if (gain() > 1 + kDifference) return "pays";
    return gain() < 1 - kDifference ? "costs" : "no difference";
  }
};

Result<Advice> weigh(const Trial& trial, const MicroPoint& base, MicroMedium medium,
                     MicroPlace& place) {
  Advice advice{&trial, 0, 0, {}};
  std::vector<MicroCase> cases;
  for (const bool with : {false, true}) {
    const MicroPoint point = point_of(trial, base, medium, with);
    // Persistent writes to dram, for instance.
    if (const Status sensible = check_point(point); !sensible) {
      advice.unknown = sensible.error().message;
      return advice;
    }
    const std::string name = persist::rule_name(trial.rule);
    const char* const x = with ? "on" : "off";
    cases.push_back({fmt::format("{} {}", name, x), name, x, point});
  }
  PMSTORE_TRY(const std::vector<MicroRow> rows, measure_all(place, cases, true));
  for (const MicroRow& row : rows) {
    if (!row.result) advice.unknown = row.refused;
  }
  if (!advice.unknown.empty()) return advice;
  advice.off_per_s = rows[0].result->tally.rate_per_s();
  advice.on_per_s = rows[1].result->tally.rate_per_s();
  return advice;
}

void print(const std::vector<Advice>& list, const MicroPlace& place) {
  TextTable table(3);
  table.row({"rule", "", "request", "without", "with", "gain", ""});
  for (const Advice& one : list) {
    const Rule rule = one.trial->rule;
    const bool measured = one.unknown.empty();
    table.row({persist::rule_name(rule), std::string(persist::rule_summary(rule)),
               std::string(one.trial->request),
               measured ? fmt::format("{:.3g} M/s", one.off_per_s / 1e6) : "-",
               measured ? fmt::format("{:.3g} M/s", one.on_per_s / 1e6) : "-",
               measured ? fmt::format("x{:.2f}", one.gain()) : "-", std::string(one.verdict())});
  }
  print_text(place_text(place) + "\n" + table.text() +
             "Each verdict is about its request, and about 5 % or more.\n");
  for (const Advice& one : list) {
    if (one.unknown.empty()) continue;
    print_text(fmt::format("{}: {}\n", persist::rule_name(one.trial->rule), one.unknown));
  }
}

void print_as_json(const std::vector<Advice>& list, const MicroPlace& place) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Advice& one : list) {
    nlohmann::ordered_json row = {{"rule", persist::rule_name(one.trial->rule)},
                                  {"about", persist::rule_summary(one.trial->rule)},
                                  {"request", one.trial->request},
                                  {"verdict", one.verdict()}};
    if (one.unknown.empty()) {
      row["without_per_s"] = one.off_per_s;
      row["with_per_s"] = one.on_per_s;
      row["gain"] = one.gain();
    } else {
      row["why"] = one.unknown;
    }
    rows.push_back(std::move(row));
  }
  print_json({{"place", place.name()}, {"config", place.config()}, {"rules", rows}});
}

Result<int> advise(MicroOptions options, const CLI::App& app) {
  PMSTORE_TRY_STATUS(options.complete(app));
  PMSTORE_TRY(const auto place, options.open_place());
  const bool nvm = options.on_model() || !options.place.pool.empty();
  const MicroMedium medium = nvm ? MicroMedium::kNvm : MicroMedium::kDram;
  std::vector<Advice> list;
  for (const Trial& trial : kTrials) {
    PMSTORE_TRY(Advice one, weigh(trial, options.point, medium, *place));
    list.push_back(std::move(one));
  }
  if (options.json) {
    print_as_json(list, *place);
  } else {
    print(list, *place);
  }
  return kDone;
}

}  // namespace

void add_tune_advise(CLI::App& tune, Invocation& invocation) {
  CLI::App* const app =
      tune.add_subcommand("advise", "which of the nine rules pay on this machine, and how much");
  auto options = std::make_shared<MicroOptions>();
  options->add_to(*app);
  app->add_option("--assume-domain", options->assume_domain,
                  "treat the nvm of a server of our own as this persistence domain: none, adr, "
                  "eadr")
      ->check(parsed_by(persist::parse_domain, "DOMAIN"));
  app->footer(
      "Measures each rule on and off with the code of bench micro, --seconds each "
      "(docs/tuning.md).\n"
      "Without --pool only dram is measured, which tells little about rules for persistent "
      "memory.\n"
      "example: pmstore tune advise --model optane-cx5\n"
      "example: pmstore tune advise --pool /dev/dax0.0 --seconds 0.2");
  app->callback([options, app, &invocation] {
    invocation.run = [options, app] {
      const Result<int> done = advise(*options, *app);
      return done ? *done : fail_command(kWhat, done.error());
    };
  });
}

}  // namespace pmstore::tools
