// service_mutants: makes small changes of the product's services and clients, one at a time, and
// says whether the unit tests notice.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>

#include "tests/crash/mutants/mutation.h"
#include "tests/crash/mutants/runner.h"
#include "tests/scenario/harness.h"
#include "tests/scenario/log/log_role.h"
#include "tests/scenario/store/store_role.h"

namespace pmstore::mutation {
namespace {

constexpr unsigned kSeconds = 2;  // then it hangs; none of the tests takes one

// Everything where the list names no tests.
std::string filter_of(const Mutant& mutant) { return *mutant.near == 0 ? "*" : mutant.near; }

bool fails(const std::string& filter, bool verbose) {
  if (!verbose && std::freopen("/dev/null", "w", stdout) == nullptr) std::_Exit(1);
  GTEST_FLAG_SET(filter, filter);
  GTEST_FLAG_SET(fail_fast, true);
  return RUN_ALL_TESTS() != 0;
}

// In a process of its own, like the mutants.
bool finds_nothing(const tests::Share&) {
  std::set<std::string> filters;
  for (const Mutant& mutant : mutants()) filters.insert(filter_of(mutant));
  std::string all;
  for (const std::string& filter : filters) all += filter + ":";
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) std::_Exit(fails(all, true) ? 1 : 0);
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

int run(int argc, char** argv) {
  CLI::App app(
      "Runs unit tests against services and clients with one small change each. Exit status: 0 "
      "every mutant was noticed, 1 one was not, 2 wrong usage.\n"
      "example: service_mutants --mutant outcome.of_resolving --verbose");
  std::string filter;
  app.add_option("--tests", filter, "these tests instead of those that the list names");
  const Runner runner{"service_mutants", "tests/mutants/service_mutants.txt", kSeconds,
                      finds_nothing, [&](const Mutant& mutant, bool verbose) {
                        return fails(filter.empty() ? filter_of(mutant) : filter, verbose);
                      }};
  // In this process; in virtual time, unless the caller wants it otherwise.
  setenv("PMSTORE_TEST_FABRIC", "model", 0);
  setenv("PMSTORE_TEST_PATIENCE_S", "5", 1);
  scenario::register_role("store", []() -> std::unique_ptr<scenario::Role> {
    return std::make_unique<scenario::StoreRole>();
  });
  scenario::register_role("logs", []() -> std::unique_ptr<scenario::Role> {
    return std::make_unique<scenario::LogRole>();
  });
  int no_arguments = 1;
  testing::InitGoogleTest(&no_arguments, argv);
  return run_mutants(runner, app, argc, argv);
}

}  // namespace
}  // namespace pmstore::mutation

int main(int argc, char** argv) { return pmstore::mutation::run(argc, argv); }
