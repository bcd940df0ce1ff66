#include "tools/bench/micro_point.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace pmstore::tools {
namespace {

using persist::Rule;
using persist::Rules;
using persist::WriteStrategy;

TEST(MicroPoint, UnitsFollowTheRules) {
  MicroPoint point;
  point.payload_bytes = 16;
  const auto unit = [&](Rules rules, MicroSide side) {
    point.rules = rules;
    point.side = side;
    return micro_unit(point);
  };
  const Rules all = Rules::all();
  EXPECT_EQ(unit(all, MicroSide::kOneSided), 64u);
  EXPECT_EQ(unit(all.without(Rule::kH7), MicroSide::kOneSided), 64u);
  EXPECT_EQ(unit(all.without(Rule::kH6), MicroSide::kOneSided), 256u) << "H5 instead of H6";
  EXPECT_EQ(unit(all.without(Rule::kH6).without(Rule::kH5), MicroSide::kOneSided), 8u);
  EXPECT_EQ(unit(Rules::none().with(Rule::kH7), MicroSide::kTwoSided), 64u);
  EXPECT_EQ(unit(Rules::none().with(Rule::kH6), MicroSide::kTwoSided), 8u);
  point.payload_bytes = 300;
  EXPECT_EQ(unit(all, MicroSide::kOneSided), 256u);
  EXPECT_EQ(micro_bytes(point), 512u);
  EXPECT_EQ(unit(all.without(Rule::kH5), MicroSide::kOneSided), 8u);
  EXPECT_EQ(micro_bytes(point), 300u) << "unpadded";
}

TEST(MicroPoint, StoresAndStrategiesFollowTheRules) {
  MicroPoint point;
  point.payload_bytes = 16;
  point.rules = Rules::all().without(Rule::kH4);
  EXPECT_TRUE(micro_non_temporal(point));
  point.payload_bytes = 256;
  EXPECT_FALSE(micro_non_temporal(point));
  EXPECT_EQ(micro_strategy(point), WriteStrategy::kDoorbell);
  point.rules = point.rules.without(Rule::kH9);
  EXPECT_EQ(micro_strategy(point), WriteStrategy::kOutstanding);
  point.strategy = WriteStrategy::kOutstanding;
  EXPECT_EQ(micro_strategy(point), WriteStrategy::kOutstanding);
  point.strategy = WriteStrategy::kAuto;
  point.side = MicroSide::kTwoSided;
  EXPECT_EQ(micro_strategy(point), WriteStrategy::kTwoSided);
}

TEST(MicroPoint, WritersAreBoundedOnlyWhereTheCpuWritesNvm) {
  MicroPoint point;
  point.side = MicroSide::kTwoSided;
  point.medium = MicroMedium::kNvm;
  EXPECT_EQ(micro_workers(point, 30), 24u);
  point.single_dimm = true;
  EXPECT_EQ(micro_workers(point, 30), 4u);
  point.rules = Rules::all().without(Rule::kH2);
  EXPECT_EQ(micro_workers(point, 30), 30u);
  point.rules = Rules::all();
  point.medium = MicroMedium::kDram;
  EXPECT_EQ(micro_workers(point, 30), 30u);
  point.medium = MicroMedium::kNvm;
  point.op = MicroOp::kRead;
  EXPECT_EQ(micro_workers(point, 30), 30u);
}

TEST(MicroPoint, EveryDimmHasItsFewThreadsAndEveryThreadWorks) {
  MicroPoint point;
  point.side = MicroSide::kTwoSided;
  point.medium = MicroMedium::kNvm;
  EXPECT_TRUE(micro_has_owners(point));
  for (const uint32_t workers : {1u, 3u, 6u, 8u, 24u}) {
    std::set<uint32_t> working;
    for (uint64_t dimm = 0; dimm < kInterleavedDimms; ++dimm) {
      std::set<uint32_t> writers;
      for (uint64_t stream = 0; stream < 100; ++stream) {
        writers.insert(micro_owner(point, workers, stream, dimm));
      }
      EXPECT_EQ(writers.size(), std::min(4u, workers));
      working.insert(writers.begin(), writers.end());
    }
    EXPECT_EQ(working.size(), workers);
    EXPECT_LT(*working.rbegin(), workers);
  }
  point.payload_bytes = 8192;
  EXPECT_FALSE(micro_has_owners(point)) << "it is on several DIMMs";
  point.payload_bytes = 64;
  point.rules = Rules::all().without(Rule::kH2);
  EXPECT_FALSE(micro_has_owners(point));
}

TEST(MicroPoint, AtomicsGoWhereRuleH8Says) {
  MicroPoint point;
  point.op = MicroOp::kAtomic;
  EXPECT_EQ(micro_medium(point), MicroMedium::kDram);
  point.rules = Rules::none();
  EXPECT_EQ(micro_medium(point), MicroMedium::kNvm);
}

// What is wrong, and what the message must offer.
struct Wrong {
  void (*change)(MicroPoint&);
  const char* offer;
};

TEST(MicroPoint, NonsenseIsRefusedAndSaysWhatIsPossible) {
  const Wrong all[] = {
      {[](MicroPoint& p) { p.payload_bytes = 0; }, "1 to 1048576"},
      {[](MicroPoint& p) { p.payload_bytes = 2u << 20; }, "1 to 1048576"},
      {[](MicroPoint& p) { p.op = MicroOp::kAtomic; }, "--payload 8"},
      {[](MicroPoint& p) { p.op = MicroOp::kEcho; }, "--side two"},
      {[](MicroPoint& p) { p.persistent = true; }, "--medium nvm"},
      {[](MicroPoint& p) {
         p.persistent = true;
         p.op = MicroOp::kRead;
       },
       "--op write"},
      {[](MicroPoint& p) { p.strategy = WriteStrategy::kNaive; }, "--persistent"},
      {[](MicroPoint& p) {
         p.medium = MicroMedium::kNvm;
         p.persistent = true;
         p.strategy = WriteStrategy::kDoorbell;
         p.named_rules = Rules::none().with(Rule::kH9);
       },
       "rule h9"},
      {[](MicroPoint& p) {
         p.persistent = true;
         p.medium = MicroMedium::kNvm;
         p.strategy = WriteStrategy::kTwoSided;
       },
       "--side one"},
      {[](MicroPoint& p) { p.batch = 33; }, "1 to 32"},
      {[](MicroPoint& p) { p.batch = 3; }, "multiple of the batch"},
      {[](MicroPoint& p) {
         p.batch = 2;
         p.side = MicroSide::kTwoSided;
       },
       "--batch"},
      {[](MicroPoint& p) { p.window = 0; }, "at least one"},
      {[](MicroPoint& p) { p.clients = 0; }, "at least 1"},
      {[](MicroPoint& p) { p.range_bytes = 100; }, "at least 256"},
      {[](MicroPoint& p) {
         p.single_dimm = true;
         p.range_bytes = 8192;
       },
       "at least 24576"},
      {[](MicroPoint& p) {
         p.single_dimm = true;
         p.payload_bytes = 5000;
       },
       "at most 4096"},
  };
  EXPECT_TRUE(check_point({}));
  for (const Wrong& wrong : all) {
    MicroPoint point;
    wrong.change(point);
    const Status checked = check_point(point);
    ASSERT_FALSE(checked) << wrong.offer;
    EXPECT_EQ(checked.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(checked.error().message.find(wrong.offer), std::string::npos)
        << checked.error().message;
  }
}

TEST(MicroPoint, NamesAndBack) {
  for (const auto op : {MicroOp::kWrite, MicroOp::kRead, MicroOp::kAtomic, MicroOp::kEcho}) {
    EXPECT_EQ(*parse_op(op_name(op)), op);
  }
  EXPECT_EQ(*parse_side("two"), MicroSide::kTwoSided);
  EXPECT_EQ(*parse_pattern("sequential"), MicroPattern::kSequential);
  EXPECT_EQ(*parse_medium("nvm"), MicroMedium::kNvm);
  EXPECT_NE(parse_op("erase").error().message.find("write, read, atomic or echo"),
            std::string::npos);
}

}  // namespace
}  // namespace pmstore::tools
