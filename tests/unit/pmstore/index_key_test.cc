// Entries of secondary indexes: their order, what they say, and their limits.
#include "pmstore/index_key.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace pmstore {
namespace {

// By the whole value.
IndexDefinition by_value(IndexKind kind) {
  return {kind, [](std::string_view, std::string_view value) { return std::string(value); }};
}

std::string entry_key(std::string_view index_key, std::string_view key) {
  const auto entry = index_entry_of(by_value(IndexKind::kMany), key, index_key);
  EXPECT_TRUE(entry && *entry);
  return (*entry)->key;
}

// Of few different bytes, so that many begin alike.
std::string any_text(std::mt19937_64& random, size_t least) {
  constexpr std::string_view kBytes(
      "\0\x01\xfe\xff"
      "a",
      5);
  std::string text;
  for (size_t i = least + random() % 4; i > 0; --i) text += kBytes[random() % kBytes.size()];
  return text;
}

TEST(IndexKey, EntriesAreInTheOrderOfIndexKeysAndThenOfKeys) {
  std::mt19937_64 random(1);
  using Pair = std::pair<std::string, std::string>;
  std::vector<Pair> pairs;
  for (int i = 0; i < 1000; ++i) pairs.push_back({any_text(random, 0), any_text(random, 1)});
  for (const Pair& a : pairs) {
    for (const Pair& b : pairs) {
      ASSERT_EQ(a < b, entry_key(a.first, a.second) < entry_key(b.first, b.second));
    }
  }
}

TEST(IndexKey, EntriesSayWhatTheyWereMadeOf) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 1000; ++i) {
    const std::string index_key = any_text(random, 1);
    const std::string key = any_text(random, 1);
    for (const IndexKind kind : {IndexKind::kMany, IndexKind::kUnique}) {
      const auto entry = index_entry_of(by_value(kind), key, index_key);
      ASSERT_TRUE(entry && *entry);
      const auto read = read_index_entry(kind, (*entry)->key, (*entry)->value);
      ASSERT_TRUE(read);
      EXPECT_EQ(read->index_key, index_key);
      EXPECT_EQ(read->key, key);
    }
  }
}

TEST(IndexKey, RangesHaveTheEntriesOfTheirIndexKeys) {
  std::mt19937_64 random(3);
  const auto holds = [](const KeyRange& range, std::string_view key) {
    return key >= range.from && (range.to.empty() || key < range.to);
  };
  for (int i = 0; i < 2000; ++i) {
    const KeyRange range{any_text(random, 0), any_text(random, 0)};
    const std::string index_key = any_text(random, 1);
    const std::string key = any_text(random, 1);
    for (const IndexKind kind : {IndexKind::kMany, IndexKind::kUnique}) {
      const auto entry = index_entry_of(by_value(kind), key, index_key);
      EXPECT_EQ(holds(index_entries(kind, range), (*entry)->key), holds(range, index_key));
      EXPECT_EQ(holds(index_entries_of(kind, range.from), (*entry)->key), range.from == index_key);
    }
  }
}

TEST(IndexKey, RecordsWithoutAnIndexKeyHaveNoEntry) {
  const IndexDefinition field{IndexKind::kMany, key_of_field({2, 3})};
  EXPECT_FALSE(*index_entry_of(field, "key", "abcd"));
  EXPECT_EQ((*index_entry_of(field, "key", "abcdefg"))->key, std::string("cde\0\x01key", 8));
  const IndexDefinition large{IndexKind::kMany, key_of_field({UINT32_MAX, UINT32_MAX})};
  EXPECT_FALSE(*index_entry_of(large, "key", "abcd"));
}

TEST(IndexKey, EntriesThatAreTooLongAreRefused) {
  const std::string key(100, 'k');
  const auto many = by_value(IndexKind::kMany);
  EXPECT_TRUE(index_entry_of(many, key, std::string(410, 'i')));
  EXPECT_EQ(index_entry_of(many, key, std::string(411, 'i')).code(), ErrorCode::kTooLarge);
  EXPECT_TRUE(index_entry_of(many, key, std::string(205, '\0')));
  EXPECT_EQ(index_entry_of(many, key, std::string(206, '\0')).code(), ErrorCode::kTooLarge);
  const auto unique = by_value(IndexKind::kUnique);
  EXPECT_TRUE(index_entry_of(unique, key, std::string(512, 'i')));
  EXPECT_EQ(index_entry_of(unique, key, std::string(513, 'i')).code(), ErrorCode::kTooLarge);
  EXPECT_EQ(index_entry_of(unique, key, "").code(), ErrorCode::kInvalidArgument);
}

TEST(IndexKey, OtherRecordsAreNoEntries) {
  using std::string;
  for (const string& key : {string("plain"), string("a\0", 2), string("a\0\x01", 3),
                            string("a\0\x02k", 4), string("a\0\xff", 3)}) {
    EXPECT_FALSE(read_index_entry(IndexKind::kMany, key, "")) << key;
  }
  EXPECT_TRUE(read_index_entry(IndexKind::kMany, string("a\0\x01k", 4), ""));
  EXPECT_FALSE(read_index_entry(IndexKind::kMany, string("a\0\x01k", 4), "value"));
  EXPECT_FALSE(read_index_entry(IndexKind::kUnique, "a", ""));
}

}  // namespace
}  // namespace pmstore
