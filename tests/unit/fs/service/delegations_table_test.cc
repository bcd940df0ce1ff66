// Delegations, without a server: who may cache a file, and whose recalls are confirmed.
#include <gtest/gtest.h>

#include "fs/internal/delegations.h"

namespace pmstore::fs {
namespace {

class DelegationsTest : public testing::Test {
 protected:
  static constexpr Ino kFile{7};
  static constexpr Ino kOtherFile{8};
  static constexpr OpenOwner kOne{1};
  static constexpr OpenOwner kTwo{2};

  DelegationsTest() {
    delegations_.on_recall = [this](Ino) { return ++news_; };
  }

  uint64_t news_ = 0;
  internal::Delegations delegations_;
};

TEST_F(DelegationsTest, ARecallIsConfirmedButForFilesInWhichWritesMayLand) {
  for (const Ino ino : {kFile, kOtherFile}) {
    EXPECT_TRUE(delegations_.opened(kOne, ino, true, true));
    EXPECT_FALSE(delegations_.opened(kTwo, ino, true, true));
    EXPECT_TRUE(delegations_.is_cached_beside(kTwo, ino));
  }
  EXPECT_EQ(news_, 2u);
  UnlandedFiles unlanded;
  unlanded.inos = {kFile};
  delegations_.confirmed(kOne, 2, &unlanded);
  EXPECT_TRUE(delegations_.is_cached_beside(kTwo, kFile));
  EXPECT_FALSE(delegations_.is_cached_beside(kTwo, kOtherFile));
  EXPECT_FALSE(delegations_.must_hear(kOne, 2)) << "it has heard of it";
  delegations_.confirmed(kOne, 2);
  EXPECT_TRUE(delegations_.is_cached_beside(kTwo, kFile)) << "another list takes it back";
  const UnlandedFiles none;
  delegations_.confirmed(kOne, 2, &none);
  EXPECT_FALSE(delegations_.is_cached_beside(kTwo, kFile));
}

TEST_F(DelegationsTest, WritesThatMayLandInAnyFileHoldBackAll) {
  for (const Ino ino : {kFile, kOtherFile}) {
    EXPECT_TRUE(delegations_.opened(kOne, ino, true, true));
    EXPECT_FALSE(delegations_.opened(kTwo, ino, true, true));
  }
  UnlandedFiles unlanded;
  unlanded.any = true;
  delegations_.confirmed(kOne, 2, &unlanded);
  EXPECT_TRUE(delegations_.is_cached_beside(kTwo, kFile));
  EXPECT_TRUE(delegations_.is_cached_beside(kTwo, kOtherFile));
  delegations_.landed(kOne);
  EXPECT_FALSE(delegations_.is_cached_beside(kTwo, kFile));
  EXPECT_FALSE(delegations_.is_cached_beside(kTwo, kOtherFile));
}

TEST_F(DelegationsTest, AFileThatIsClosedHoldsBackNothing) {
  EXPECT_TRUE(delegations_.opened(kOne, kFile, true, true));
  EXPECT_FALSE(delegations_.opened(kTwo, kFile, true, true));
  UnlandedFiles unlanded;
  unlanded.any = true;
  delegations_.confirmed(kOne, 1, &unlanded);
  delegations_.closed(kOne, kFile);
  EXPECT_FALSE(delegations_.is_cached_beside(kTwo, kFile));
  EXPECT_FALSE(delegations_.opened(kOne, kFile, false, true));
  delegations_.landed(kOne);
  EXPECT_FALSE(delegations_.caches(kOne));
}

TEST_F(DelegationsTest, AFileThatWasClosedAndOpenedAgainIsCachedAnew) {
  EXPECT_TRUE(delegations_.opened(kOne, kOtherFile, false, true));  // it stays known
  EXPECT_TRUE(delegations_.opened(kOne, kFile, true, true));
  EXPECT_FALSE(delegations_.opened(kTwo, kFile, true, true));
  UnlandedFiles unlanded;
  unlanded.inos = {kFile};
  delegations_.confirmed(kOne, 1, &unlanded);
  delegations_.closed(kOne, kFile);
  delegations_.closed(kTwo, kFile);
  EXPECT_TRUE(delegations_.opened(kOne, kFile, true, true));
  delegations_.landed(kOne);
  EXPECT_FALSE(delegations_.opened(kTwo, kFile, true, true));
  EXPECT_TRUE(delegations_.is_cached_beside(kTwo, kFile)) << "what landed was of the open before";
}

TEST_F(DelegationsTest, WhoDoesNotWantToCacheIsNotWaitedFor) {
  EXPECT_FALSE(delegations_.opened(kOne, kFile, true, false));
  EXPECT_FALSE(delegations_.caches(kOne));
  EXPECT_FALSE(delegations_.opened(kTwo, kFile, true, true));
  EXPECT_EQ(news_, 0u);
  EXPECT_FALSE(delegations_.is_cached_beside(kTwo, kFile));
}

TEST_F(DelegationsTest, AClientDoesNotWaitForItself) {
  EXPECT_TRUE(delegations_.opened(kOne, kFile, true, true));
  EXPECT_FALSE(delegations_.opened(kTwo, kFile, true, true));
  EXPECT_FALSE(delegations_.is_cached_beside(kOne, kFile));
  EXPECT_TRUE(delegations_.is_cached_beside(kTwo, kFile));
}

TEST_F(DelegationsTest, AChangeThatHasEndedRecallsNothing) {
  EXPECT_TRUE(delegations_.opened(kOne, kFile, false, true));
  delegations_.begin_change(kOne, kFile);
  delegations_.end_change(kOne, kFile);
  EXPECT_TRUE(delegations_.opened(kTwo, kFile, false, true));
  EXPECT_EQ(news_, 0u);
  delegations_.begin_change(kOne, kFile);
  EXPECT_EQ(news_, 1u);
  delegations_.end_change(kOne, kFile);
}

}  // namespace
}  // namespace pmstore::fs
