// Delegations, without a server: who may cache a file, and whose recalls are confirmed.
#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

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
  EXPECT_EQ(changes.last_by_others(OpenOwner{1}, kFile), before) << "before this start";
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

TEST(FileChanges, MayBeThoseOfAnyFile) {
  internal::FileChanges changes(1);
  changes.begin(OpenOwner{1}, Ino{7});
  const uint64_t before = changes.now();
  changes.begin_all();
  EXPECT_GT(changes.last_by_others(OpenOwner{1}, Ino{7}), before);
  EXPECT_GT(changes.last_by_others(OpenOwner{2}, Ino{8}), before);
  EXPECT_EQ(changes.files(), 0u);
}

// ---- writes that were given up ----

TEST_F(DelegationsTest, AFileInWhichAnothersWriteMayLandChangesAtAnyTime) {
  UnlandedWrites unlanded;
  unlanded[kServer].inos = {kFile};
  unlanded[kOtherServer].inos = {kFile};
  delegations_.confirmed(kOne, 0, &unlanded);  // it has closed the file
  EXPECT_EQ(delegations_.changed_by_others(kTwo, kFile), UINT64_MAX);
  EXPECT_LE(delegations_.changed_by_others(kOne, kFile), delegations_.changes());
  EXPECT_LE(delegations_.changed_by_others(kTwo, kOtherFile), delegations_.changes());
  delegations_.landed(kOne, kServer);
  EXPECT_EQ(delegations_.changed_by_others(kTwo, kFile), UINT64_MAX) << "at the other server";
  const uint64_t before = delegations_.changes();
  const UnlandedWrites none;
  delegations_.confirmed(kOne, 0, &none);
  EXPECT_GT(delegations_.changed_by_others(kTwo, kFile), before) << "it may have landed just now";
  EXPECT_LE(delegations_.changed_by_others(kTwo, kFile), delegations_.changes());
  EXPECT_LE(delegations_.changed_by_others(kTwo, kOtherFile), before);
}

TEST_F(DelegationsTest, AWriteInAnyFileThatLandsMayChangeAll) {
  UnlandedWrites unlanded;
  unlanded[kServer].any = true;
  delegations_.confirmed(kOne, 0, &unlanded);
  EXPECT_EQ(delegations_.changed_by_others(kTwo, kFile), UINT64_MAX);
  const uint64_t before = delegations_.changes();
  delegations_.drop(kOne);
  EXPECT_GT(delegations_.changed_by_others(kTwo, kFile), before);
  EXPECT_LE(delegations_.changed_by_others(kTwo, kFile), delegations_.changes());
}

TEST_F(DelegationsTest, EachRecallHasItsOwnTimeAtADataServer) {
  UnlandedWrites unlanded;
  unlanded[kServer].inos = {kFile, kOtherFile};
  uint64_t now_ns = 100;
  for (const Ino ino : {kFile, kOtherFile}) {
    EXPECT_TRUE(delegations_.opened(kOne, ino, true, true));
    EXPECT_FALSE(delegations_.opened(kTwo, ino, true, true));
    delegations_.confirmed(kOne, news_, &unlanded, now_ns);
    now_ns += 100;
  }
  delegations_.give_up(kOne, kServer, 99);
  EXPECT_TRUE(delegations_.is_cached_beside(kTwo, kFile));
  delegations_.give_up(kOne, kOtherServer, 300);
  EXPECT_TRUE(delegations_.is_cached_beside(kTwo, kFile));
  delegations_.give_up(kOne, kServer, 100);
  EXPECT_FALSE(delegations_.is_cached_beside(kTwo, kFile));
  EXPECT_TRUE(delegations_.is_cached_beside(kTwo, kOtherFile)) << "it was recalled later";
  EXPECT_EQ(delegations_.changed_by_others(kTwo, kFile), UINT64_MAX);
  delegations_.give_up(kOne, kServer, 200);
  EXPECT_FALSE(delegations_.is_cached_beside(kTwo, kOtherFile));
}

// ---- what a client keeps ----

using internal::KeptFiles;
using internal::OwnChange;

