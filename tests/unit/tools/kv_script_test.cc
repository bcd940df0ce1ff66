#include "tools/cli/kv_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pmstore::tools {
namespace {

using testing::HasSubstr;
using Kind = ScriptStep::Kind;

TEST(KvScript, EveryOperationIsRead) {
  const auto steps =
      parse_script("get a\nput b 1\n\n  # a comment\ninsert c 2 # another\ndel d\ncheck e 3");
  ASSERT_TRUE(steps);
  ASSERT_EQ(steps->size(), 5u);
  EXPECT_EQ((*steps)[0].kind, Kind::kGet);
  EXPECT_EQ((*steps)[1].value, "1");
  EXPECT_EQ((*steps)[2].kind, Kind::kInsert);
  EXPECT_EQ((*steps)[2].line, 5u);
  EXPECT_EQ((*steps)[3].key, "d");
  EXPECT_EQ((*steps)[4].kind, Kind::kCheck);
}

TEST(KvScript, QuotedWordsHoldAnything) {
  const auto steps = parse_script(R"(put "a key" "line\n\x00\"#\\")");
  ASSERT_TRUE(steps);
  EXPECT_EQ((*steps)[0].key, "a key");
  EXPECT_EQ((*steps)[0].value, std::string("line\n\0\"#\\", 9));
}

TEST(KvScript, AnEmptyQuotedWordIsAWord) {
  const auto steps = parse_script("put k \"\"");
  ASSERT_TRUE(steps);
  EXPECT_EQ((*steps)[0].value, "");
}

TEST(KvScript, TheWrongLineIsNamed) {
  for (const auto& [script, why] : std::initializer_list<std::pair<const char*, const char*>>{
           {"get a\nfetch b", "line 2: 'fetch' is no operation"},
           {"put a", "line 1: put 'a' takes a key and a value, got 1"},
           {"get a b", "line 1: get 'a' takes a key, got 2"},
           {"\n\nget \"a", "line 3: a quote is not closed"},
           {"get \"\\q\"", "line 1: an unknown escape"},
           {"get \"\\x4\"", "line 1: \\x needs two hexadecimal digits"},
           {"get \"a\\", "line 1: a backslash"}}) {
    const auto steps = parse_script(script);
    ASSERT_FALSE(steps) << script;
    EXPECT_EQ(steps.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(steps.error().message, HasSubstr(why));
  }
}

}  // namespace
}  // namespace pmstore::tools
