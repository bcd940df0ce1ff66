// pmstore tune advise: which rules pay on this machine. Each rule is measured with a request that
// it concerns: with all rules, and with all but this one, several times in turn. The result is
// compared with the same request to DRAM and with the limits of its rate.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "tools/bench/micro_options.h"
#include "tools/bench/micro_report.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/text_table.h"
#include "tools/tune/advise_limits.h"
#include "tools/tune/tune_command.h"

namespace pmstore::tools {
namespace {

using persist::Rule;

constexpr std::string_view kTuneAdvise = "tune advise";
// Below this much, on either side, is no difference.
constexpr double kDifference = 0.05;
// Chance alone puts all of five turns above all of five others once in 126 times, to either side.
constexpr uint32_t kTurns = 5;
// The turns differ by the seed alone.
constexpr uint32_t kModelTurns = 2;
// Of each measurement on a real machine.
constexpr double kSeconds = 0.1;

// Of each measurement on the modelled machine, and of its warm-up: thousands of requests in most.
constexpr uint64_t kModelNs = 1'000'000;
// Until the last-level cache is full of what the server's CPU has written to it.
constexpr uint64_t kModelCachedWarmupNs = 10'000'000;

struct Trial {
  Rule rule;
  std::string_view request;
  void (*shape)(MicroPoint& point);
  uint64_t model_times = 1;  // kModelNs
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
     },
     5},
    // For machines on which few threads cannot load a DIMM.
    {Rule::kH2, "two-sided 256 B writes to one DIMM, 20 server threads",
     [](MicroPoint& p) {
       p.side = MicroSide::kTwoSided;
       p.payload_bytes = 256;
       p.single_dimm = true;
       p.server_threads = 20;
     }},
    // Twice: until devices' ways of the cache are full.
    {Rule::kH3, "one-sided 2,048 B writes", [](MicroPoint& p) { p.payload_bytes = 2048; }, 2},
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

// Rates of the same request, turn by turn.
class Turns {
 public:
  void add(double per_s) {
    rates_.insert(std::upper_bound(rates_.begin(), rates_.end(), per_s), per_s);
  }
  bool empty() const { return rates_.empty(); }
  double median() const {
    const size_t half = rates_.size() / 2;
    if (rates_.empty()) return 0;
    return rates_.size() % 2 == 1 ? rates_[half] : (rates_[half - 1] + rates_[half]) / 2;
  }
  double least() const { return rates_.empty() ? 0 : rates_.front(); }
  double most() const { return rates_.empty() ? 0 : rates_.back(); }
  // How far the turns are apart, as a part of their median, to either side.
  double spread() const { return median() > 0 ? (most() - least()) / 2 / median() : 0; }

 private:
  std::vector<double> rates_;  // sorted
};

struct Advice {
  const Trial* trial;
  Turns off, on;
  Turns dram;  // the same with all rules, to DRAM and without durability
  Turns echo;  // two-sided: a message of this size that touches no memory
  std::vector<RateLimit> known;
  std::string unknown;  // why it was not measured
  bool ordinary_file = false;