TEST(KeptFilesTest, AreThoseWhoseCacheWasUsed) {
  KeptFiles kept;
  constexpr Ino kFile{7};
  {
    KeptFiles::Opened opened(kept, kFile, 5);
    EXPECT_FALSE(kept.is_right(kFile, 5)) << "what was cached before may not be dropped yet";
  }
  EXPECT_FALSE(kept.is_right(kFile, 5)) << "the open was given up";
  KeptFiles::Opened opened(kept, kFile, 6);
  opened.use();
  EXPECT_TRUE(kept.is_right(kFile, 6));
  EXPECT_FALSE(kept.is_right(kFile, 7));
  kept.forget(kFile);
  opened.use();
  EXPECT_FALSE(kept.is_right(kFile, 6)) << "it was used already";
}

TEST(KeptFilesTest, AreNotThoseThatWereForgottenMeanwhile) {
  KeptFiles kept;
  constexpr Ino kFile{7};
  KeptFiles::Opened first(kept, kFile, 5);
  kept.forget(kFile);
  KeptFiles::Opened second(kept, kFile, 6);
  first.use();
  EXPECT_FALSE(kept.is_right(kFile, 5));
  second.use();
  EXPECT_TRUE(kept.is_right(kFile, 6));
  KeptFiles::Opened third(kept, kFile, 7);
  kept.clear();
  third.use();
  EXPECT_FALSE(kept.is_right(kFile, 6));
}

TEST(KeptFilesTest, AnEarlierOpenThatIsUsedLaterTakesNothingBack) {
  KeptFiles kept;
  constexpr Ino kFile{7};
  KeptFiles::Opened first(kept, kFile, 5);
  KeptFiles::Opened second(kept, kFile, 6);
  second.use();
  first.use();
  EXPECT_TRUE(kept.is_right(kFile, 6));
}

TEST(KeptFilesTest, AreDoubtfulUntilWritesThatWereGivenUpHaveLanded) {
  KeptFiles kept;
  std::vector<Ino> told;
  kept.on_doubt = [&](Ino ino) { told.push_back(ino); };
  constexpr Ino kFile{7};
  const auto keeps = [&] {
    KeptFiles::Opened(kept, kFile, 5).use();
    return kept.is_right(kFile, 5);
  };
  const auto change = [&](int number) {
    OwnChange own(kept, kFile);
    own.ended(number);
  };
  for (const int refusal : {0, ENOSPC, EFBIG, EINVAL, EOPNOTSUPP}) {
    change(refusal);
    EXPECT_FALSE(kept.is_right(kFile, 5));
    EXPECT_TRUE(keeps()) << refusal;
  }
  EXPECT_TRUE(told.empty());
  change(EIO);
  EXPECT_FALSE(keeps());
  const uint64_t doubts = kept.doubts();
  { const OwnChange destroyed(kept, kFile); }
  kept.settle(doubts);
  EXPECT_FALSE(keeps()) << "there is another one since";
  kept.settle(kept.doubts());
  EXPECT_TRUE(keeps());
  EXPECT_EQ(told, (std::vector<Ino>{kFile, kFile}));
}

TEST(KeptFilesTest, HaveABound) {
  KeptFiles kept;
  const auto use = [&](uint64_t ino) { KeptFiles::Opened(kept, Ino{ino}, 5).use(); };
  for (uint64_t ino = 0; ino < KeptFiles::kMost; ++ino) use(ino);
  EXPECT_TRUE(kept.is_right(Ino{0}, 5));
  use(0);
  EXPECT_EQ(kept.files(), KeptFiles::kMost);
  use(1u << 30);
  EXPECT_EQ(kept.files(), 1u);
  for (uint64_t ino = 0; ino <= KeptFiles::kMost; ++ino) kept.doubt(Ino{ino});
  use(1u << 31);
  EXPECT_FALSE(kept.is_right(Ino{1u << 31}, 5)) << "there are more than are remembered";
  kept.settle(kept.doubts());
  use(1u << 31);
  EXPECT_TRUE(kept.is_right(Ino{1u << 31}, 5));
}

}  // namespace
}  // namespace pmstore::fs
