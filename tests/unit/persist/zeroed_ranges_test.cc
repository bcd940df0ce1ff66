#include "persist/internal/zeroed_ranges.h"

#include <gtest/gtest.h>

namespace pmstore::persist::internal {
namespace {

constexpr uint64_t kEnd = 1'000'000;

// The unknown parts of [0, kEnd), as text.
std::string unknown(const ZeroedRanges& ranges) {
  std::string all;
  ByteRange left{0, kEnd};
  while (const auto part = ranges.first_unknown(left)) {
    all += std::to_string(part->begin) + "-" + std::to_string(part->end) + " ";
    left.begin = part->end;
  }
  return all;
}

TEST(ZeroedRanges, AreWhatWasAddedAndNotRemoved) {
  ZeroedRanges ranges;
  EXPECT_EQ(unknown(ranges), "0-1000000 ");
  ranges.add({100, 200});
  ranges.add({400, 500});
  EXPECT_EQ(unknown(ranges), "0-100 200-400 500-1000000 ");
  ranges.add({200, 300});  // touches
  ranges.add({250, 420});  // overlaps both
  EXPECT_EQ(unknown(ranges), "0-100 500-1000000 ");
  ranges.remove({150, 160});
  EXPECT_EQ(unknown(ranges), "0-100 150-160 500-1000000 ");
  ranges.remove({0, 160});
  ranges.remove({490, 600});
  EXPECT_EQ(unknown(ranges), "0-160 490-1000000 ");
  ranges.remove({0, kEnd});
  EXPECT_EQ(unknown(ranges), "0-1000000 ");
}

TEST(ZeroedRanges, OfAPartOfARangeNothingIsUnknown) {
  ZeroedRanges ranges;
  ranges.add({100, 200});
  EXPECT_FALSE(ranges.first_unknown({100, 200}));
  EXPECT_FALSE(ranges.first_unknown({150, 160}));
  EXPECT_FALSE(ranges.first_unknown({150, 150}));
  EXPECT_EQ(ranges.first_unknown({150, 210})->begin, 200u);
  EXPECT_EQ(ranges.first_unknown({90, 210})->end, 100u);
}

TEST(ZeroedRanges, ThatTouchAreOne) {
  ZeroedRanges ranges;
  const uint64_t many = ZeroedRanges::kMost + 10;
  for (uint64_t i = 0; i < many; ++i) ranges.add({10 * i, 10 * i + 10});
  EXPECT_FALSE(ranges.first_unknown({0, 10 * many})) << "none is forgotten";
}

TEST(ZeroedRanges, AreBoundedAndForgetTheRest) {
  ZeroedRanges ranges;
  const uint64_t many = ZeroedRanges::kMost + 10;
  for (uint64_t i = 0; i < many; ++i) ranges.add({1000 * i, 1000 * i + 10});
  uint64_t known = 0;
  for (uint64_t i = 0; i < many; ++i) known += !ranges.first_unknown({1000 * i, 1000 * i + 10});
  EXPECT_EQ(known, ZeroedRanges::kMost);
  EXPECT_FALSE(ranges.first_unknown({1000 * (many - 1), 1000 * (many - 1) + 10}))
      << "the last one is known";
  for (uint64_t i = 0; i < many; ++i) ranges.remove({1000 * i + 4, 1000 * i + 5});
  EXPECT_TRUE(ranges.first_unknown({0, 1000 * many}));
}

}  // namespace
}  // namespace pmstore::persist::internal
