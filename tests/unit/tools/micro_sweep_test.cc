#include "tools/bench/micro_sweep.h"

#include <gtest/gtest.h>

namespace pmstore::tools {
namespace {

using persist::Rule;
using persist::Rules;

TEST(MicroSweep, AxesHaveNamesAndValues) {
  const auto window = parse_axis("window=1,2,16");
  ASSERT_TRUE(window);
  EXPECT_EQ(window->name, "window");
  EXPECT_EQ(window->values, (std::vector<std::string>{"1", "2", "16"}));
  EXPECT_TRUE(is_numeric(*window));
  const auto rules = parse_axis("rules=none;all,-h3,-h9;all");
  ASSERT_TRUE(rules);
  EXPECT_EQ(rules->values, (std::vector<std::string>{"none", "all,-h3,-h9", "all"}));
  EXPECT_FALSE(is_numeric(*rules));
  const auto payload = parse_axis("payload");
  ASSERT_TRUE(payload);
  EXPECT_EQ(payload->values.front(), "8");
  EXPECT_EQ(payload->values.back(), "65536");
  EXPECT_EQ(payload->values.size(), 14u);
}

TEST(MicroSweep, WrongAxesSayWhatIsValid) {
  for (const auto& [text, offer] : {std::pair{"size=1", "payload"},
                                    {"window", "window=VALUE"},
                                    {"window=", "from 1 on"},
                                    {"window=0", "from 1 on"},
                                    {"window=1,1", "twice"},
                                    {"window=1,", "from 1 on"},
                                    {"side=both", "one or two"},
                                    {"medium=tape", "dram or nvm"},
                                    {"rules=h3", "all or none"},
                                    {"ddio=maybe", "on or off"},
                                    {"strategy=fast", "doorbell"},
                                    {"=1", "payload"}}) {
    const auto axis = parse_axis(text);
    ASSERT_FALSE(axis) << text;
    EXPECT_EQ(axis.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(axis.error().message.find(offer), std::string::npos) << axis.error().message;
  }
}

TEST(MicroSweep, EveryParameterCanBeSet) {
  MicroPoint point;
  for (const auto& [name, value] : {std::pair{"op", "read"},
                                    {"side", "two"},
                                    {"medium", "nvm"},
                                    {"pattern", "sequential"},
                                    {"payload", "2K"},
                                    {"range", "1M"},
                                    {"clients", "3"},
                                    {"connections", "4"},
                                    {"window", "5"},
                                    {"batch", "6"},
                                    {"server-threads", "7"},
                                    {"rules", "none,+h1"},
                                    {"strategy", "naive"},
                                    {"persistent", "on"},
                                    {"single-dimm", "on"},
                                    {"ddio", "off"}}) {
    EXPECT_TRUE(set_parameter(point, name, value)) << name;
  }
  EXPECT_EQ(point.op, MicroOp::kRead);
  EXPECT_EQ(point.side, MicroSide::kTwoSided);
  EXPECT_EQ(point.medium, MicroMedium::kNvm);
  EXPECT_EQ(point.pattern, MicroPattern::kSequential);
  EXPECT_EQ(point.payload_bytes, 2048u);
  EXPECT_EQ(point.range_bytes, 1u << 20);
  EXPECT_EQ(point.clients, 3u);
  EXPECT_EQ(point.connections, 4u);
  EXPECT_EQ(point.window, 5u);
  EXPECT_EQ(point.batch, 6u);
  EXPECT_EQ(point.server_threads, 7u);
  EXPECT_EQ(point.rules, Rules::none().with(Rule::kH1));
  EXPECT_EQ(point.named_rules, Rules::none().with(Rule::kH1));
  EXPECT_EQ(point.strategy, persist::WriteStrategy::kNaive);
  EXPECT_TRUE(point.persistent && point.single_dimm && !*point.ddio);
}

TEST(MicroSweep, AllCombinationsTheLastFastest) {
  const std::vector<MicroAxis> axes = {*parse_axis("side=one,two"), *parse_axis("payload=16,64")};
  const auto cases = expand({}, axes);
  ASSERT_TRUE(cases);
  ASSERT_EQ(cases->size(), 4u);
  EXPECT_EQ((*cases)[0].name, "side=one payload=16");
  EXPECT_EQ((*cases)[1].name, "side=one payload=64");
  EXPECT_EQ((*cases)[1].group, "side=one");
  EXPECT_EQ((*cases)[1].x, "64");
  EXPECT_EQ((*cases)[2].point.side, MicroSide::kTwoSided);
  EXPECT_EQ((*cases)[2].point.payload_bytes, 16u);
  EXPECT_EQ(expand({}, {})->size(), 1u);
}

TEST(MicroSweep, NonsenseInAnyCombinationIsRefused) {
  const auto nonsense =
      expand({}, {*parse_axis("single-dimm=off,on"), *parse_axis("payload=64,8192")});
  ASSERT_FALSE(nonsense);
  EXPECT_NE(nonsense.error().message.find("--single-dimm"), std::string::npos);
  const auto twice = expand({}, {*parse_axis("payload=1"), *parse_axis("payload=2")});
  ASSERT_FALSE(twice);
  EXPECT_NE(twice.error().message.find("two sweeps"), std::string::npos);
}

TEST(MicroSweep, FactorsAddUpAndFixedRulesAreLeftOut) {
  const auto all = factor_cases({}, Rules::none());
  ASSERT_EQ(all.size(), 12u);
  EXPECT_TRUE(all[0].point.rules.empty());
  EXPECT_EQ(all[2].point.rules, Rules::none().with(Rule::kH1).with(Rule::kH3));
  EXPECT_EQ(micro_bytes(all[3].point), 256u) << "H5 instead of H6 pads 16 bytes to 256";
  EXPECT_EQ(micro_bytes(all[4].point), 64u);
  EXPECT_FALSE(all[4].point.rules.has(Rule::kH5));
  EXPECT_EQ(all[5].point.payload_bytes, 2048u);
  EXPECT_EQ(all[11].point.side, MicroSide::kTwoSided);
  EXPECT_TRUE(micro_non_temporal(all[11].point));
  for (const MicroCase& one : all) EXPECT_TRUE(check_point(one.point)) << one.name;
  const auto few = factor_cases({}, Rules::none().with(Rule::kH1).with(Rule::kH3));
  ASSERT_EQ(few.size(), 7u);
  for (const MicroCase& one : few) {
    EXPECT_FALSE(one.point.rules.has(Rule::kH1) || one.point.rules.has(Rule::kH3));
  }
}

}  // namespace
}  // namespace pmstore::tools
