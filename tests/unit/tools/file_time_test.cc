// kept_time_ns(): what of a time of stat(2) files keep.
#include "tools/cli/file_time.h"

#include <gtest/gtest.h>

namespace pmstore::tools {
namespace {

constexpr time_t kLast = 18'446'744'072;

TEST(FileTime, EachNanosecondIsKept) {
  EXPECT_EQ(kept_time_ns({0, 0}), 0u);
  EXPECT_EQ(kept_time_ns({1'000'000'001, 7}), 1'000'000'001'000'000'007u);
  EXPECT_EQ(kept_time_ns({kLast, 999'999'999}), 18'446'744'072'999'999'999u);
}

TEST(FileTime, WhatLiesBefore1970IsTheFirstSecond) {
  EXPECT_EQ(kept_time_ns({-1, 999'999'999}), 0u);
  EXPECT_EQ(kept_time_ns({-1'000'000'000'000, 0}), 0u);
}

TEST(FileTime, WhatHasNoNumberIsTheLastSecond) {
  EXPECT_EQ(kept_time_ns({kLast + 1, 5}), 18'446'744'072'000'000'000u);
  EXPECT_EQ(kept_time_ns({INT64_MAX, 999'999'999}), 18'446'744'072'000'000'000u);
}

}  // namespace
}  // namespace pmstore::tools
