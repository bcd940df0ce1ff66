// Ranges of ordered tables are erased, one transaction after the other.
#include "tests/scenario/store/ordered_tables.h"

namespace pmstore::scenario {
namespace {

class RangesErased : public OrderedTables {};
PMSTORE_STORE_SCENARIOS(RangesErased);

TEST_P(RangesErased, ByOneTransactionAfterTheOther) {
  const int count = times(700, 70);
  fill(count);
  KeyRange range{"k1010", ""};
  uint64_t erased = 0;
  int transactions = 0;
  for (bool complete = false; !complete; ++transactions) {
    Transaction tx = client_->begin();
    const auto some = run(tx.erase_range(table_, range, 30));
    ASSERT_TRUE(some) << some.error().to_string();
    EXPECT_LE(some->erased, 30u);
    EXPECT_TRUE(scan(tx, {range.from, some->rest.from}).empty()) << "it sees its own erases";
    ASSERT_TRUE(run(tx.commit()));
    erased += some->erased;
    range = some->rest;
    complete = some->complete;
    // Behind the transactions that were there already.
    if (transactions == 0) {
      ASSERT_TRUE(put(*other_, "k1010a", "behind"));
    }
  }
  EXPECT_EQ(erased, static_cast<uint64_t>(count - 10));
  Transaction after = client_->begin();
  EXPECT_EQ(scan(after, {}).size(), 11u) << "ten before the range, and one that came later";
}

TEST_P(RangesErased, HaveNoOtherRecordsAtTheCommit) {
  fill(20);
  Transaction tx = client_->begin();
  tx.insert(table_, "k1005a", "mine");
  tx.erase(table_, "k1006");
  const auto all = run(tx.erase_range(table_, {"k1005", "k1008"}, 100));
  ASSERT_TRUE(all) << all.error().to_string();
  EXPECT_EQ(all->erased, 3u) << "k1005, k1005a, k1007";
  EXPECT_TRUE(all->complete);
  ASSERT_TRUE(put(*other_, "k1005b", "phantom"));
  EXPECT_EQ(run(tx.commit()).code(), ErrorCode::kConflict);
  Transaction again = client_->begin();
  EXPECT_EQ(run(again.erase_range(table_, {"k1005", "k1008"}, 2))->erased, 2u);
  EXPECT_TRUE(run(again.commit()));
  Transaction after = client_->begin();
  EXPECT_EQ(scan(after, {"k1005", "k1009"}), (Keys{"k1006", "k1007", "k1008"}));
  Transaction none = client_->begin();
  const auto nothing = run(none.erase_range(table_, {"x", ""}, 5));
  ASSERT_TRUE(nothing && nothing->complete);
  EXPECT_EQ(nothing->erased, 0u);
  EXPECT_TRUE(run(none.commit()));
}

}  // namespace
}  // namespace pmstore::scenario
