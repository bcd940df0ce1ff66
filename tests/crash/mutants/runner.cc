#include "tests/crash/mutants/runner.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pmstore::mutation {
namespace {

constexpr int kCaughtStatus = 10;
constexpr unsigned kAsleep = 10;  // so many times its processor time a process may take in all

struct Options {
  std::vector<std::string> names;
  size_t jobs = 2;       // processes at a time
  unsigned seconds = 0;  // as Runner::seconds
  tests::Share share;
  bool list = false;
  bool sound = false;
  bool redundant_too = false;
  bool skip_long = false;
  bool verbose = false;
};

// ---- processes ----

enum class Outcome { kCaught, kEnded, kHangs, kNotCaught };

struct Ended {
  Outcome outcome;
  time_t seconds;  // of processor time
};

pid_t start_process(const Runner& runner, int number, const Options& options) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child != 0) return child;
  active = number;
  limit_time(options.seconds);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  if (!options.verbose) {
    if (std::freopen("/dev/null", "w", stderr) == nullptr) std::_Exit(1);
    // As it was: what is said before an abort must reach a test that expects it.
    std::setvbuf(stderr, nullptr, _IONBF, 0);
  }
  const bool caught = runner.notices(mutants()[static_cast<size_t>(number)], options.verbose);
  std::fflush(stdout);
  std::_Exit(caught ? kCaughtStatus : 0);
}

Outcome outcome_of(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return signal == SIGXCPU || signal == SIGALRM ? Outcome::kHangs : Outcome::kEnded;
  }
  const int code = WEXITSTATUS(status);
  return code == 0               ? Outcome::kNotCaught
         : code == kCaughtStatus ? Outcome::kCaught
                                 : Outcome::kEnded;
}

// Tries these mutants, some at a time, and tells of their outcomes in their order.
void try_mutants(const Runner& runner, const std::vector<int>& numbers, const Options& options,
                 const std::function<void(size_t, const Ended&)>& tell) {
  std::vector<std::optional<Ended>> outcomes(numbers.size());
  std::map<pid_t, size_t> running;
  size_t next = 0;
  for (size_t told = 0; told < numbers.size();) {
    if (next < numbers.size() && running.size() < options.jobs) {
      running.emplace(start_process(runner, numbers[next], options), next);
      ++next;
      continue;
    }
    int status = 0;
    rusage used{};
    const auto ended = running.find(wait4(-1, &status, 0, &used));
    if (ended == running.end()) continue;
    outcomes[ended->second] = {outcome_of(status), used.ru_utime.tv_sec + used.ru_stime.tv_sec};
    running.erase(ended);
    for (; told < numbers.size() && outcomes[told]; ++told) tell(told, *outcomes[told]);
  }
}

struct Counts {
  int total = 0, caught = 0, redundant = 0, open = 0, skipped = 0;
  int elsewhere = 0;  // in another share
  int second = 0;     // caught, but not by the first run
  std::vector<std::string> missed;

  // Gives whether it was caught.
  bool add(const Ended& ended, const char* name) {
    static constexpr time_t kLong = 20;  // seconds: what takes longer is worth a look
    static constexpr const char* kTexts[] = {"caught", "caught: ends", "caught: hangs",
                                             "NOT CAUGHT"};
    const auto took = ended.seconds < kLong ? "" : fmt::format(" ({} s)", ended.seconds);
    fmt::print("{:<13} {}{}\n", kTexts[static_cast<size_t>(ended.outcome)], name, took);
    std::fflush(stdout);
    const bool noticed = ended.outcome != Outcome::kNotCaught;
    if (noticed) ++caught;
    return noticed;
  }
};

