// check_namespace(): a file system that is used is clean; damage is found, and mended.
#include <fcntl.h>

#include <memory>

#include "fs/internal/findings_judge.h"
#include "fs/layout/fs_layout.h"
#include "tests/unit/fs/namespace_fixture.h"

namespace pmstore::fs {
namespace {

class Check : public NamespaceTest {
 protected:
  NamespaceFindings check(bool repair = false) {
    auto found = run(check_namespace(*client_, space_.sections(), repair));
    EXPECT_TRUE(found) << found.error().to_string();
    return found ? *found : NamespaceFindings{};
  }
  TableId table(std::string_view name) { return *run(client_->open_table(name)); }
  // Damages, finds that, mends it, and finds nothing.
  void expect_repair(std::string_view damage) {
    namespace_.reset();
    const NamespaceFindings found = check();
    EXPECT_GT(found.found, 0u);
    bool named = false;
    for (const std::string& line : found.damage) named |= line.find(damage) != line.npos;
    EXPECT_TRUE(named) << damage << "\n" << ::testing::PrintToString(found.damage);
    const NamespaceFindings repaired = check(true);
    EXPECT_EQ(repaired.found, 0u) << ::testing::PrintToString(repaired.damage);
    EXPECT_FALSE(repaired.repaired.empty());
    EXPECT_EQ(check().found, 0u);
    client_.reset();
    space_.restart();
    start();
  }
  internal::Inode inode(Ino ino) {
    return *internal::decode_inode(ino,
                                   *run(client_->get(table(".fs.inodes"), internal::ino_key(ino))));
  }
  void put(const internal::Inode& changed) {
    ASSERT_TRUE(run(client_->put(table(".fs.inodes"), internal::ino_key(changed.attributes.ino),
                                 internal::encode(changed))));
  }
};

TEST_F(Check, AUsedFileSystemIsClean) {
  const Ino a = directory("a"), b = directory("b", a);
  const Ino f = file("f", b);
  EXPECT_EQ(write(f, 0, std::string(300'000, 'x')), 0);
  ASSERT_TRUE(run(fs().link(root(), f, a, "l")));
  ASSERT_TRUE(run(fs().set_xattr(root(), f, "user.a", as_bytes("1"), XattrMode::kSet)));
  const Ino open = run(fs().make(root(), a, "open", {}, OpenOwner{1}))->ino;
  EXPECT_EQ(write(open, 0, std::string(100'000, 'x')), 0);
  EXPECT_EQ(unlink("open", a), 0);
  space_.failing_cleans = 1000;
  EXPECT_EQ(truncate(f, 70'000), 0);
  const NamespaceFindings found = check();
  EXPECT_EQ(found.found, 0u) << ::testing::PrintToString(found.damage);
  EXPECT_EQ(found.inodes, 5u);
  EXPECT_EQ(found.directories, 3u);
  EXPECT_GE(found.extents, 2u);
}

TEST_F(Check, WrongCountsAreCorrected) {
  const Ino d = directory("d"), f = file("f", d);
  internal::Inode wrong = inode(d);
  wrong.attributes.links = 7;
  wrong.attributes.size = 9;
  put(wrong);
  wrong = inode(f);
  wrong.attributes.links = 3;
  wrong.attributes.data_bytes = kUnitBytes;
  put(wrong);
  expect_repair("link count 3");
  EXPECT_EQ(stat(d).links, 2u);
  EXPECT_EQ(stat(d).size, 1u);
  EXPECT_EQ(stat(f).links, 1u);
}

TEST_F(Check, AFileWithoutANameGoesToLostAndFound) {
  const Ino d = directory("d"), f = file("f", d);
  EXPECT_EQ(write(f, 0, "found"), 0);
  ASSERT_TRUE(run(client_->erase(table(".fs.entries"), internal::entry_key(d, "f"))));
  expect_repair("cannot be reached");
  const Ino lost = lookup("lost+found");
  EXPECT_EQ(lookup("#" + std::to_string(raw(f)), lost), f);
  EXPECT_EQ(read(f), "found");
  EXPECT_EQ(stat(d).size, 0u);
}

TEST_F(Check, ALoopOfDirectoriesIsCutOff) {
  const Ino a = directory("a"), b = directory("b", a), c = directory("c", b);
  file("f", c);
  // a/b becomes a/b/c/b's content: b lies in c, c in b.
  const auto entry = run(client_->get(table(".fs.entries"), internal::entry_key(a, "b")));
  ASSERT_TRUE(run(client_->erase(table(".fs.entries"), internal::entry_key(a, "b"))));
  ASSERT_TRUE(run(client_->put(table(".fs.entries"), internal::entry_key(c, "b"), *entry)));
  namespace_.reset();
  EXPECT_GT(check().found, 0u);
  (void)check(true);
  bool reachable = false;
  for (const std::string& line : check().damage) reachable |= line.find("reached") != line.npos;
  EXPECT_FALSE(reachable);
}

TEST_F(Check, AnEntryOfNothingIsRemoved) {
  const Ino f = file("f");
  ASSERT_TRUE(run(client_->erase(table(".fs.inodes"), internal::ino_key(f))));
  expect_repair("names inode");
  EXPECT_EQ(lookup_error("f"), ENOENT);
  EXPECT_EQ(stat(kRootIno).size, 0u);
}

TEST_F(Check, NumbersAreMended) {
  const Ino f = file("f"), g = file("g");
  ASSERT_TRUE(run(client_->erase(table(".fs.numbers"), internal::number_key(kRootIno, 1))));
  ASSERT_TRUE(
      run(client_->put(table(".fs.numbers"), internal::number_key(kRootIno, 77),
                       internal::encode(internal::NumberedName{g, FileType::kRegular, "gone"}))));
  expect_repair("number");
  EXPECT_EQ(names(kRootIno), (std::vector<std::string>{"g", "f"}));
  EXPECT_EQ(lookup("f"), f);
}

TEST_F(Check, AMissingNumberIsDamageToThoseWhoRemove) {
  const Ino f = file("f");
  ASSERT_TRUE(run(client_->erase(table(".fs.numbers"), internal::number_key(kRootIno, 1))));
  const auto unlinked = run(fs().unlink(root(), kRootIno, "f"));
  ASSERT_FALSE(unlinked);
  EXPECT_EQ(unlinked.number(), EIO);
  EXPECT_NE(unlinked.error().message.find("pmstore fs check"), std::string::npos);
  ASSERT_TRUE(run(client_->erase(table(".fs.inodes"), internal::ino_key(f))));
  expect_repair("names inode");
  EXPECT_EQ(lookup_error("f"), ENOENT);
}

TEST_F(Check, EntriesWithOneNumberGetTwo) {
  const Ino f = file("f"), g = file("g");
  ASSERT_TRUE(run(client_->put(table(".fs.entries"), internal::entry_key(kRootIno, "g"),
                               internal::encode(internal::Entry{g, FileType::kRegular, 1}))));
  expect_repair("the same number 1");
  EXPECT_EQ(names(kRootIno), (std::vector<std::string>{"f", "g"}));
  EXPECT_EQ(lookup("f"), f);
  EXPECT_EQ(unlink("g"), 0);
}

TEST_F(Check, AStrayExtentIsFreed) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, std::string(100'000, 'x')), 0);
  EXPECT_EQ(unlink("f"), 0);
  settle();
  const auto place = space_.allocate(0, kUnitBytes, kUnitBytes);
  ASSERT_TRUE(place);
  ASSERT_TRUE(
      run(client_->put(table(".fs.maps"), internal::map_key(f, 0), internal::encode(*place))));
  expect_repair("no file");
  settle();
  EXPECT_EQ(space_.used_bytes(), 0u);
}

TEST_F(Check, ASharedExtentIsKeptByTheFileThatHasChangedMore) {
  const Ino f = file("f"), g = file("g");
  EXPECT_EQ(write(f, 0, std::string(10'000, 'x')), 0);
  EXPECT_EQ(write(g, 0, std::string(10'000, 'y')), 0);
  const auto map = run(fs().map(f, 0, 1, false));
  ASSERT_TRUE(run(client_->put(table(".fs.maps"), internal::map_key(g, 0),
                               internal::encode(map->map.extents[0].place))));
  namespace_.reset();
  const NamespaceFindings found = check();
  ASSERT_EQ(found.found, 1u);
  EXPECT_NE(found.damage[0].find("belongs to inode"), std::string::npos);
  internal::Inode used = inode(g);
  used.attributes.version += 10;
  put(used);
  expect_repair("belongs to inode");
  EXPECT_EQ(read(g, 0, 2), "xx");
  EXPECT_EQ(read(f, 0, 2), std::string(2, '\0'));
}

TEST_F(Check, AFreedRangeGivesWayToAFile) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, std::string(3 * kUnitBytes, 'x')), 0);
  const auto map = run(fs().map(f, 0, 1, false));
  namespace_.reset();
  const AreaRange place = map->map.extents[0].place;
  const AreaRange wide{place.server, place.offset, place.bytes + 5 * kUnitBytes};
  ASSERT_TRUE(
      run(client_->put(table(".fs.freed"), internal::freed_key(4), internal::encode(wide))));
  expect_repair("belongs to");
  EXPECT_EQ(read(f, 0, 2), "xx");
  settle();
  EXPECT_EQ(space_.used_bytes(), 3 * kUnitBytes);
}

TEST_F(Check, ARecordThatDoesNotDecodeIsReported) {
  const Ino f = file("f");
  ASSERT_TRUE(run(client_->put(table(".fs.inodes"), internal::ino_key(f), "short")));
  const auto attributes = run(fs().get_attributes(f));
  ASSERT_FALSE(attributes);
  EXPECT_EQ(attributes.number(), EIO);
  EXPECT_NE(attributes.error().message.find("pmstore fs check"), std::string::npos);
  EXPECT_GT(check().found, 0u);
}

// Findings of two surveys that are the same, word for word, as a name that comes and goes makes
// them: tables are read one after the other, so that a survey sees a state that never was.
class Judge : public Check {
 protected:
  void SetUp() override {
    Check::SetUp();
    tables_ = *run(internal::open_tables(*client_, false));
    judge_ = std::make_unique<internal::FindingsJudge>(*client_, tables_);
    d_ = directory("d");
    f_ = file("f", d_);
    right_d_ = inode(d_);
    right_f_ = inode(f_);
  }
  void survey() {
    before_ = std::move(now_);
    now_ = std::make_unique<internal::NamespaceSurvey>(*client_, tables_, space_.sections());
    ASSERT_TRUE(run(now_->run()));
  }
  std::vector<std::string> confirmed() {
    EXPECT_TRUE(run(judge_->compare(*before_, *now_)));
    std::vector<std::string> lines;
    for (const internal::Finding& finding : judge_->confirmed()) lines.push_back(finding.line);
    return lines;
  }
  // Any change of an inode makes another record of it.
  static internal::Inode changed(internal::Inode inode) {
    ++inode.attributes.version;
    return inode;
  }

  internal::NamespaceTables tables_;
  std::unique_ptr<internal::FindingsJudge> judge_;
  std::unique_ptr<internal::NamespaceSurvey> before_, now_;
  Ino d_{}, f_{};
  internal::Inode right_d_, right_f_;
};

TEST_F(Judge, ACountOfAnInodeThatChangesIsLookedAtInOneTransaction) {
  internal::Inode wrong = right_d_;
  wrong.attributes.size = 2;
  put(wrong);
  survey();
  put(changed(wrong));
  survey();
  put(right_d_);
  EXPECT_EQ(confirmed(), std::vector<std::string>()) << "both surveys have seen it in between";
  put(wrong);
  EXPECT_EQ(confirmed().size(), 1u) << "it is wrong at one moment";
  EXPECT_EQ(judge_->open(), 0u);
}

TEST_F(Judge, WhatNoTransactionSeesCountsWhenItsInodeHasNotChanged) {
  internal::Inode wrong = right_f_;
  wrong.attributes.links = 2;
  put(wrong);
  survey();
  put(changed(wrong));
  survey();
  EXPECT_EQ(confirmed(), std::vector<std::string>());
  EXPECT_EQ(judge_->open(), 1u);
  survey();
  EXPECT_EQ(confirmed().size(), 1u);
  EXPECT_EQ(judge_->open(), 0u);
}

TEST_F(Judge, WhatTheNextSurveyDoesNotHaveIsNoDamage) {
  internal::Inode wrong = right_f_;
  wrong.attributes.links = 2;
  put(wrong);
  survey();
  put(right_f_);
  survey();
  EXPECT_EQ(confirmed(), std::vector<std::string>());
  EXPECT_EQ(judge_->open(), 0u);
}

// A look at all that was confirmed before, for each of them, would take minutes.
TEST_F(Judge, ManyFindingsAreConfirmedOnceEach) {
  constexpr uint64_t kRecords = 50'000, kAtOnce = 500;
  const TableId maps = table(".fs.maps");
  for (uint64_t done = 0; done < kRecords; done += kAtOnce) {
    Transaction transaction = client_->begin();
    for (uint64_t i = done; i < done + kAtOnce; ++i) {
      const AreaRange outside{0, space_.total_bytes() + i * kUnitBytes, kUnitBytes};
      transaction.put(maps, internal::map_key(Ino{999}, i * kUnitBytes), internal::encode(outside));
    }
    ASSERT_TRUE(run(transaction.commit()));
  }
  survey();
  survey();
  EXPECT_EQ(confirmed().size(), 2 * kRecords) << "of no file, and outside of the area";
  EXPECT_EQ(confirmed().size(), 2 * kRecords);
}

TEST_F(Check, WhatBelongsToADamagedInodeIsKept) {
  const Ino d = directory("d"), inner = directory("inner", d), f = file("f", inner);
  EXPECT_EQ(write(f, 0, std::string(10'000, 'x')), 0);
  const internal::Inode whole_f = inode(f), whole_d = inode(d);
  for (const Ino ino : {f, d}) {
    ASSERT_TRUE(run(client_->put(table(".fs.inodes"), internal::ino_key(ino), "short")));
  }
  namespace_.reset();
  const NamespaceFindings found = check(true);
  EXPECT_EQ(found.found, 2u) << ::testing::PrintToString(found.damage);
  EXPECT_TRUE(found.repaired.empty()) << ::testing::PrintToString(found.repaired);
  put(whole_f);
  put(whole_d);
  EXPECT_EQ(check().found, 0u);
}

}  // namespace
}  // namespace pmstore::fs
