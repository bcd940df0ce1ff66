// crash_mutants: removes flushes, drains, checks and ordering steps of the product, one at a time,
// and says whether the explorer notices.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "tests/crash/explorer.h"
#include "tests/crash/mutants/mutation.h"
#include "tests/crash/mutants/runner.h"

namespace pmstore::crash {
namespace {

constexpr unsigned kSeconds = 600;  // then it hangs
constexpr uint64_t kParts = 7;      // of a share of the events, without a mutant

struct Limits {
  uint64_t rounds = 3;
  uint64_t deaths = 64;  // of the process, without a mutant
  uint64_t draw = 0;     // which
  bool verbose = false;
};

// The scenarios that are nearest to a mutant first.
std::vector<Scenario> nearest_first(const mutation::Mutant& mutant, size_t& near) {
  std::vector<Scenario> all = scenarios();
  std::erase_if(all, [](const Scenario& scenario) { return !scenario.for_mutants; });
  const std::string names = fmt::format(" {} ", mutant.near);
  const auto others = std::stable_partition(all.begin(), all.end(), [&](const Scenario& scenario) {
    return names.find(" " + scenario.name + " ") != std::string::npos;
  });
  near = static_cast<size_t>(others - all.begin());
  return all;
}

bool notices(const RecordedRun& run, const ExplorerOptions& options, const Limits& limits) {
  Explorer explorer(options);
  if (explorer.explore(run)) return false;
  const Finding& finding = explorer.report().findings.front();
  if (limits.verbose) fmt::print("  {}\n  {}\n", finding.id, finding.what);
  return true;
}

bool notices(const Scenario& scenario, uint64_t seed, const ExplorerOptions& options,
             const Limits& limits) {
  return notices(*scenario.make(seed), options, limits);
}

struct Looks {
  ExplorerOptions quick, thorough, few_deaths, deaths;

  Looks() {
    quick.most_failures = 1;
    quick.most_samples = 8;
    quick.per_point = 16;
    quick.inner_every = UINT64_MAX / 64;
    quick.process_deaths = false;
    thorough.most_failures = 1;
    thorough.most_samples = 48;
    thorough.per_point = 128;
    thorough.inner_every = 64;
    deaths = quick;
    deaths.most_samples = 1;
    deaths.per_point = 1;
    deaths.per_inner_point = 4;
    deaths.process_deaths = true;
    deaths.most_deaths = UINT64_MAX;
    few_deaths = deaths;
    few_deaths.most_deaths = 64;
  }
};

// First a quick look at what is near, which is enough for most, also at some deaths of the process;
// then a thorough one, and what only a certain moment of death shows; then all runs.
bool look_for_it(const mutation::Mutant& mutant, const Limits& limits) {
  const Looks looks;
  size_t near = 0;
  const std::vector<Scenario> order = nearest_first(mutant, near);
  for (const ExplorerOptions* look :
       {&looks.quick, &looks.few_deaths, &looks.thorough, &looks.deaths}) {
    for (size_t i = 0; i < near; ++i) {
      if (look->process_deaths && !order[i].deaths_for_mutants) continue;
      if (notices(order[i], 0, *look, limits)) return true;
    }
  }
  for (uint64_t seed = 0; seed < limits.rounds; ++seed) {
    for (size_t i = seed == 0 ? near : 0; i < order.size(); ++i) {
      if (notices(order[i], seed, looks.thorough, limits)) return true;
    }
  }
  return false;
}

// A scenario that finds something wrong with the product as it is would seem to catch every mutant.
// All deaths of a long run take many minutes, and a mutant is mostly noticed after few: some of
// them, others for each draw, are enough here. A share of the mutants goes with a seventh of that
// share of the events, again another one for each draw: crash.explorer tries the same scenarios.
bool finds_nothing_without_mutant(Limits limits, const tests::Share& share) {
  limits.verbose = true;
  Looks looks;
  looks.deaths.most_deaths = limits.deaths;
  looks.deaths.draw = limits.draw;
  for (ExplorerOptions* look : {&looks.quick, &looks.thorough}) {
    look->share = share.number + (share.of > 1 ? limits.draw % kParts * share.of : 0);
    look->shares = share.of > 1 ? kParts * share.of : 1;
  }
  // The draw chooses among the deaths already.
  looks.deaths.share = share.number;
  looks.deaths.shares = share.of;
  for (const Scenario& scenario : scenarios()) {
    if (!scenario.for_mutants) continue;
    for (uint64_t seed = 0; seed < limits.rounds; ++seed) {
      const auto run = scenario.make(seed);
      if (notices(*run, looks.thorough, limits)) return false;
      if (seed > 0) continue;
      if (notices(*run, looks.quick, limits)) return false;
      if (scenario.deaths_for_mutants && notices(*run, looks.deaths, limits)) return false;
    }
  }
  return true;
}

int run(int argc, char** argv) {
  CLI::App app(
      "Runs the crash explorer against the product with one flush, drain, check or ordering step "
      "missing. Exit status: 0 every mutant was noticed, 1 one was not, 2 wrong usage.\n"
      "example: crash_mutants --mutant ring.write_header.flush --verbose");
  Limits limits;
  app.add_option("--rounds", limits.rounds, "runs of each scenario, at most")
      ->capture_default_str();
  app.add_option("--deaths", limits.deaths,
                 "without a mutant, deaths of the process in a run of each scenario, at most")
      ->check(CLI::Range(1, INT32_MAX))
      ->capture_default_str();
  app.add_option("--draw", limits.draw,
                 "without a mutant, which deaths, and which part of the events of a share")
      ->capture_default_str();
  const mutation::Runner runner{
      "crash_mutants", "tests/crash/mutants/mutants.txt", kSeconds,
      [&](const tests::Share& share) { return finds_nothing_without_mutant(limits, share); },
      [&](const mutation::Mutant& mutant, bool verbose) {
        limits.verbose = verbose;
        return look_for_it(mutant, limits);
      }};
  return mutation::run_mutants(runner, app, argc, argv);
}

}  // namespace
}  // namespace pmstore::crash

int main(int argc, char** argv) { return pmstore::crash::run(argc, argv); }
