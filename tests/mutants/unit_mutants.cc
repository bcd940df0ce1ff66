#include "tests/mutants/unit_mutants.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "tests/crash/mutants/mutation.h"
#include "tests/crash/mutants/runner.h"

namespace pmstore::mutation {
namespace {

constexpr unsigned kSeconds = 2;  // then it hangs; none of the tests takes one
// Of a test that runs a mutant, since most are noticed by something that does not come. Without a
// mutant a test has the usual patience: a busy machine must not seem to be a fault.
constexpr const char* kPatienceSeconds = "5";

// Everything where the list names no tests.
std::string filter_of(const Mutant& mutant) { return *mutant.near == 0 ? "*" : mutant.near; }

bool fails(const std::string& filter, bool verbose) {
  if (!verbose && std::freopen("/dev/null", "w", stdout) == nullptr) std::_Exit(1);
  GTEST_FLAG_SET(filter, filter);
  GTEST_FLAG_SET(fail_fast, true);
  return RUN_ALL_TESTS() != 0;
}

// The tests of the mutants of this share, in a process of its own, like the mutants.
bool finds_nothing(const tests::Share& share) {
  std::set<std::string> filters;
  for (size_t i = 0; i < mutants().size(); ++i) {
    if (share.has(i)) filters.insert(filter_of(mutants()[i]));
  }
  std::string all;
  for (const std::string& filter : filters) all += filter + ":";
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) std::_Exit(fails(all, true) ? 1 : 0);
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

}  // namespace

int run_unit_mutants(const char* name, const char* list, int argc, char** argv) {
  CLI::App app(
      "Runs tests against the product with one small change each. Exit status: 0 every mutant was "
      "noticed, 1 one was not, 2 wrong usage.\n"
      "example: --mutant NAME --verbose");
  std::string filter;
  app.add_option("--tests", filter, "these tests instead of those that the list names");
  const Runner runner{name, list, kSeconds, finds_nothing, [&](const Mutant& mutant, bool verbose) {
                        setenv("PMSTORE_TEST_PATIENCE_S", kPatienceSeconds, 1);
                        return fails(filter.empty() ? filter_of(mutant) : filter, verbose);
                      }};
  // In this process; in virtual time, unless the caller wants it otherwise.
  setenv("PMSTORE_TEST_FABRIC", "model", 0);
  int no_arguments = 1;
  testing::InitGoogleTest(&no_arguments, argv);
  return run_mutants(runner, app, argc, argv);
}

}  // namespace pmstore::mutation
