// Where records lie.
#include <gtest/gtest.h>

#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

TEST(StoreSlabs, NoRecordLiesInAnotherThatSpansChunks) {
  StoreInRegion s(2 << 20, {2, 256 << 10});
  const auto large = [](int i) { return std::string(100'000, static_cast<char>('a' + i % 26)); };
  int count = 0;
  for (; s.store().arena().free_chunks() > 4; ++count) {
    ASSERT_TRUE(s.put("large" + std::to_string(count), large(count)));
  }
  ASSERT_GT(count, 2);
  Status status;
  for (int i = 0; (status = s.put("small" + std::to_string(i), std::string(20'000, 's'))); ++i) {
  }
  ASSERT_EQ(status.code(), ErrorCode::kFull);
  for (int i = 0; i < count; ++i) {
    const auto got = s.get("large" + std::to_string(i));
    ASSERT_TRUE(got) << got.error().to_string();
    EXPECT_EQ(got->value, large(i));
  }
}

}  // namespace
}  // namespace pmstore::internal