bool is_chosen(const std::vector<std::string>& names, const char* name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

// Says what there is to say of those that are not tried, and gives the others.
std::vector<int> sort_out(const Runner& runner, const Options& options, Counts& counts) {
  std::vector<int> tried;
  const auto all = mutants();
  for (size_t i = 0; i < all.size(); ++i) {
    const Mutant& mutant = all[i];
    if (!is_chosen(options.names, mutant.name)) continue;
    ++counts.total;
    const bool redundant = mutant.redundant != nullptr;
    if (options.list) {
      fmt::print("{}{}{}\n", mutant.name, redundant ? ": " : "", redundant ? mutant.redundant : "");
    } else if (mutant.stale) {
      fmt::print("{:<13} {}: change {} with the source\n", "STALE", mutant.name, runner.list);
      counts.missed.emplace_back(mutant.name);
    } else if (redundant && !options.redundant_too && options.names.empty()) {
      ++counts.redundant;
      fmt::print("{:<13} {}: {}\n", "redundant", mutant.name, mutant.redundant);
    } else if (mutant.open && options.names.empty()) {
      ++counts.open;
      fmt::print("{:<13} {}\n", "open", mutant.name);
    } else if (mutant.slow && options.skip_long) {
      ++counts.skipped;
      fmt::print("{:<13} {}\n", "long", mutant.name);
    } else if (options.share.has(i)) {
      tried.push_back(static_cast<int>(i));
    } else {
      ++counts.elsewhere;
    }
  }
  return tried;
}

// Those that were not caught run once more, with nothing beside them: a few are noticed only where
// threads meet in one way, and a busy machine may keep them apart.
void try_all(const Runner& runner, const std::vector<int>& tried, const Options& options,
             Counts& counts) {
  const auto name_of = [&](int number) { return mutants()[static_cast<size_t>(number)].name; };
  std::vector<int> again;
  try_mutants(runner, tried, options, [&](size_t i, const Ended& ended) {
    if (!counts.add(ended, name_of(tried[i]))) again.push_back(tried[i]);
  });
  if (!runner.may_differ) {
    for (const int number : again) counts.missed.emplace_back(name_of(number));
    return;
  }
  if (again.empty()) return;
  fmt::print("once more, one at a time, {} that were not caught:\n", again.size());
  Options alone = options;
  alone.jobs = 1;
  try_mutants(runner, again, alone, [&](size_t i, const Ended& ended) {
    if (counts.add(ended, name_of(again[i]))) {
      ++counts.second;
    } else {
      counts.missed.emplace_back(name_of(again[i]));
    }
  });
}

}  // namespace

void limit_time(unsigned seconds) {
  const rlimit processor{seconds, RLIM_INFINITY};
  if (setrlimit(RLIMIT_CPU, &processor) != 0) std::_Exit(1);
  alarm(kAsleep * seconds);
}

int run_mutants(const Runner& runner, CLI::App& app, int argc, char** argv) {
  Options options;
  options.seconds = runner.seconds;
  app.add_option("--mutant", options.names, "only this one; may be given several times");
  app.add_option("--jobs", options.jobs, "so many at a time")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds,
                 "processor time of a mutant, a tenth of what it may take; then it hangs")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  tests::add_share(app, options.share, "mutants, and of the runs without a mutant");
  app.add_flag("--redundant", options.redundant_too, "run those, too, that nothing can notice");
  app.add_flag("--skip-long", options.skip_long, "leave those out that take minutes to notice");
  app.add_flag("--verbose", options.verbose, "say how each was noticed");
  app.add_flag("--sound", options.sound, "do not look first whether the product passes without");
  app.add_flag("--list", options.list, "only list them");
  CLI11_PARSE(app, argc, argv);
  Counts counts;
  const std::vector<int> tried = sort_out(runner, options, counts);
  if (!options.list && !options.sound && !runner.finds_nothing(options.share)) {
    fmt::print(stderr, "{}: the product fails without any mutant: mend that first\n",
               runner.program);
    return 1;
  }
  try_all(runner, tried, options, counts);
  if (counts.total == 0) {
    fmt::print(stderr, "{}: there is no such mutant: see --list\n", runner.program);
    return 2;
  }
  if (options.list) return 0;
  for (const std::string& name : counts.missed) fmt::print("{:<13} {}\n", "FAILED:", name);
  fmt::print(
      "mutants {}, caught {} ({} by a second run), redundant {}, open {}, long {}, in other shares "
      "{}, not caught {}\n",
      counts.total, counts.caught, counts.second, counts.redundant, counts.open, counts.skipped,
      counts.elsewhere, counts.missed.size());
  return counts.missed.empty() ? 0 : 1;
}

}  // namespace pmstore::mutation
