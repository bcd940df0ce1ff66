// Numbers of sessions: never twice, and durable seldom.
#include "pmstore/shard/session_numbers.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

TEST(SessionNumbers, SayWhereTransactionsAreLogged) {
  StoreInRegion s(2 << 20);
  const uint64_t cpu = *s.store().begin_session();
  EXPECT_TRUE(is_in_shard_log(cpu));
  ASSERT_TRUE(s.store().take_ring(1, 9, 0, 0));
  EXPECT_FALSE(is_in_shard_log(s.store().session_sequence(1)));
  EXPECT_GT(s.store().session_sequence(1), cpu);
}

TEST(SessionNumbers, AreDurableInBlocks) {
  StoreInRegion s(2 << 20);
  ASSERT_TRUE(s.store().begin_session());
  const uint64_t before = s.pool().memory().stats().drains;
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(s.store().begin_session());
  EXPECT_LE(s.pool().memory().stats().drains - before, 2 * 1000 / SessionNumbers::kBlock + 1);
}

TEST(SessionNumbers, AreNotUsedAgainByTheNextProcess) {
  StoreInRegion s(2 << 20);
  uint64_t last = 0;
  for (int i = 0; i < 10; ++i) {
    const uint64_t number = *s.store().begin_session();
    EXPECT_GT(number, last);
    last = number;
    if (i % 2 == 1) {
      ASSERT_TRUE(s.store().close());
    }
    s.reopen();
  }
}

TEST(SessionNumbers, AnOrderlyEndGivesBackWhatWasNotUsed) {
  StoreInRegion s(2 << 20);
  const uint64_t first = *s.store().begin_session();
  ASSERT_TRUE(s.store().close());
  EXPECT_EQ(s.store().catalog().header().sessions, session_of(first));
}

TEST(SessionNumbers, EndWithAnError) {
  StoreInRegion s(2 << 20);
  TableCatalog& catalog = s.store().catalog();
  ASSERT_TRUE(catalog.count_sessions(std::numeric_limits<uint32_t>::max() - 2));
  SessionNumbers numbers(catalog);
  EXPECT_TRUE(numbers.next(false));
  EXPECT_TRUE(numbers.next(true));
  EXPECT_EQ(numbers.next(true).code(), ErrorCode::kFull);
  EXPECT_EQ(numbers.next(false).code(), ErrorCode::kFull);
}

}  // namespace
}  // namespace pmstore::internal
