#include "pmstore/types.h"

#include <gtest/gtest.h>

namespace pmstore {
namespace {

TEST(TxId, TextHasThirtyTwoDigitsOfTheClientTheNumberAndCheckDigits) {
  EXPECT_EQ((TxId{{0x123456789abcdefu, 0xfedcu}, 42}).to_string(),
            "000000000000fedc0123456789abcdef-42-b472");
  EXPECT_EQ((TxId{0, 0}).to_string(), std::string(32, '0') + "-0-d131");
}

TEST(TxId, IsReadBackFromItsText) {
  for (const TxId id :
       {TxId{1, 1}, TxId{{UINT64_MAX, UINT64_MAX}, UINT64_MAX}, TxId{0x80, 1u << 31}}) {
    const auto parsed = parse_tx_id(id.to_string());
    ASSERT_TRUE(parsed) << id.to_string();
    EXPECT_EQ(*parsed, id);
  }
}

TEST(TxId, OtherTextsAreRefusedWithAnExample) {
  const std::string digits = "0123456789abcdef";
  for (const std::string& text :
       {std::string(), std::string("-"), digits + digits, digits + digits + "-",
        std::string("123-4"), digits + "-1", digits + "0123456789abcdeg-1", digits + digits + "-1x",
        digits + digits + "--1", digits + digits + "-18446744073709551616",
        digits + " 123456789abcdef-1", digits + digits + "-42"}) {
    const auto parsed = parse_tx_id(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(parsed.error().message.find("0123456789abcdef0123456789abcdef-42-dd5a"),
              std::string::npos);
  }
}

TEST(TxId, AMistypedDigitIsRefused) {
  const std::string name = "0123456789abcdef0123456789abcdef-42-dd5a";
  ASSERT_TRUE(parse_tx_id(name));
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '-') continue;
    std::string mistyped = name;
    mistyped[i] = name[i] == '3' ? '8' : '3';
    EXPECT_EQ(parse_tx_id(mistyped).code(), ErrorCode::kInvalidArgument) << mistyped;
  }
}

TEST(LockDiscipline, HasANameForPeople) {
  EXPECT_EQ(discipline_name(LockDiscipline::kCpu), "cpu");
  EXPECT_EQ(discipline_name(LockDiscipline::kRnic), "rnic");
}

TEST(MissPath, IsReadBackFromItsName) {
  for (const MissPath path : {MissPath::kAuto, MissPath::kOneSided, MissPath::kRpc}) {
    EXPECT_EQ(parse_miss_path(miss_path_name(path)).value(), path);
  }
  EXPECT_EQ(parse_miss_path("").code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(parse_miss_path("two-sided").code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace pmstore
