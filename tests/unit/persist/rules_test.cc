#include "persist/rules.h"

#include <gtest/gtest.h>

namespace pmstore::persist {
namespace {

TEST(Rules, AllAndNone) {
  EXPECT_EQ(parse_rules("all")->on, Rules::all());
  EXPECT_EQ(parse_rules("none")->on, Rules::none());
  EXPECT_TRUE(parse_rules("all")->named.empty());
  for (unsigned i = 1; i <= kRules; ++i) {
    EXPECT_TRUE(Rules::all().has(static_cast<Rule>(i)));
    EXPECT_FALSE(Rules::none().has(static_cast<Rule>(i)));
  }
}

TEST(Rules, ChangesByName) {
  const auto off = parse_rules("all,-h3");
  ASSERT_TRUE(off);
  EXPECT_EQ(off->on, Rules::all().without(Rule::kH3));
  EXPECT_EQ(off->named, Rules::none().with(Rule::kH3));
  const auto on = parse_rules("none,+h1,+H6");
  ASSERT_TRUE(on);
  EXPECT_EQ(on->on, Rules::none().with(Rule::kH1).with(Rule::kH6));
  const auto idle = parse_rules("all,+h9");
  ASSERT_TRUE(idle);
  EXPECT_EQ(idle->on, Rules::all());
  EXPECT_TRUE(idle->named.has(Rule::kH9));
}

TEST(Rules, TextAndBack) {
  for (unsigned bits = 0; bits < (1u << kRules); ++bits) {
    Rules rules = Rules::none();
    for (unsigned i = 1; i <= kRules; ++i) {
      if ((bits >> (i - 1) & 1) != 0) rules = rules.with(static_cast<Rule>(i));
    }
    const auto back = parse_rules(rules_text(rules));
    ASSERT_TRUE(back) << rules_text(rules);
    EXPECT_EQ(back->on, rules) << rules_text(rules);
  }
  EXPECT_EQ(rules_text(Rules::all().without(Rule::kH3)), "all,-h3");
  EXPECT_EQ(rules_text(Rules::none().with(Rule::kH1)), "none,+h1");
}

TEST(Rules, EverythingElseIsRefusedWithTheForm) {
  for (const char* wrong :
       {"", "some", "h3", "all,", ",", "all,,-h3", "all,h3", "all,-h0", "all,-h10", "all,-x3",
        "all -h3", "all,-", "none,+h1,-h1", "ALL", "all,-h3,", "+h1"}) {
    const auto parsed = parse_rules(wrong);
    ASSERT_FALSE(parsed) << wrong;
    EXPECT_EQ(parsed.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(parsed.error().message.find("none,+h1,+h6"), std::string::npos)
        << parsed.error().message;
  }
}

TEST(Rules, PaddingAndBitsAndBack) {
  EXPECT_EQ(PaddingRules{}.off_bits(), 0);
  for (uint8_t bits = 0; bits <= PaddingRules::kOffBits; ++bits) {
    const PaddingRules padding = PaddingRules::from_off_bits(bits);
    EXPECT_EQ(padding.off_bits(), bits);
    EXPECT_EQ(Rules::all().with_padding(padding).padding(), padding);
    EXPECT_EQ(Rules::none().with_padding(padding).padding(), padding);
    EXPECT_TRUE(Rules::all().with_padding(padding).has(Rule::kH4));
    EXPECT_FALSE(Rules::none().with_padding(padding).has(Rule::kH8));
  }
  EXPECT_FALSE(PaddingRules::from_off_bits(1).xp_line);
  EXPECT_FALSE(PaddingRules::from_off_bits(2).one_sided_line);
  EXPECT_FALSE(PaddingRules::from_off_bits(4).two_sided_line);
}

TEST(Rules, APoolSwitchesThoseOfAlignmentOnly) {
  EXPECT_EQ(*parse_pool_rules("all"), Rules::all());
  EXPECT_EQ(rules_text(*parse_pool_rules("none")), "all,-h5,-h6,-h7");
  EXPECT_EQ(rules_text(*parse_pool_rules("none,+h6")), "all,-h5,-h7");
  EXPECT_EQ(rules_text(*parse_pool_rules("all,-h5")), "all,-h5");
  for (const char* wrong : {"all,-h3", "none,+h9", "all,-h5,-h1", "off"}) {
    EXPECT_EQ(parse_pool_rules(wrong).code(), ErrorCode::kInvalidArgument) << wrong;
  }
}

TEST(Rules, PaddingFollows) {
  const PaddingRules padding = Rules::all().without(Rule::kH6).padding();
  EXPECT_TRUE(padding.xp_line);
  EXPECT_FALSE(padding.one_sided_line);
  EXPECT_TRUE(padding.two_sided_line);
}

}  // namespace
}  // namespace pmstore::persist
