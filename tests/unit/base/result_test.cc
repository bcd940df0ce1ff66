#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "base/check.h"
#include "base/clock.h"
#include "base/executor.h"

namespace pmstore::base {
namespace {

TEST(ErrorTable, EveryCodeHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(kLastErrorCode); ++code) {
    const std::string_view name = error_name(static_cast<ErrorCode>(code));
    EXPECT_NE(name, "Error") << "code " << code << " is not in the table";
    EXPECT_TRUE(names.insert(name).second) << name << " is there twice";
    EXPECT_EQ(name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"),
              std::string_view::npos)
        << name;
  }
  // Not a code: the table ends where this test thinks it does.
  EXPECT_EQ(error_name(static_cast<ErrorCode>(static_cast<int>(kLastErrorCode) + 1)), "Error");
}

TEST(ErrorTable, TextIsNameAndMessage) {
  EXPECT_EQ(make_error(ErrorCode::kConflict).to_string(), "Conflict");
  EXPECT_EQ(make_error(ErrorCode::kBadPool, "no magic").to_string(), "BadPool: no magic");
}

Result<int> parse_digit(char c) {
  if (c < '0' || c > '9')
    return make_error(ErrorCode::kInvalidArgument, std::string("'") + c + "'");
  return c - '0';
}

Status require_even(int value) {
  if (value % 2 != 0) return make_error(ErrorCode::kConflict, "odd");
  return {};
}

Result<int> sum_of_even_digits(std::string_view text) {
  int sum = 0;
  for (const char c : text) {
    PMSTORE_TRY(const int digit, parse_digit(c));
    PMSTORE_TRY_STATUS(require_even(digit));
    sum += digit;
  }
  return sum;
}

Task<Result<int>> sum_of_two(char a, char b) {
  PMSTORE_CO_TRY(const int left, parse_digit(a));
  PMSTORE_CO_TRY(const int right, parse_digit(b));
  PMSTORE_CO_TRY_STATUS(require_even(left + right));
  co_return left + right;
}

TEST(ResultTest, TryBindsTheValueOrGivesTheErrorBack) {
  EXPECT_EQ(sum_of_even_digits("2468").value(), 20);
  EXPECT_EQ(sum_of_even_digits("24x").code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(sum_of_even_digits("24x").error().message, "'x'");
  EXPECT_EQ(sum_of_even_digits("23").code(), ErrorCode::kConflict);
}

TEST(ResultTest, CoTryDoesTheSameInACoroutine) {
  VirtualClock clock;
  Executor executor(clock);
  EXPECT_EQ(executor.run(sum_of_two('1', '3')).value(), 4);
  EXPECT_EQ(executor.run(sum_of_two('1', '?')).error().message, "'?'");
  EXPECT_EQ(executor.run(sum_of_two('1', '2')).code(), ErrorCode::kConflict);
}

Result<std::unique_ptr<int>> make_box(bool good) {
  if (!good) return make_error(ErrorCode::kFull);
  return std::make_unique<int>(7);
}

Result<int> open_box(bool good) {
  PMSTORE_TRY(std::unique_ptr<int> box, make_box(good));
  return *box;
}

TEST(ResultTest, CarriesMoveOnlyValues) {
  EXPECT_EQ(open_box(true).value(), 7);
  EXPECT_EQ(open_box(false).code(), ErrorCode::kFull);
}

TEST(CheckDeathTest, SaysWhatDidNotHoldAndWhyItMatters) {
  PMSTORE_CHECK(1 + 1 == 2, "never printed");
  EXPECT_DEATH(PMSTORE_CHECK(1 + 1 == 3, "sums would be wrong"),
               "result_test.cc:[0-9]+: CHECK.*1 \\+ 1 == 3.* failed: sums would be wrong");
}

}  // namespace
}  // namespace pmstore::base
