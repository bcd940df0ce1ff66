#include "tests/mutants/unit_mutants.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include "base/check.h"
#include "tests/crash/mutants/mutation.h"
#include "tests/crash/mutants/runner.h"

namespace pmstore::mutation {
namespace {

constexpr unsigned kSeconds = 2;  // then it hangs, unless its tests take long without a mutant
// So many times what they take, beside that; and what they may take where it was not measured.
constexpr unsigned kLonger = 4;
constexpr unsigned kSecondsUnknown = 20;
// Of a test that runs a mutant, since most are noticed by something that does not come. Without a
// mutant a test has the usual patience: a busy machine must not seem to be a fault.
constexpr const char* kPatienceSeconds = "5";

// Everything where the list names no tests.
std::string filter_of(const Mutant& mutant) { return *mutant.near == 0 ? "*" : mutant.near; }

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// The processor time of each test without a mutant, in memory that the processes share. What a
// mutant's tests may take follows from it, so that a long test does not seem to hang.
class TestTimes {
 public:
  TestTimes() {
    const testing::UnitTest& all = *testing::UnitTest::GetInstance();
    for (int i = 0; i < all.total_test_suite_count(); ++i) {
      const testing::TestSuite& suite = *all.GetTestSuite(i);
      for (int j = 0; j < suite.total_test_count(); ++j) {
        numbers_.emplace(suite.GetTestInfo(j), numbers_.size());
      }
    }
    void* const shared = mmap(nullptr, numbers_.size() * sizeof(double), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    PMSTORE_CHECK(shared != MAP_FAILED, "there is memory for the times of the tests");
    seconds_ = static_cast<double*>(shared);  // stays as long as this process
  }
  double& of(const testing::TestInfo& test) const { return seconds_[numbers_.at(&test)]; }
  // Of the tests that are about to run.
  double of_chosen() const {
    double all = 0;
    for (const auto& [test, number] : numbers_) all += test->should_run() ? seconds_[number] : 0;
    return all;
  }

 private:
  std::map<const testing::TestInfo*, size_t> numbers_;
  double* seconds_ = nullptr;
};

class Measures final : public testing::EmptyTestEventListener {
 public:
  explicit Measures(const TestTimes& times) : times_(times) {}
  void OnTestStart(const testing::TestInfo&) override { began_ = processor_seconds(); }
  void OnTestEnd(const testing::TestInfo& test) override {
    times_.of(test) = processor_seconds() - began_;
  }

 private:
  const TestTimes& times_;
  double began_ = 0;
};

class Allows final : public testing::EmptyTestEventListener {
 public:
  explicit Allows(const TestTimes& times) : times_(times) {}
  void OnTestProgramStart(const testing::UnitTest&) override {
    const double usual = times_.of_chosen();
    const auto seconds =
        usual == 0 ? kSecondsUnknown : kSeconds + static_cast<unsigned>(kLonger * usual);
    rlimit now{};
    getrlimit(RLIMIT_CPU, &now);
    if (seconds > now.rlim_cur) limit_time(seconds);
  }

 private:
  const TestTimes& times_;
};

// Takes the listener over.
bool fails(const std::string& filter, bool verbose, testing::TestEventListener* listener) {
  if (!verbose && std::freopen("/dev/null", "w", stdout) == nullptr) std::_Exit(1);
  GTEST_FLAG_SET(filter, filter);
  GTEST_FLAG_SET(fail_fast, true);
  testing::UnitTest::GetInstance()->listeners().Append(listener);
  return RUN_ALL_TESTS() != 0;
}

// The tests of the mutants of this share, in a process of its own, like the mutants.
bool finds_nothing(const tests::Share& share, const TestTimes& times) {
  std::set<std::string> filters;
  for (size_t i = 0; i < mutants().size(); ++i) {
    if (share.has(i)) filters.insert(filter_of(mutants()[i]));
  }
  std::string all;
  for (const std::string& filter : filters) all += filter + ":";
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) std::_Exit(fails(all, true, new Measures(times)) ? 1 : 0);
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
  // In this process; in virtual time, unless the caller wants it otherwise.
  setenv("PMSTORE_TEST_FABRIC", "model", 0);
  int no_arguments = 1;
  testing::InitGoogleTest(&no_arguments, argv);
  const TestTimes times;
  const Runner runner{
      .program = name,
      .list = list,
      .seconds = kSeconds,
      .finds_nothing = [&](const tests::Share& share) { return finds_nothing(share, times); },
      .notices =
          [&](const Mutant& mutant, bool verbose) {
            setenv("PMSTORE_TEST_PATIENCE_S", kPatienceSeconds, 1);
            return fails(filter.empty() ? filter_of(mutant) : filter, verbose, new Allows(times));
          },
      .may_differ = true};
  return run_mutants(runner, app, argc, argv);
}

}  // namespace pmstore::mutation
