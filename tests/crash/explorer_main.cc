// crash_explorer: cuts the power at every moment of many recorded runs, and prints the findings.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "tests/crash/explorer.h"
#include "tests/crash/share.h"

namespace pmstore::crash {
namespace {

const Explorer* running = nullptr;

// A CHECK that fails during recovery ends the program: say at least in which state.
void on_abort(int) {
  if (running != nullptr) {
    std::fprintf(stderr, "failed: %s\n  the program ended\n  replay: crash_explorer --replay %s\n",
                 running->current().c_str(), running->current().c_str());
  }
  std::_Exit(1);
}

int replay(const std::string& text) {
  const auto id = StateId::parse(text);
  const Scenario* scenario = id ? find_scenario(id->scenario) : nullptr;
  if (scenario == nullptr) {
    fmt::print(stderr, "crash_explorer: {} names no state: use what a report says\n", text);
    return 2;
  }
  const auto run = scenario->make(id->seed);
  Explorer explorer({});
  running = &explorer;
  std::string narrative;
  const auto wrong = explorer.replay(*run, run->trace(), *id, narrative);
  if (!wrong) {
    fmt::print(stderr, "crash_explorer: {}\n", wrong.error().message);
    return 2;
  }
  fmt::print("{}{}\n", narrative, *wrong ? "failed" : "right");
  return *wrong ? 1 : 0;
}

// Where neither --runs nor --states is given.
constexpr uint64_t kUsualStates = 100'000;

// One run of each scenario after the other, until a round ends with enough states.
int explore(const std::vector<const Scenario*>& chosen, const ExplorerOptions& options,
            uint64_t first_seed, uint64_t runs, uint64_t states) {
  const auto start = std::chrono::steady_clock::now();
  Explorer explorer(options);
  running = &explorer;
  const ExplorerReport& report = explorer.report();
  bool go_on = true;
  for (uint64_t i = 0; go_on && i < runs && report.distinct < states; ++i) {
    for (const Scenario* scenario : chosen) {
      const ExplorerReport before = report;
      const auto run = scenario->make(first_seed + i);
      go_on = explorer.explore(*run);
      fmt::print(stderr, "{}:{}: {} events, {} states, {} distinct\n", scenario->name, run->seed(),
                 report.points - before.points, report.explored - before.explored,
                 report.distinct - before.distinct);
      if (!go_on) break;
    }
  }
  for (const Finding& finding : report.findings) {
    fmt::print("failed: {}\n  {}\n  replay: crash_explorer --replay {}\n", finding.id, finding.what,
               finding.id);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  fmt::print(
      "runs {}, power cuts at {} events, second runs {}, deaths of the process {}, "
      "recoveries {}, {:.1f} s\n",
      report.runs, report.points, report.second_runs, report.process_deaths, report.recovered,
      took.count());
  fmt::print("states explored {}, distinct {}, failures {}\n", report.explored, report.distinct,
             report.findings.size());
  return report.findings.empty() ? 0 : 1;
}

int run(int argc, char** argv) {
  CLI::App app(
      "Cuts the power at every event of recorded runs, in every way that the memory allows, "
      "starts "
      "again on what is left and compares it with what was acknowledged. Exit status: 0 all right, "
      "1 something was wrong, 2 wrong usage.\n"
      "example: crash_explorer --states 1000000\n"
      "example: crash_explorer --replay ring:3/120/2.0.8x5");
  ExplorerOptions options;
  std::vector<std::string> names;
  std::string id;
  std::optional<uint64_t> states;
  uint64_t first_seed = 0;
  uint64_t runs = UINT64_MAX;
  bool list = false;
  tests::Share share;
  app.add_option("--states", states,
                 "go on, round after round, to so many distinct states (100000 without --runs)");
  app.add_option("--scenario", names, "only this one; may be given several times");
  app.add_option("--seed", first_seed, "of the first round's runs; 0 is a script, others are drawn")
      ->capture_default_str();
  app.add_option("--runs", runs, "end after so many rounds: one run of each scenario");
  app.add_option("--per-event", options.per_point, "combinations of stores at each event, at most")
      ->capture_default_str();
  tests::add_share(app, share, "events of each run");
  app.add_option("--replay", id, "make one state once more and tell how it goes");
  app.add_flag("--list", list, "only list the scenarios");
  CLI11_PARSE(app, argc, argv);
  std::signal(SIGABRT, on_abort);
  std::signal(SIGSEGV, on_abort);
  if (list) {
    for (const Scenario& scenario : scenarios()) {
      fmt::print("{:<12} {}\n", scenario.name, scenario.about);
    }
    return 0;
  }
  if (!id.empty()) return replay(id);
  std::vector<const Scenario*> chosen;
  for (const std::string& name : names) {
    chosen.push_back(find_scenario(name));
    if (chosen.back() == nullptr) {
      fmt::print(stderr, "crash_explorer: there is no scenario {}: see --list\n", name);
      return 2;
    }
  }
  if (names.empty()) {
    for (const Scenario& scenario : scenarios()) chosen.push_back(&scenario);
  }
  options.share = share.number;
  options.shares = share.of;
  if (!states) states = runs == UINT64_MAX ? kUsualStates : UINT64_MAX;
  return explore(chosen, options, first_seed, runs, *states);
}

}  // namespace
}  // namespace pmstore::crash

int main(int argc, char** argv) { return pmstore::crash::run(argc, argv); }
