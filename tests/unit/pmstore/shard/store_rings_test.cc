// Whose ring it is, and what is said of the transactions of those whose ring it was.
#include <gtest/gtest.h>

#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

// Neither from the log nor from the notes of the ring that the client has now.
TEST(StoreRings, TransactionThatLeftWithItsRingIsExpiredNotAbortedInTheNextRingOfItsClient) {
  constexpr uint64_t kHere = 5;
  constexpr uint64_t kOther = 6;
  StoreInRegion s(2 << 20);
  Store& store = s.store();
  ASSERT_TRUE(store.take_ring(0, kHere, 0, 0));
  const TxId id{kHere, store.session_sequence(0)};
  const auto message =
      TransactionMessage(id.sequence).write(WriteKind::kPut, s.table(), "alice", "1").message();
  ASSERT_TRUE(store.commit(store.rings()[0], *decode_commit(kHere, message)));
  ASSERT_EQ(*store.outcome(id, false, 0), Outcome::kCommitted);
  ASSERT_TRUE(store.take_ring(0, kOther, 0, 0));
  ASSERT_TRUE(store.take_ring(1, kHere, 0, 0));
  EXPECT_EQ(s.get("alice")->value, "1");
  EXPECT_EQ(store.outcome(id, false, 0).code(), ErrorCode::kOutcomeExpired);
}

}  // namespace
}  // namespace pmstore::internal
