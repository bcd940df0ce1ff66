#include "tools/bench/micro_addresses.h"

#include <gtest/gtest.h>

#include <set>

namespace pmstore::tools {
namespace {

using persist::Rule;
using persist::Rules;

MicroPoint point_of(uint32_t payload_bytes, Rules rules) {
  MicroPoint point;
  point.payload_bytes = payload_bytes;
  point.rules = rules;
  point.range_bytes = 1u << 20;
  return point;
}

TEST(MicroAddresses, StayInsideAndKeepTheUnit) {
  for (const uint32_t payload : {1u, 8u, 16u, 63u, 64u, 200u, 256u, 1000u, 4096u}) {
    for (const Rules rules : {Rules::all(), Rules::none(), Rules::none().with(Rule::kH5)}) {
      for (const auto pattern : {MicroPattern::kRandom, MicroPattern::kSequential}) {
        MicroPoint point = point_of(payload, rules);
        point.pattern = pattern;
        ASSERT_TRUE(check_point(point));
        MicroAddresses addresses(point, 2, 3);
        for (int i = 0; i < 20'000; ++i) {
          const uint64_t offset = addresses.next();
          ASSERT_LE(offset + micro_bytes(point), point.range_bytes);
          ASSERT_EQ(offset % micro_unit(point), 0u);
        }
      }
    }
  }
}

TEST(MicroAddresses, WithoutRulesRandomOnesAreUnaligned) {
  MicroAddresses addresses(point_of(16, Rules::none()), 0, 1);
  std::set<uint64_t> residues;
  for (int i = 0; i < 1000; ++i) residues.insert(addresses.next() % 64);
  EXPECT_EQ(residues, (std::set<uint64_t>{0, 8, 16, 24, 32, 40, 48, 56}));
}

TEST(MicroAddresses, OneDimmIsEverySixthStripeAndNoRequestLeavesIt) {
  for (const uint32_t payload : {16u, 300u, 4096u}) {
    for (const Rules rules : {Rules::all(), Rules::none()}) {
      MicroPoint point = point_of(payload, rules);
      point.single_dimm = true;
      ASSERT_TRUE(check_point(point));
      MicroAddresses addresses(point, 0, 1);
      std::set<uint64_t> stripes;
      for (int i = 0; i < 20'000; ++i) {
        const uint64_t offset = addresses.next();
        const uint64_t stripe = offset / kStripeBytes;
        ASSERT_EQ(stripe % kInterleavedDimms, 0u);
        ASSERT_EQ((offset + micro_bytes(point) - 1) / kStripeBytes, stripe);
        ASSERT_LE(offset + micro_bytes(point), point.range_bytes);
        stripes.insert(stripe);
      }
      EXPECT_EQ(stripes.size(), point.range_bytes / (kStripeBytes * kInterleavedDimms));
    }
  }
}

TEST(MicroAddresses, SequentialStreamsCoverTheRangeOnceEach) {
  MicroPoint point = point_of(256, Rules::all());
  point.pattern = MicroPattern::kSequential;
  std::set<uint64_t> seen;
  constexpr uint64_t kStreams = 3;
  for (uint64_t stream = 0; stream < kStreams; ++stream) {
    MicroAddresses addresses(point, stream, kStreams);
    const uint64_t first = addresses.next();
    seen.insert(first);
    uint64_t last = first;
    for (uint64_t next = addresses.next(); next != first; next = addresses.next()) {
      EXPECT_EQ(next, last + 256);
      EXPECT_TRUE(seen.insert(next).second);
      last = next;
    }
  }
  EXPECT_EQ(seen.size(), (1u << 20) / 256);
}

TEST(MicroAddresses, SeedAndStreamDecide) {
  const MicroPoint point = point_of(64, Rules::all());
  MicroPoint other_seed = point;
  other_seed.seed = 2;
  MicroAddresses first(point, 0, 2), again(point, 0, 2), stream(point, 1, 2),
      seed(other_seed, 0, 2);
  int same_stream = 0;
  int same_seed = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t offset = first.next();
    ASSERT_EQ(offset, again.next());
    same_stream += offset == stream.next();
    same_seed += offset == seed.next();
  }
  EXPECT_LT(same_stream, 10);
  EXPECT_LT(same_seed, 10);
}

TEST(MicroAddresses, MoreStreamsThanSlotsShareThem) {
  MicroPoint point = point_of(256, Rules::all());
  point.range_bytes = 512;
  point.pattern = MicroPattern::kSequential;
  MicroAddresses addresses(point, 4, 5);
  EXPECT_LT(addresses.next(), 512u);
}

}  // namespace
}  // namespace pmstore::tools
