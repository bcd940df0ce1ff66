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
#include <string>
#include <vector>

#include "tests/crash/explorer.h"
#include "tests/crash/mutants/mutation.h"
#include "tests/crash/ring_life.h"

namespace pmstore::crash {
namespace {

constexpr int kCaughtStatus = 10;
constexpr unsigned kSeconds = 600;  // then it hangs

struct Limits {
  uint64_t rounds = 3;
  bool verbose = false;
};

// Lives of all scenarios, until one notices.
int look_for_it(int number, const Limits& limits) {
  const std::string name = mutation::mutants()[static_cast<size_t>(number)].name;
  const bool of_log = name.starts_with("ring.") || name.starts_with("entry.");
  std::vector<Scenario> nearest_first = scenarios();
  std::stable_partition(nearest_first.begin(), nearest_first.end(), [&](const Scenario& scenario) {
    return scenario.name.starts_with("ring") == of_log;
  });
  ExplorerOptions options;
  options.most_failures = 1;
  options.most_samples = 48;
  options.per_point = 128;
  options.inner_every = 64;
  for (uint64_t seed = 0; seed < limits.rounds; ++seed) {
    for (const Scenario& scenario : nearest_first) {
      const auto life = scenario.make(seed);
      Explorer explorer(options);
      if (explorer.explore(*life)) continue;
      const Finding& finding = explorer.report().findings.front();
      if (limits.verbose) fmt::print("  {}\n  {}\n", finding.id, finding.what);
      return kCaughtStatus;
    }
  }
  // What only a certain moment of death shows.
  options.all_deaths = true;
  options.per_point = 1;
  options.most_samples = 1;
  options.per_inner_point = 4;
  options.inner_every = UINT64_MAX / 64;
  const auto life = find_scenario("store")->make(0);
  Explorer explorer(options);
  return explorer.explore(*life) ? 0 : kCaughtStatus;
}

enum class Outcome { kCaught, kEnded, kNotCaught };

Outcome try_mutant(int number, const Limits& limits) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    mutation::active = number;
    alarm(kSeconds);
    if (!limits.verbose && std::freopen("/dev/null", "w", stderr) == nullptr) std::_Exit(1);
    const int status = look_for_it(number, limits);
    std::fflush(stdout);
    std::_Exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return Outcome::kEnded;
  return WEXITSTATUS(status) == kCaughtStatus ? Outcome::kCaught : Outcome::kNotCaught;
}

// What the protocol of remote persistent writes must not be, played by the device of the ring's
// life.
struct WrongProtocol {
  const char* name;
  RingWriter writer;
};
constexpr WrongProtocol kWrongProtocols[] = {
    {"protocol.read_after_write", RingWriter::kDeviceWithoutRead},
    {"protocol.acknowledged_before_the_read", RingWriter::kDeviceBeforeRead},
    {"protocol.one_sided_with_ddio_under_adr", RingWriter::kDeviceLandingInCache},
};

bool notices(const WrongProtocol& protocol) {
  ExplorerOptions options;
  options.most_failures = 1;
  Explorer explorer(options);
  return !explorer.explore(
      *ring_life(protocol.name, 0, persist::Domain::kMemoryController, protocol.writer));
}

int run(int argc, char** argv) {
  CLI::App app(
      "Runs the crash explorer against the product with one flush, drain, check or ordering step "
      "missing. Exit status: 0 every mutant was noticed, 1 one was not, 2 wrong usage.\n"
      "example: crash_mutants --mutant ring.write_header.flush --verbose");
  std::vector<std::string> names;
  Limits limits;
  bool list = false;
  bool redundant_too = false;
  app.add_option("--mutant", names, "only this one; may be given several times");
  app.add_option("--rounds", limits.rounds, "lives of each scenario, at most")
      ->capture_default_str();
  app.add_flag("--redundant", redundant_too, "run those, too, that nothing can notice");
  app.add_flag("--verbose", limits.verbose, "say how each was noticed");
  app.add_flag("--list", list, "only list them");
  CLI11_PARSE(app, argc, argv);
  const auto all = mutation::mutants();
  int total = 0, caught = 0, redundant = 0, open = 0;
  std::vector<std::string> missed;
  for (size_t i = 0; i < all.size(); ++i) {
    const mutation::Mutant& mutant = all[i];
    const bool chosen =
        names.empty() || std::find(names.begin(), names.end(), mutant.name) != names.end();
    if (!chosen) continue;
    ++total;
    if (mutant.stale) {
      fmt::print("{:<12} {}: change tests/crash/mutants/mutants.txt with the source\n", "STALE",
                 mutant.name);
      missed.push_back(mutant.name);
      continue;
    }
    if (list || (mutant.redundant != nullptr && !redundant_too && names.empty())) {
      redundant += mutant.redundant != nullptr ? 1 : 0;
      fmt::print("{:<12} {}{}{}\n", list ? "" : "redundant", mutant.name,
                 mutant.redundant != nullptr ? ": " : "",
                 mutant.redundant != nullptr ? mutant.redundant : "");
      continue;
    }
    if (mutant.open && names.empty()) {
      ++open;
      fmt::print("{:<12} {}\n", "open", mutant.name);
      continue;
    }
    const Outcome outcome = try_mutant(static_cast<int>(i), limits);
    static constexpr const char* kTexts[] = {"caught", "caught: ends", "NOT CAUGHT"};
    fmt::print("{:<12} {}\n", kTexts[static_cast<size_t>(outcome)], mutant.name);
    if (outcome == Outcome::kNotCaught) {
      missed.push_back(mutant.name);
    } else {
      ++caught;
    }
  }
  for (const WrongProtocol& protocol : kWrongProtocols) {
    if (!names.empty() && std::find(names.begin(), names.end(), protocol.name) == names.end()) {
      continue;
    }
    ++total;
    const bool noticed = !list && notices(protocol);
    fmt::print("{:<12} {}\n", list ? "" : noticed ? "caught" : "NOT CAUGHT", protocol.name);
    caught += noticed ? 1 : 0;
    if (!list && !noticed) missed.push_back(protocol.name);
  }
  if (total == 0) {
    fmt::print(stderr, "crash_mutants: there is no such mutant: see --list\n");
    return 2;
  }
  fmt::print("mutants {}, caught {}, redundant {}, open {}, not caught {}\n", total, caught,
             redundant, open, missed.size());
  return missed.empty() ? 0 : 1;
}

}  // namespace
}  // namespace pmstore::crash

int main(int argc, char** argv) { return pmstore::crash::run(argc, argv); }
