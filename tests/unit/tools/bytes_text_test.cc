#include "tools/cli/bytes_text.h"

#include <gtest/gtest.h>

#include "tools/cli/session_options.h"
#include "tools/cli/text_table.h"

namespace pmstore::tools {
namespace {

TEST(BytesText, Utf8IsAStringInJson) {
  EXPECT_EQ(json_bytes("Grüße").dump(), "\"Grüße\"");
  EXPECT_EQ(json_bytes("").dump(), "\"\"");
}

TEST(BytesText, OtherBytesAreBase64InJson) {
  EXPECT_EQ(json_bytes("\xff\xfe").dump(), R"({"base64":"//4="})");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
}

TEST(BytesText, MalformedUtf8IsNotUtf8) {
  EXPECT_FALSE(is_utf8("\xc0\xaf"));          // overlong
  EXPECT_FALSE(is_utf8("\xed\xa0\x80"));      // a surrogate
  EXPECT_FALSE(is_utf8("\xf4\x90\x80\x80"));  // above U+10FFFF
  EXPECT_FALSE(is_utf8("\xe2\x82"));          // cut short
  EXPECT_FALSE(is_utf8("\x80"));
  EXPECT_TRUE(is_utf8("\xf0\x9f\x98\x80"));
}

TEST(BytesText, WhatCannotBePrintedIsEscaped) {
  EXPECT_EQ(printable("a\n\\\xff\x7f"), "a\\x0a\\\\\\xff\\x7f");
}

TEST(TextTable, ColumnsAreAligned) {
  TextTable table(1);
  table.row({"name", "1"});
  table.row({"n", "100"});
  EXPECT_EQ(table.text(), "name    1\nn     100\n");
}

TEST(Sizes, UnitsArePowersOfTwo) {
  EXPECT_EQ(*parse_bytes("4096"), 4096u);
  EXPECT_EQ(*parse_bytes("64K"), 65536u);
  EXPECT_EQ(*parse_bytes("2GiB"), uint64_t{2} << 30);
}

TEST(Sizes, NonsenseIsRefused) {
  for (const char* text : {"", "M", "-1", "1X", "99999999999T", "1 M", "18446744073709551616"}) {
    EXPECT_FALSE(parse_bytes(text)) << text;
  }
}

}  // namespace
}  // namespace pmstore::tools