  double gain() const { return off.median() > 0 ? on.median() / off.median() : 0; }
  // Whether the turns with and without lie apart.
  bool apart() const { return on.least() > off.most() || off.least() > on.most(); }
  std::string_view verdict() const {
    if (!unknown.empty()) return "not measured";
    if (std::abs(gain() - 1) <= kDifference) return "no difference";
    if (!apart()) return "in the noise";
    return gain() > 1 ? "pays" : "costs";
  }
  // The lowest limit, known or measured; none when nothing is known.
  std::optional<RateLimit> limit() const {
    std::optional<RateLimit> lowest;
    const auto take = [&](const RateLimit& one) {
      if (one.per_s > 0 && (!lowest || one.per_s < lowest->per_s)) lowest = one;
    };
    for (const RateLimit& one : known) take(one);
    take({"echo", echo.median()});
    return lowest;
  }
};

struct Weighing {
  MicroPoint base;
  MicroMedium medium;
  uint32_t turns;
  bool modelled;
  bool own_seconds;  // the defaults of this command, not what the user said
  bool own_warmup;
  MachineLimits limits;
};

// Virtual time costs by the request, so a measurement is as short as its request allows.
void set_model_times(MicroPoint& point, const Trial& trial, const Weighing& weighing) {
  const uint64_t usual_ns = trial.model_times * kModelNs;
  if (weighing.own_seconds) point.measured_ns = usual_ns;
  if (!weighing.own_warmup) return;
  const bool cached =
      point.op == MicroOp::kWrite && !is_one_sided(point) && !micro_non_temporal(point);
  point.warmup_ns = cached ? kModelCachedWarmupNs : usual_ns;
  point.default_warmup = false;
}

MicroPoint point_of(const Trial& trial, const Weighing& weighing, bool keep_rule) {
  MicroPoint point = weighing.base;
  point.medium = weighing.medium;
  trial.shape(point);
  point.rules = keep_rule ? persist::Rules::all() : persist::Rules::all().without(trial.rule);
  // Rules are given by name, so that a machine that cannot switch one reports it.
  point.named_rules = persist::Rules::none().with(trial.rule);
  if (weighing.modelled) set_model_times(point, trial, weighing);
  return point;
}

// The requests for comparison, measured on the same machine: to DRAM, and a message alone.
// Two-sided requests to the modelled DRAM are slower than hardware's (docs/limits.md).
std::optional<MicroPoint> dram_point(const MicroPoint& measured, const Weighing& weighing) {
  if (micro_medium(measured) != MicroMedium::kNvm) return std::nullopt;
  if (weighing.modelled && !is_one_sided(measured)) return std::nullopt;
  MicroPoint point = measured;
  point.medium = MicroMedium::kDram;
  point.persistent = false;
  point.named_rules = persist::Rules::none();
  return point;
}

std::optional<MicroPoint> echo_point(const MicroPoint& measured) {
  if (is_one_sided(measured)) return std::nullopt;
  MicroPoint point = measured;
  point.op = MicroOp::kEcho;
  point.persistent = false;
  point.named_rules = persist::Rules::none();
  return point;
}

// The measurements of one turn; the kinds take turns, so that a machine that slows down slows down
// all of them.
struct Kind {
  const char* name;
  MicroPoint point;
  Turns* rates;
};

std::vector<Kind> kinds_of(const Trial& trial, const Weighing& weighing, Advice& advice) {
  const MicroPoint with = point_of(trial, weighing, true);
  std::vector<Kind> kinds = {{"off", point_of(trial, weighing, false), &advice.off},
                             {"on", with, &advice.on}};
  if (const auto dram = dram_point(with, weighing)) kinds.push_back({"dram", *dram, &advice.dram});
  if (const auto echo = echo_point(with)) kinds.push_back({"echo", *echo, &advice.echo});
  return kinds;
}

Result<Advice> weigh(const Trial& trial, const Weighing& weighing, MicroPlace& place) {
  Advice advice{&trial, {}, {}, {}, {}, {}, {}, false};
  const std::string name = persist::rule_name(trial.rule);
  const std::vector<Kind> kinds = kinds_of(trial, weighing, advice);
  std::vector<MicroCase> cases;
  std::vector<Turns*> rates;  // of each case
  for (uint32_t turn = 0; turn < weighing.turns; ++turn) {
    for (const Kind& kind : kinds) {
      // On a modelled machine, where only the seed differs, once is enough.
      const bool compared = kind.rates == &advice.dram || kind.rates == &advice.echo;
      if (weighing.modelled && compared && turn > 0) continue;
      MicroPoint point = kind.point;
      point.seed += turn;
      // Persistent writes to dram, for instance.
      if (const Status sensible = check_point(point); !sensible) {
        advice.unknown = sensible.error().message;
        return advice;
      }
      cases.push_back({fmt::format("{} {}", name, kind.name), name, kind.name, point, {}});
      rates.push_back(kind.rates);
    }
  }
  PMSTORE_TRY(const std::vector<MicroRow> rows, measure_all(place, cases, true));
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].result) {
      advice.unknown = rows[i].refused;
    } else {
      rates[i]->add(rows[i].result->tally.rate_per_s());
      advice.ordinary_file |= rows[i].result->tally.ordinary_file;
    }
  }
  if (advice.unknown.empty()) advice.known = rate_limits(weighing.limits, kinds[1].point);
  return advice;
}

