#include "pmstore/record_page.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace pmstore {
namespace {

std::string key(int i) { return "key" + std::to_string(i); }
std::string value(int i) { return std::string(static_cast<size_t>(i * i) % 5000, 'a' + i % 26); }

TEST(RecordPage, KeepsWhatWasAddedWhereItIs) {
  RecordPage page;
  EXPECT_TRUE(page.empty());
  page.add("first", "");
  const RecordRef first = page.front();
  for (int i = 0; i < 1000; ++i) page.add(key(i), value(i));
  page.add("large", std::string(1'000'000, 'l'));
  page.add("", "after");
  EXPECT_EQ(first.key.data(), page[0].key.data()) << "growing moves nothing";
  RecordPage moved = std::move(page);
  ASSERT_EQ(moved.size(), 1003u);
  page.add("again", "a");
  EXPECT_EQ(page.front().key, "again") << "what was moved from is empty";
  page = std::move(moved);
  std::swap(page, moved);
  EXPECT_EQ(first.key, "first");
  for (int i = 0; i < 1000; ++i) {
    const Record copy = moved[static_cast<size_t>(i) + 1].copy();
    ASSERT_EQ(copy.key, key(i));
    ASSERT_EQ(copy.value, value(i));
  }
  EXPECT_EQ(moved[1001].value.size(), 1'000'000u);
  EXPECT_EQ(moved.back().key, "");
  EXPECT_EQ(moved.back().value, "after");
}

TEST(RecordPage, IsReadInOrder) {
  RecordPage page;
  for (int i = 0; i < 10; ++i) page.add(key(i), value(i));
  page.truncate(20);
  EXPECT_EQ(page.size(), 10u);
  page.truncate(7);
  int next = 0;
  for (const RecordRef record : page) {
    EXPECT_EQ(record.key, key(next));
    EXPECT_EQ(record.value, value(next++));
  }
  EXPECT_EQ(next, 7);
  page.add("more", "m");
  EXPECT_EQ(page.back().value, "m");
  page.clear();
  EXPECT_TRUE(page.empty());
  EXPECT_TRUE(page.begin() == page.end());
}

}  // namespace
}  // namespace pmstore
