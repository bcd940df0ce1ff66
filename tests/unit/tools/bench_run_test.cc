// What a run of several coroutines ends with when more than one of them fails.
#include "tools/bench/bench_run.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tools/daemon/pool_service.h"

namespace pmstore::tools {
namespace {

// Coroutine n ends, after the ones before it, with errors[n].
class Failing final : public Bench {
 public:
  explicit Failing(std::vector<ErrorCode> errors) : errors_(std::move(errors)) {}
  Task<Status> prepare(Client&) override { co_return Status{}; }
  Task<Status> work(Client& client, uint32_t, uint32_t coroutine, BenchControl&) override {
    while (ended_ < coroutine) co_await client.executor().sleep_for(1000);
    ++ended_;
    co_return make_error(errors_[coroutine], "of coroutine " + std::to_string(coroutine));
  }
  Task<Status> finish(Client&) override { co_return Status{}; }
  std::string progress(double) override { return {}; }

 private:
  std::vector<ErrorCode> errors_;
  uint32_t ended_ = 0;
};

class BenchRuns : public testing::Test {
 protected:
  void SetUp() override {
    unlink(path_.c_str());
    ASSERT_TRUE(create_store(path_, 32u << 20, {}, {}, false));
  }
  void TearDown() override { unlink(path_.c_str()); }

  Error end_of(const std::vector<ErrorCode>& errors) {
    BenchOptions options;
    options.session.uri = "local:" + path_;
    options.coroutines = static_cast<uint32_t>(errors.size());
    Failing bench(errors);
    const auto run = run_bench(bench, options);
    EXPECT_FALSE(run);
    return run ? Error{} : run.error();
  }

  const std::string path_ = testing::TempDir() + "bench-run-" + std::to_string(getpid());
};

TEST_F(BenchRuns, ACommitInDoubtIsReportedWhateverElseFailedBefore) {
  const Error error =
      end_of({ErrorCode::kDisconnected, ErrorCode::kCommitUnknown, ErrorCode::kTimeout});
  EXPECT_EQ(error.code, ErrorCode::kCommitUnknown) << error.to_string();
}

TEST_F(BenchRuns, OfSeveralErrorsOfAKindTheFirstIsReported) {
  EXPECT_EQ(end_of({ErrorCode::kDisconnected, ErrorCode::kTimeout}).code, ErrorCode::kDisconnected);
  const Error error = end_of({ErrorCode::kCommitUnknown, ErrorCode::kCommitUnknown});
  EXPECT_EQ(error.message, "of coroutine 0");
}

}  // namespace
}  // namespace pmstore::tools