std::string rate_text(const Turns& turns) {
  if (turns.empty()) return "-";
  return fmt::format("{:.3g} M/s +-{:.0f}%", turns.median() / 1e6, std::ceil(turns.spread() * 100));
}

std::string limit_text(const Advice& one) {
  const auto limit = one.limit();
  if (!limit) return "-";
  return fmt::format("{:.3g} M/s ({}), {:.0f}% reached", limit->per_s / 1e6, limit->name,
                     one.on.median() / limit->per_s * 100);
}

// "h1, h3 (x2.08)": the verdicts in one line.
std::string summary(const std::vector<Advice>& list, std::string_view verdict) {
  std::string text;
  for (const Advice& one : list) {
    if (one.verdict() != verdict) continue;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", persist::rule_name(one.trial->rule));
    if (one.unknown.empty()) text += fmt::format(" (x{:.2f})", one.gain());
  }
  return text.empty() ? "none" : text;
}

// Why it says nothing about persistent memory; empty where it does.
std::string not_nvm(const std::vector<Advice>& list, const Weighing& weighing) {
  if (weighing.medium != MicroMedium::kNvm) {
    return "all went to dram: this says nothing about persistent memory; see --pool, --medium and "
           "--model";
  }
  const bool file =
      std::any_of(list.begin(), list.end(), [](const Advice& one) { return one.ordinary_file; });
  return file
             ? "the pool is an ordinary file: this says nothing about persistent memory; use a DAX "
               "device, or --model"
             : "";
}

void print(const std::vector<Advice>& list, const Weighing& weighing, const MicroPlace& place) {
  TextTable table(3);
  table.row({"rule", "", "request", "without", "with", "gain", "to dram", "limit", ""});
  for (const Advice& one : list) {
    const bool measured = one.unknown.empty();
    const std::string dash = "-";
    table.row({persist::rule_name(one.trial->rule),
               std::string(persist::rule_summary(one.trial->rule)), std::string(one.trial->request),
               measured ? rate_text(one.off) : dash, measured ? rate_text(one.on) : dash,
               measured ? fmt::format("x{:.2f}", one.gain()) : dash,
               measured ? rate_text(one.dram) : dash, measured ? limit_text(one) : dash,
               std::string(one.verdict())});
  }
  print_text(place_text(place) + "\n" + table.text());
  print_text(fmt::format(
      "Median of {} turn{}, +- half of the range from the least to the most.\n"
      "pay here: {}\ncost here: {}\nno difference, or in the noise: {}; {}\n",
      weighing.turns, weighing.turns == 1 ? "" : "s", summary(list, "pays"), summary(list, "costs"),
      summary(list, "no difference"), summary(list, "in the noise")));
  if (const std::string note = not_nvm(list, weighing); !note.empty()) print_text(note + "\n");
  for (const Advice& one : list) {
    if (one.unknown.empty()) continue;
    print_text(
        fmt::format("{} not measured: {}\n", persist::rule_name(one.trial->rule), one.unknown));
  }
}

nlohmann::ordered_json turns_json(const Turns& turns) {
  return {{"median", turns.median()}, {"least", turns.least()}, {"most", turns.most()}};
}

nlohmann::ordered_json row_of(const Advice& one) {
  nlohmann::ordered_json row = {{"rule", persist::rule_name(one.trial->rule)},
                                {"about", persist::rule_summary(one.trial->rule)},
                                {"request", one.trial->request},
                                {"verdict", one.verdict()}};
  if (!one.unknown.empty()) {
    row["why"] = one.unknown;
    return row;
  }
  row["without_per_s"] = turns_json(one.off);
  row["with_per_s"] = turns_json(one.on);
  row["gain"] = one.gain();
  if (!one.dram.empty()) row["to_dram_per_s"] = turns_json(one.dram);
  nlohmann::ordered_json limits = nlohmann::ordered_json::array();
  for (const RateLimit& limit : one.known) {
    limits.push_back({{"name", limit.name}, {"per_s", limit.per_s}});
  }
  if (!one.echo.empty()) limits.push_back({{"name", "echo"}, {"per_s", one.echo.median()}});
  row["limits"] = std::move(limits);
  if (const auto limit = one.limit()) row["reached"] = one.on.median() / limit->per_s;
  return row;
}

