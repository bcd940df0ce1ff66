// SearchedDirectories: which paths are walked without the store, and what ends that.
#include "fs/internal/searched_directories.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>

#include "fs/internal/namespace_tables.h"
#include "fs/internal/namespace_transaction.h"
#include "tests/unit/fs/namespace_fixture.h"

namespace pmstore::fs {
namespace {

using internal::SearchedDirectories;

Attributes directory_of(Ino ino, uint16_t mode = 0755) {
  Attributes directory;
  directory.ino = ino;
  directory.type = FileType::kDirectory;
  directory.mode = mode;
  directory.links = 2;
  return directory;
}

TEST(SearchedDirectories, NamesLeadOnOnlyForThoseWhoMaySearch) {
  constexpr Ino kA{10}, kB{11}, kC{12};
  SearchedDirectories searched;
  searched.put(searched.now(), directory_of(kA), "b", kB);
  searched.put(searched.now(), directory_of(kB, 0700), "c", kC);
  const Caller user{1000, 1000, {}};
  EXPECT_EQ(searched.find({}, kA, "b/c"), kC);
  EXPECT_EQ(searched.find({}, kB, "c"), kC);
  EXPECT_EQ(searched.find(user, kA, "b"), kB);
  EXPECT_EQ(searched.find(user, kA, "b/c"), std::nullopt);
  for (const char* path : {"", "/", "b/", "b//c", "none", "b/c/d", "b/none"}) {
    const auto found = searched.find({}, kA, path);
    EXPECT_EQ(found, path == std::string_view("b/") ? std::optional(kB) : std::nullopt) << path;
  }
}

TEST(SearchedDirectories, NothingThatAChangeMayHaveMadeWrongIsPutIn) {
  constexpr Ino kA{10}, kB{11};
  SearchedDirectories searched;
  const auto before = searched.now();
  {
    const SearchedDirectories::Change change(searched);
    EXPECT_FALSE(searched.is_unchanged_since(before));
    searched.put(searched.now(), directory_of(kA), "b", kB);
    EXPECT_EQ(searched.find({}, kA, "b"), std::nullopt);
  }
  EXPECT_FALSE(searched.is_unchanged_since(before));
  searched.put(before, directory_of(kA), "b", kB);
  EXPECT_EQ(searched.find({}, kA, "b"), std::nullopt);
  EXPECT_TRUE(searched.is_unchanged_since(searched.now()));
  searched.put(searched.now(), directory_of(kA), "b", kB);
  EXPECT_EQ(searched.find({}, kA, "b"), kB);
}

TEST(SearchedDirectories, NothingIsHereBehindADoubt) {
  constexpr Ino kA{10}, kB{11};
  SearchedDirectories searched;
  searched.put(searched.now(), directory_of(kA), "b", kB);
  searched.stop();
  EXPECT_FALSE(searched.is_unchanged_since(searched.now()));
  EXPECT_EQ(searched.find({}, kA, "b"), std::nullopt);
  searched.put(searched.now(), directory_of(kA), "b", kB);
  EXPECT_EQ(searched.find({}, kA, "b"), std::nullopt);
}

TEST(SearchedDirectories, TheirNumberHasABound) {
  constexpr Ino kA{10}, kB{11};
  SearchedDirectories searched;
  for (size_t i = 0; i < SearchedDirectories::kMostNames; ++i) {
    searched.put(searched.now(), directory_of(kA), std::to_string(i), kB);
  }
  EXPECT_EQ(searched.find({}, kA, "0"), kB);
  searched.put(searched.now(), directory_of(kA), "last", kB);
  EXPECT_EQ(searched.find({}, kA, "0"), std::nullopt);
  EXPECT_EQ(searched.find({}, kA, "last"), kB);
}

// The same of a namespace: each change of what is known ends it, and others do not.
class KnownDirectories : public NamespaceTest {
 protected:
  void SetUp() override {
    NamespaceTest::SetUp();
    a_ = directory("a");
    b_ = directory("b", a_);
    c_ = directory("c", b_);
    walk();
  }
  void walk() { ASSERT_TRUE(run(fs().walk({}, kRootIno, "a/b/c"))); }
  std::optional<Ino> known(std::string_view path, const Caller& caller = {}) {
    return fs().known_directory(caller, kRootIno, path);
  }
  void set_mode(Ino ino, uint16_t mode) {
    ASSERT_TRUE(run(fs().set_attributes({}, ino, {.set = AttributeChange::kMode, .mode = mode})));
  }

