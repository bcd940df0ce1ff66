// Delegations, without a server: who may cache a file, and whose recalls are confirmed.
#include <gtest/gtest.h>

#include "fs/internal/delegations.h"
#include "fs/internal/file_changes.h"
#include "fs/internal/kept_files.h"

namespace pmstore::fs {
namespace {

class DelegationsTest : public testing::Test {
 protected:
  static constexpr Ino kFile{7};
  static constexpr Ino kOtherFile{8};
  static constexpr OpenOwner kOne{1};
  static constexpr OpenOwner kTwo{2};
  static constexpr uint16_t kServer = 1;  // of the data
  static constexpr uint16_t kOtherServer = 2;

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
  UnlandedWrites unlanded;
  unlanded[kServer].inos = {kFile};
  delegations_.confirmed(kOne, 2, &unlanded);
  EXPECT_TRUE(delegations_.is_cached_beside(kTwo, kFile));
  EXPECT_FALSE(delegations_.is_cached_beside(kTwo, kOtherFile));
  EXPECT_FALSE(delegations_.must_hear(kOne, 2)) << "it has heard of it";
  delegations_.confirmed(kOne, 2);
  EXPECT_TRUE(delegations_.is_cached_beside(kTwo, kFile)) << "another list takes it back";
  const UnlandedWrites none;
  delegations_.confirmed(kOne, 2, &none);
  EXPECT_FALSE(delegations_.is_cached_beside(kTwo, kFile));
}

TEST_F(DelegationsTest, WritesThatMayLandInAnyFileHoldBackAll) {
  for (const Ino ino : {kFile, kOtherFile}) {
    EXPECT_TRUE(delegations_.opened(kOne, ino, true, true));
    EXPECT_FALSE(delegations_.opened(kTwo, ino, true, true));
  }
  UnlandedWrites unlanded;
  unlanded[kServer].any = true;
  delegations_.confirmed(kOne, 2, &unlanded);
  EXPECT_TRUE(delegations_.is_cached_beside(kTwo, kFile));
  EXPECT_TRUE(delegations_.is_cached_beside(kTwo, kOtherFile));
  delegations_.landed(kOne, kServer);
  EXPECT_FALSE(delegations_.is_cached_beside(kTwo, kFile));
  EXPECT_FALSE(delegations_.is_cached_beside(kTwo, kOtherFile));
}

TEST_F(DelegationsTest, EachDataServerAtWhichWritesMayLandHoldsAFileBack) {
  EXPECT_TRUE(delegations_.opened(kOne, kFile, true, true));
  EXPECT_FALSE(delegations_.opened(kTwo, kFile, true, true));
  UnlandedWrites unlanded;
  unlanded[kServer].inos = {kFile};
  unlanded[kOtherServer].inos = {kFile};
  delegations_.confirmed(kOne, 1, &unlanded);
  delegations_.landed(kOne, kServer);
  EXPECT_TRUE(delegations_.is_cached_beside(kTwo, kFile));
  delegations_.confirmed(kOne, 1, &unlanded);  // its client does not know that
  unlanded.erase(kOtherServer);
  delegations_.confirmed(kOne, 1, &unlanded);
  EXPECT_FALSE(delegations_.is_cached_beside(kTwo, kFile)) << "its sessions there were ended";
}

TEST_F(DelegationsTest, AFileThatIsClosedHoldsBackNothing) {
  EXPECT_TRUE(delegations_.opened(kOne, kFile, true, true));
  EXPECT_FALSE(delegations_.opened(kTwo, kFile, true, true));
  UnlandedWrites unlanded;
  unlanded[kServer].any = true;
  delegations_.confirmed(kOne, 1, &unlanded);
  delegations_.closed(kOne, kFile);
  EXPECT_FALSE(delegations_.is_cached_beside(kTwo, kFile));
  EXPECT_FALSE(delegations_.opened(kOne, kFile, false, true));
  delegations_.landed(kOne, kServer);
  EXPECT_FALSE(delegations_.caches(kOne));
}

TEST_F(DelegationsTest, AFileThatWasClosedAndOpenedAgainIsCachedAnew) {
  EXPECT_TRUE(delegations_.opened(kOne, kOtherFile, false, true));  // it stays known
  EXPECT_TRUE(delegations_.opened(kOne, kFile, true, true));
  EXPECT_FALSE(delegations_.opened(kTwo, kFile, true, true));
  UnlandedWrites unlanded;
  unlanded[kServer].inos = {kFile};
  delegations_.confirmed(kOne, 1, &unlanded);
  delegations_.closed(kOne, kFile);
  delegations_.closed(kTwo, kFile);
  EXPECT_TRUE(delegations_.opened(kOne, kFile, true, true));
  delegations_.landed(kOne, kServer);
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

// ---- when a file could be changed ----

TEST(FileChanges, AreThoseOfOtherClients) {
  constexpr Ino kFile{7};
  internal::FileChanges changes(3);
  EXPECT_EQ(changes.last_by_others(OpenOwner{1}, kFile), changes.now()) << "before this start";
  const uint64_t before = changes.now();
  changes.begin(OpenOwner{1}, kFile);
  EXPECT_LE(changes.last_by_others(OpenOwner{1}, kFile), before);
  EXPECT_GT(changes.last_by_others(OpenOwner{2}, kFile), before);
  const uint64_t between = changes.now();
  changes.begin(OpenOwner{2}, kFile);
  changes.begin(OpenOwner{1}, kFile);
  EXPECT_GT(changes.last_by_others(OpenOwner{1}, kFile), between) << "by the second one";
  changes.begin(OpenOwner{1}, kFile);
  EXPECT_GT(changes.last_by_others(OpenOwner{1}, kFile), between);
  EXPECT_EQ(changes.last_by_others(OpenOwner{3}, kFile), changes.now());
  EXPECT_GT(internal::FileChanges(4).now(), changes.now()) << "a later start";
}

TEST(FileChanges, HaveABoundAndCountWhatIsDropped) {
  internal::FileChanges changes(1);
  const uint64_t before = changes.now();
  for (uint64_t ino = 0; ino <= internal::FileChanges::kMost; ++ino) {
    changes.begin(OpenOwner{1}, Ino{ino});
  }
  EXPECT_EQ(changes.files(), internal::FileChanges::kMost);
  EXPECT_EQ(changes.last_by_others(OpenOwner{2}, Ino{0}), before + 1);
  EXPECT_EQ(changes.last_by_others(OpenOwner{1}, Ino{0}), before + 1)
      << "whose it was is not known";
  EXPECT_EQ(changes.last_by_others(OpenOwner{2}, Ino{1}), before + 2);
  EXPECT_EQ(changes.last_by_others(OpenOwner{2}, Ino{1u << 30}), before + 1);
}

TEST(KeptFiles, HaveABound) {
  internal::KeptFiles kept;
  for (uint64_t ino = 0; ino < internal::KeptFiles::kMost; ++ino) {
    EXPECT_FALSE(kept.delegated(Ino{ino}, 5, 5));
  }
  EXPECT_TRUE(kept.delegated(Ino{0}, 6, 5));
  EXPECT_FALSE(kept.delegated(Ino{0}, 8, 7));
  EXPECT_FALSE(kept.delegated(Ino{1u << 30}, 6, 5));
  EXPECT_EQ(kept.files(), 1u);
  for (uint64_t ino = 0; ino <= internal::KeptFiles::kMost; ++ino) kept.doubt(Ino{ino});
  EXPECT_FALSE(kept.delegated(Ino{1u << 31}, 9, 5));
  EXPECT_FALSE(kept.delegated(Ino{1u << 31}, 9, 5)) << "there are more than are remembered";
}

}  // namespace
}  // namespace pmstore::fs
