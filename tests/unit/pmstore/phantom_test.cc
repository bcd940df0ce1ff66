// Lock discipline rnic: what a transaction found absent is still absent when it commits, also when
// its own reservation changes the same bucket meanwhile.
#include "pmstore/layout/bucket_layout.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore {
namespace {

class Phantom : public testing::ClientFixture {
 protected:
  void SetUp() override { ClientFixture::SetUp(LockDiscipline::kRnic); }
  // A key of the bucket of `key`, whatever the number of buckets (a power of two up to kBuckets).
  std::string neighbour_of(std::string_view key) const {
    constexpr uint64_t kBuckets = 8192;
    const uint64_t bucket = hash_key(table_, key).bucket(kBuckets);
    for (int i = 1;; ++i) {
      std::string other = std::string(key) + std::to_string(i);
      if (hash_key(table_, other).bucket(kBuckets) == bucket) return other;
    }
  }
};

TEST_F(Phantom, InsertBesideAForeignInsertInTheSameBucketConflicts) {
  auto other = connect();
  Transaction tx = client_->begin();
  ASSERT_EQ(run(tx.get(table_, "k")).code(), ErrorCode::kNotFound);
  ASSERT_TRUE(run(other->insert(table_, "k", "theirs")));
  tx.insert(table_, neighbour_of("k"), "mine, as k is absent");
  EXPECT_EQ(run(tx.commit()).code(), ErrorCode::kConflict);
  run(other->close());
}

TEST_F(Phantom, OwnInsertInTheSameBucketIsNoConflict) {
  Transaction tx = client_->begin();
  ASSERT_EQ(run(tx.get(table_, "k")).code(), ErrorCode::kNotFound);
  tx.insert(table_, neighbour_of("k"), "mine, as k is absent");
  const Status committed = run(tx.commit());
  EXPECT_TRUE(committed) << committed.error().to_string();
}

}  // namespace
}  // namespace pmstore