  Ino a_{}, b_{}, c_{};
};

TEST_F(KnownDirectories, AreThoseOfAWalkAndStayWhileFilesComeAndGo) {
  EXPECT_EQ(known("a"), a_);
  EXPECT_EQ(known("a/b/c"), c_);
  file("f", c_);
  file("g", b_);
  EXPECT_EQ(rename(b_, "g", c_, "f"), 0);
  EXPECT_EQ(unlink("f", c_), 0);
  directory("d", b_);
  EXPECT_EQ(known("a/b/c", user(1)), c_);
  EXPECT_EQ(known("a/b/d"), std::nullopt);
  ASSERT_TRUE(run(fs().make({}, a_, "s", {.type = FileType::kSymlink, .target = "b"})));
  ASSERT_TRUE(run(fs().walk({}, kRootIno, "a/s")));
  ASSERT_TRUE(run(fs().walk({}, kRootIno, "a/../a/./b")));
  for (const char* path : {"a/s", "a/.", "a/../a", ".."}) EXPECT_EQ(known(path), std::nullopt);
}

TEST_F(KnownDirectories, EndWithTheRightToSearch) {
  set_mode(b_, 0700);
  EXPECT_EQ(known("a/b/c"), std::nullopt);
  walk();
  EXPECT_EQ(known("a/b/c"), c_);
  EXPECT_EQ(known("a/b/c", user(1)), std::nullopt);
  EXPECT_EQ(known("a/b", user(1)), b_);
  const AttributeChange owner{.set = AttributeChange::kUid, .uid = 1};
  ASSERT_TRUE(run(fs().set_attributes({}, b_, owner)));
  walk();
  EXPECT_EQ(known("a/b/c", user(1)), c_);
}

TEST_F(KnownDirectories, EndWithTheirNames) {
  EXPECT_EQ(rename(a_, "b", kRootIno, "b"), 0);
  EXPECT_EQ(known("a/b"), std::nullopt);
  EXPECT_EQ(known("a"), a_);
  ASSERT_TRUE(run(fs().walk({}, kRootIno, "b/c")));
  EXPECT_EQ(known("b/c"), c_);
  EXPECT_EQ(rename(kRootIno, "a", kRootIno, "b", RenameMode::kExchange), 0);
  EXPECT_EQ(known("a"), std::nullopt);
  EXPECT_EQ(known("b"), std::nullopt);
  ASSERT_TRUE(run(fs().walk({}, kRootIno, "a/c")));
  EXPECT_EQ(known("a/c"), c_);
  EXPECT_EQ(rmdir("c", b_), 0);
  EXPECT_EQ(known("a/c"), std::nullopt);
  EXPECT_EQ(known("a"), b_);
  EXPECT_EQ(rename(kRootIno, "b", kRootIno, "a"), 0);  // replaces the empty directory
  EXPECT_EQ(known("a"), std::nullopt);
}

// The commit of a call may wait; what others read meanwhile may be of before it.
TEST_F(KnownDirectories, ATransactionIsAChangeFromItsFirstWriteToItsEnd) {
  SearchedDirectories searched;
  const auto tables = run(internal::open_tables(*client_, false));
  ASSERT_TRUE(tables);
  const auto before = searched.now();
  {
    internal::NamespaceTransaction transaction(*client_, *tables, &searched);
    const auto inode = run(transaction.inode(a_));
    ASSERT_TRUE(inode);
    EXPECT_TRUE(searched.is_unchanged_since(before));
    transaction.put(*inode);
    EXPECT_FALSE(searched.is_unchanged_since(before));
    ASSERT_TRUE(run(transaction.commit()));
    EXPECT_FALSE(searched.is_unchanged_since(searched.now()));
    transaction.settle();
  }
  EXPECT_FALSE(searched.is_unchanged_since(before));
  EXPECT_TRUE(searched.is_unchanged_since(searched.now()));
}

// A coroutine that is destroyed amid a commit does not take it back.
TEST_F(KnownDirectories, EndWhenACommitWasNotSeenToEnd) {
  SearchedDirectories searched;
  const auto tables = run(internal::open_tables(*client_, false));
  ASSERT_TRUE(tables);
  searched.put(searched.now(), directory_of(a_), "b", b_);
  {
    internal::NamespaceTransaction transaction(*client_, *tables, &searched);
    const auto inode = run(transaction.inode(c_));
    ASSERT_TRUE(inode);
    transaction.put(*inode);
    EXPECT_EQ(searched.find({}, a_, "b"), b_);
    const auto commit = transaction.commit();
  }
  EXPECT_EQ(searched.find({}, a_, "b"), std::nullopt);
  EXPECT_FALSE(searched.is_unchanged_since(searched.now()));
}

TEST_F(KnownDirectories, ADirectoryThatIsRemovedIsNotSearched) {
  EXPECT_EQ(fs().known_directory({}, b_, "c"), c_);
  EXPECT_EQ(rmdir("c", b_), 0);
  EXPECT_EQ(rmdir("b", a_), 0);
  EXPECT_EQ(fs().known_directory({}, b_, "c"), std::nullopt);
  EXPECT_EQ(fs().known_directory({}, a_, "b"), std::nullopt);
}

}  // namespace
}  // namespace pmstore::fs
