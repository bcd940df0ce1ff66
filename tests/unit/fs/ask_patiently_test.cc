// Questions that are repeated for as long as an answer may come.
#include "fs/internal/ask_patiently.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <iterator>

#include "base/clock.h"

namespace pmstore::fs::internal {
namespace {

using base::Result;

class AskPatiently : public ::testing::Test {
 protected:
  static constexpr uint64_t kPauseNs = 1'000'000'000;
  static constexpr uint64_t kPatience = 200 * kPauseNs;

  // The next of `answers`; the last one again and again.
  base::Task<Result<int>> next() {
    ++asked_;
    Result<int> answer = answers_.front();
    if (answers_.size() > 1) answers_.pop_front();
    co_return answer;
  }
  base::Task<Result<int>> ask() {
    return ask_patiently<int>(
        executor_, kPauseNs, kPatience, [this] { return next(); }, [this] { return failed_; });
  }
  void sleep(uint64_t ns) {
    executor_.run([](base::Executor& executor, uint64_t for_ns) -> base::Task<void> {
      co_await executor.sleep_for(for_ns);
    }(executor_, ns));
  }

  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  std::deque<Result<int>> answers_;
  int asked_ = 0;
  bool failed_ = false;
};

constexpr ErrorCode kStay[] = {
    ErrorCode::kNotFound,     ErrorCode::kOutcomeExpired, ErrorCode::kInvalidArgument,
    ErrorCode::kUnknownTable, ErrorCode::kBadPool,        ErrorCode::kVersionMismatch,
    ErrorCode::kUnsupported,  ErrorCode::kDamaged,        ErrorCode::kAccess};

bool is_one_that_stays(ErrorCode code) {
  return std::find(std::begin(kStay), std::end(kStay), code) != std::end(kStay);
}

TEST_F(AskPatiently, EndsWithAnErrorThatStays) {
  for (const ErrorCode code : kStay) {
    answers_ = {base::make_error(code)};
    asked_ = 0;
    EXPECT_EQ(executor_.run(ask()).code(), code);
    EXPECT_EQ(asked_, 1) << base::error_name(code);
  }
}

TEST_F(AskPatiently, RepeatsBehindEveryOtherErrorUntilThereIsAnAnswer) {
  for (int i = 0; i <= static_cast<int>(base::kLastErrorCode); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    if (is_one_that_stays(code)) continue;
    const Error passes = base::make_error(code);
    answers_ = {passes, passes, passes, 7};
    asked_ = 0;
    const uint64_t before_ns = executor_.now_ns();
    const auto answer = executor_.run(ask());
    ASSERT_TRUE(answer) << base::error_name(code);
    EXPECT_EQ(*answer, 7);
    EXPECT_EQ(asked_, 4);
    EXPECT_GE(executor_.now_ns() - before_ns, 3 * kPauseNs) << "it rests between two questions";
  }
}

TEST_F(AskPatiently, EndsWhenTheStoreHasFailed) {
  for (int i = 0; i <= static_cast<int>(base::kLastErrorCode); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    if (is_one_that_stays(code)) continue;
    answers_ = {base::make_error(code)};
    failed_ = false;
    auto asks = ask();
    asks.start();
    sleep(100 * kPauseNs);
    ASSERT_FALSE(asks.done()) << base::error_name(code);
    failed_ = true;
    sleep(2 * kPauseNs);
    ASSERT_TRUE(asks.done()) << base::error_name(code);
    EXPECT_EQ(asks.take().code(), code);
  }
}

TEST_F(AskPatiently, EndsWithTheLastErrorWhenTheStoreStaysAway) {
  answers_ = {base::make_error(ErrorCode::kTimeout), base::make_error(ErrorCode::kDisconnected)};
  auto asks = ask();
  asks.start();
  sleep(kPatience - kPauseNs);
  EXPECT_FALSE(asks.done());
  sleep(2 * kPauseNs);
  ASSERT_TRUE(asks.done());
  EXPECT_EQ(asks.take().code(), ErrorCode::kDisconnected);
  EXPECT_EQ(asked_, 201);
}

TEST_F(AskPatiently, CanBeCancelledBetweenTwoQuestions) {
  answers_ = {base::make_error(ErrorCode::kTimeout)};
  {
    auto asks = ask();
    asks.start();
    sleep(kPauseNs / 2);
    ASSERT_FALSE(asks.done());
  }
  const int asked = asked_;
  sleep(10 * kPauseNs);
  EXPECT_EQ(asked_, asked);
}

}  // namespace
}  // namespace pmstore::fs::internal
