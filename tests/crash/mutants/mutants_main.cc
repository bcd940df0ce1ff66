// crash_mutants: removes flushes, drains, checks and ordering steps of the product, one at a time,
// and says whether the explorer notices. Each mutant runs in a process of its own, since it may end
// or hang it.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/crash/explorer.h"
#include "tests/crash/mutants/mutation.h"

namespace pmstore::crash {
namespace {

constexpr int kCaughtStatus = 10;
constexpr unsigned kSeconds = 600;  // then it hangs

struct Limits {
  uint64_t rounds = 3;
  size_t jobs = 2;  // processes at a time
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

bool notices(const Scenario& scenario, uint64_t seed, const ExplorerOptions& options,
             const Limits& limits) {
  const auto life = scenario.make(seed);
  Explorer explorer(options);
  if (explorer.explore(*life)) return false;
  const Finding& finding = explorer.report().findings.front();
  if (limits.verbose) fmt::print("  {}\n  {}\n", finding.id, finding.what);
  return true;
}

struct Looks {
  ExplorerOptions quick, thorough, deaths;

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
    deaths.all_deaths = true;
  }
};

// First a quick look at what is near, which is enough for most; then a thorough one, and what only
// a certain moment of death shows; then all lives.
bool look_for_it(const mutation::Mutant& mutant, const Limits& limits) {
  const Looks looks;
  size_t near = 0;
  const std::vector<Scenario> order = nearest_first(mutant, near);
  for (const ExplorerOptions* look : {&looks.quick, &looks.thorough, &looks.deaths}) {
    for (size_t i = 0; i < near; ++i) {
      if (look == &looks.deaths && !order[i].deaths_for_mutants) continue;
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

// What finds something wrong with the product as it is would seem to catch every mutant.
bool finds_nothing_without_mutant(Limits limits) {
  limits.verbose = true;
  const Looks looks;
  for (const Scenario& scenario : scenarios()) {
    if (!scenario.for_mutants) continue;
    for (uint64_t seed = 0; seed < limits.rounds; ++seed) {
      if (notices(scenario, seed, looks.thorough, limits)) return false;
    }
    if (notices(scenario, 0, looks.quick, limits)) return false;
    if (scenario.deaths_for_mutants && notices(scenario, 0, looks.deaths, limits)) return false;
  }
  return true;
}

// ---- processes ----

enum class Outcome { kCaught, kEnded, kNotCaught };

pid_t start_process(int number, const Limits& limits) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child != 0) return child;
  mutation::active = number;
  alarm(kSeconds);
  if (!limits.verbose && std::freopen("/dev/null", "w", stderr) == nullptr) std::_Exit(1);
  const bool caught = look_for_it(mutation::mutants()[static_cast<size_t>(number)], limits);
  std::fflush(stdout);
  std::_Exit(caught ? kCaughtStatus : 0);
}

// Tries these mutants, some at a time, and tells of their outcomes in their order.
void try_mutants(const std::vector<int>& numbers, const Limits& limits,
                 const std::function<void(size_t, Outcome)>& tell) {
  std::vector<std::optional<Outcome>> outcomes(numbers.size());
  std::map<pid_t, size_t> running;
  size_t next = 0;
  for (size_t told = 0; told < numbers.size();) {
    if (next < numbers.size() && running.size() < limits.jobs) {
      running.emplace(start_process(numbers[next], limits), next);
      ++next;
      continue;
    }
    int status = 0;
    const auto ended = running.find(wait(&status));
    if (ended == running.end()) continue;
    outcomes[ended->second] = !WIFEXITED(status)                     ? Outcome::kEnded
                              : WEXITSTATUS(status) == 0             ? Outcome::kNotCaught
                              : WEXITSTATUS(status) == kCaughtStatus ? Outcome::kCaught
                                                                     : Outcome::kEnded;
    running.erase(ended);
    for (; told < numbers.size() && outcomes[told]; ++told) tell(told, *outcomes[told]);
  }
}

struct Counts {
  int total = 0, caught = 0, redundant = 0, open = 0;
  std::vector<std::string> missed;

  void add(Outcome outcome, const char* name) {
    static constexpr const char* kTexts[] = {"caught", "caught: ends", "NOT CAUGHT"};
    fmt::print("{:<12} {}\n", kTexts[static_cast<size_t>(outcome)], name);
    std::fflush(stdout);
    if (outcome == Outcome::kNotCaught) {
      missed.emplace_back(name);
    } else {
      ++caught;
    }
  }
};

bool is_chosen(const std::vector<std::string>& names, const char* name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

// Says what there is to say of those that are not tried, and gives the others.
std::vector<int> sort_out(const std::vector<std::string>& names, bool redundant_too, bool list,
                          Counts& counts) {
  std::vector<int> tried;
  const auto all = mutation::mutants();
  for (size_t i = 0; i < all.size(); ++i) {
    const mutation::Mutant& mutant = all[i];
    if (!is_chosen(names, mutant.name)) continue;
    ++counts.total;
    const bool redundant = mutant.redundant != nullptr;
    if (list) {
      fmt::print("{}{}{}\n", mutant.name, redundant ? ": " : "", redundant ? mutant.redundant : "");
    } else if (mutant.stale) {
      fmt::print("{:<12} {}: change tests/crash/mutants/mutants.txt with the source\n", "STALE",
                 mutant.name);
      counts.missed.emplace_back(mutant.name);
    } else if (redundant && !redundant_too && names.empty()) {
      ++counts.redundant;
      fmt::print("{:<12} {}: {}\n", "redundant", mutant.name, mutant.redundant);
    } else if (mutant.open && names.empty()) {
      ++counts.open;
      fmt::print("{:<12} {}\n", "open", mutant.name);
    } else {
      tried.push_back(static_cast<int>(i));
    }
  }
  return tried;
}

int run(int argc, char** argv) {
  CLI::App app(
      "Runs the crash explorer against the product with one flush, drain, check or ordering step "
      "missing. Exit status: 0 every mutant was noticed, 1 one was not, 2 wrong usage.\n"
      "example: crash_mutants --mutant ring.write_header.flush --verbose");
  std::vector<std::string> names;
  Limits limits;
  bool list = false;
  bool sound = false;
  bool redundant_too = false;
  app.add_option("--mutant", names, "only this one; may be given several times");
  app.add_option("--rounds", limits.rounds, "lives of each scenario, at most")
      ->capture_default_str();
  app.add_option("--jobs", limits.jobs, "so many at a time")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_flag("--redundant", redundant_too, "run those, too, that nothing can notice");
  app.add_flag("--verbose", limits.verbose, "say how each was noticed");
  app.add_flag("--sound", sound, "do not look first whether the product is right without them");
  app.add_flag("--list", list, "only list them");
  CLI11_PARSE(app, argc, argv);
  Counts counts;
  const std::vector<int> tried = sort_out(names, redundant_too, list, counts);
  if (!list && !sound && !finds_nothing_without_mutant(limits)) {
    fmt::print(stderr, "crash_mutants: the product fails without any mutant: mend that first\n");
    return 1;
  }
  try_mutants(tried, limits, [&](size_t i, Outcome outcome) {
    counts.add(outcome, mutation::mutants()[static_cast<size_t>(tried[i])].name);
  });
  if (counts.total == 0) {
    fmt::print(stderr, "crash_mutants: there is no such mutant: see --list\n");
    return 2;
  }
  if (list) return 0;
  fmt::print("mutants {}, caught {}, redundant {}, open {}, not caught {}\n", counts.total,
             counts.caught, counts.redundant, counts.open, counts.missed.size());
  return counts.missed.empty() ? 0 : 1;
}

}  // namespace
}  // namespace pmstore::crash

int main(int argc, char** argv) { return pmstore::crash::run(argc, argv); }