void print_as_json(const std::vector<Advice>& list, const Weighing& weighing,
                   const MicroPlace& place) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const Advice& one : list) rows.push_back(row_of(one));
  nlohmann::ordered_json report = {{"place", place.name()},
                                   {"config", place.config()},
                                   {"medium", medium_name(weighing.medium)},
                                   {"turns", weighing.turns}};
  if (const std::string note = not_nvm(list, weighing); !note.empty()) report["note"] = note;
  report["rules"] = std::move(rows);
  print_json(report);
}

Result<MachineLimits> limits_of(const MicroOptions& options) {
  if (options.on_model()) {
    PMSTORE_TRY(model::Parameters parameters, model::named_parameters(options.place.model));
    if (!options.place.model_parameters.empty()) {
      PMSTORE_TRY_STATUS(model::override_parameters(parameters, options.place.model_parameters));
    }
    return model_limits(parameters);
  }
  const bool rdma = options.place.fabric == "verbs" || options.place.uri.starts_with("verbs://");
  const auto regions = persist::list_nvm_regions();
  return host_limits(*ddio::this_machine(), rdma,
                     regions ? *regions : std::vector<persist::NvmRegion>(), options.place.pool);
}

struct AdviseOptions {
  MicroOptions micro;
  uint32_t turns = 0;  // 0: the default
  std::string medium;
};

Result<int> advise(AdviseOptions options, const CLI::App& app) {
  MicroOptions& micro = options.micro;
  PMSTORE_TRY_STATUS(micro.complete(app));
  PMSTORE_TRY(const auto place, micro.open_place());
  const bool nvm = options.medium.empty() ? micro.on_model() || !micro.place.pool.empty()
                                          : options.medium == medium_name(MicroMedium::kNvm);
  Weighing weighing{micro.point,
                    nvm ? MicroMedium::kNvm : MicroMedium::kDram,
                    options.turns != 0 ? options.turns
                    : micro.on_model() ? kModelTurns
                                       : kTurns,
                    micro.on_model(),
                    app.count("--seconds") + app.count("--ops") == 0,
                    app.count("--warmup") + app.count("--ops") == 0,
                    {}};
  PMSTORE_TRY(weighing.limits, limits_of(micro));
  std::vector<Advice> list;
  for (const Trial& trial : kTrials) {
    PMSTORE_TRY(Advice one, weigh(trial, weighing, *place));
    list.push_back(std::move(one));
  }
  if (micro.json) {
    print_as_json(list, weighing, *place);
  } else {
    print(list, weighing, *place);
  }
  return kDone;
}

}  // namespace

void add_tune_advise(CLI::App& tune, Invocation& invocation) {
  CLI::App* const app =
      tune.add_subcommand("advise", "which of the nine rules pay on this machine, and how much");
  auto options = std::make_shared<AdviseOptions>();
  options->micro.seconds = kSeconds;
  options->micro.model_warmup = "as long as the measurement, 0.01 where stores must fill the cache";
  options->micro.add_to(*app);
  app->add_option("--assume-domain", options->micro.assume_domain,
                  "treat the nvm of a server of our own as this persistence domain: none, adr, "
                  "eadr")
      ->check(parsed_by(persist::parse_domain, "DOMAIN"));
  app->add_option("--turns", options->turns,
                  "how often everything is measured (default: 5, with --model 2)")
      ->check(in_range(1, 1000));
  app->add_option("--medium", options->medium,
                  "dram or nvm (default: nvm with --pool and --model, else dram; a server at --uri "
                  "may have both)")
      ->check(parsed_by(parse_medium, "MEDIUM"));
  app->footer(
      "Measures each rule on and off with the code of bench micro, --seconds each (default 0.1), "
      "and says which differences are above the noise (docs/tuning.md). With --model the default "
      "is 0.001 to "
      "0.005 of virtual time, and as much --warmup, 0.01 where stores must fill the cache.\n"
      "Without --pool only dram is measured, which tells little about rules for persistent "
      "memory.\n"
      "example: pmstore tune advise --model optane-cx5\n"
      "example: pmstore tune advise --pool /dev/dax0.0 --seconds 0.2");
  app->callback([options, app, &invocation] {
    invocation.run = [options, app] {
      const Result<int> done = advise(*options, *app);
      return done ? *done : fail_command(kTuneAdvise, done.error());
    };
  });
}

}  // namespace pmstore::tools
