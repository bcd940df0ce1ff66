// Names: make, look up, link, remove, list.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "tests/unit/fs/namespace_fixture.h"

namespace pmstore::fs {
namespace {

using Names = NamespaceTest;

TEST_F(Names, ANewFileSystemHasARoot) {
  const Attributes root = stat(kRootIno);
  EXPECT_EQ(root.type, FileType::kDirectory);
  EXPECT_EQ(root.mode, 0755);
  EXPECT_EQ(root.links, 2u);
  EXPECT_EQ(fs().identity(), 7u);
  EXPECT_TRUE(names(kRootIno).empty());
}

TEST_F(Names, WhatIsMadeIsFoundAlsoAfterARestart) {
  const Ino directory_ino = directory("d");
  const Ino file_ino = file("f", directory_ino);
  EXPECT_EQ(lookup("d"), directory_ino);
  EXPECT_EQ(lookup("f", directory_ino), file_ino);
  const Attributes before = stat(file_ino);
  restart();
  EXPECT_EQ(lookup("f", lookup("d")), file_ino);
  EXPECT_EQ(stat(file_ino), before);
  EXPECT_EQ(*run(fs().parent_of(directory_ino)), kRootIno);
  EXPECT_EQ(lookup("..", directory_ino), kRootIno);
  EXPECT_EQ(lookup(".", directory_ino), directory_ino);
}

TEST_F(Names, LinkCountsFollowEntries) {
  const Ino a = directory("a");
  EXPECT_EQ(stat(kRootIno).links, 3u);
  EXPECT_EQ(stat(kRootIno).size, 1u);
  const Ino f = file("f", a);
  ASSERT_TRUE(run(fs().link(root(), f, kRootIno, "g")));
  EXPECT_EQ(stat(f).links, 2u);
  EXPECT_EQ(unlink("f", a), 0);
  EXPECT_EQ(stat(f).links, 1u);
  EXPECT_EQ(unlink("g"), 0);
  EXPECT_EQ(number(run(fs().get_attributes(f))), ESTALE);
  EXPECT_EQ(rmdir("a"), 0);
  EXPECT_EQ(stat(kRootIno).links, 2u);
  EXPECT_EQ(stat(kRootIno).size, 0u);
}

TEST_F(Names, WrongCallsHaveTheErrnosOfPosix) {
  const Ino d = directory("d");
  const Ino f = file("f");
  EXPECT_EQ(make_error_of(kRootIno, "f"), EEXIST);
  EXPECT_EQ(make_error_of(f, "x"), ENOTDIR);
  EXPECT_EQ(make_error_of(kRootIno, ""), ENOENT);
  EXPECT_EQ(make_error_of(kRootIno, "."), EEXIST);
  EXPECT_EQ(make_error_of(kRootIno, std::string(256, 'n')), ENAMETOOLONG);
  EXPECT_EQ(make_error_of(kRootIno, std::string(255, 'n')), 0);
  EXPECT_EQ(make_error_of(kRootIno, "a/b"), EINVAL);
  EXPECT_EQ(make_error_of(Ino{99}, "x"), ESTALE);
  EXPECT_EQ(lookup_error("none"), ENOENT);
  EXPECT_EQ(lookup_error("x", f), ENOTDIR);
  EXPECT_EQ(unlink("d"), EISDIR);
  EXPECT_EQ(unlink("none"), ENOENT);
  EXPECT_EQ(rmdir("f"), ENOTDIR);
  EXPECT_EQ(rmdir("."), EINVAL);
  EXPECT_EQ(rmdir(".."), ENOTEMPTY);
  file("x", d);
  EXPECT_EQ(rmdir("d"), ENOTEMPTY);
  EXPECT_EQ(number(run(fs().link(root(), d, kRootIno, "l"))), EPERM);
  EXPECT_EQ(number(run(fs().link(root(), f, kRootIno, "d"))), EEXIST);
  EXPECT_EQ(number(run(fs().read_link(f))), EINVAL);
}

TEST_F(Names, AMarkTellsItsCallOnlyWhereThatIsRepeated) {
  NewFile file;
  file.mark = 7;
  const auto made = run(fs().make(root(), kRootIno, "f", file));
  ASSERT_TRUE(made);
  EXPECT_EQ(number(run(fs().make(root(), kRootIno, "f", file))), EEXIST) << "another's, by chance";
  EXPECT_EQ(number(run(fs().link(root(), made->ino, kRootIno, "f", 7))), EEXIST);
  file.repeated = true;
  const auto again = run(fs().make(root(), kRootIno, "f", file));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->ino, made->ino);
  EXPECT_TRUE(run(fs().link(root(), made->ino, kRootIno, "f", 7, true)));
  EXPECT_EQ(stat(made->ino).links, 1u);
  file.mark = 8;
  EXPECT_EQ(number(run(fs().make(root(), kRootIno, "f", file))), EEXIST);
}

TEST_F(Names, SymlinksKeepTheirTarget) {
  const std::string target(kMaxSymlinkBytes, 't');
  auto made = run(fs().make(root(), kRootIno, "s", {.type = FileType::kSymlink, .target = target}));
  ASSERT_TRUE(made);
  EXPECT_EQ(made->size, target.size());
  EXPECT_EQ(made->mode, 0777);
  EXPECT_EQ(*run(fs().read_link(made->ino)), target);
  const std::string longer(kMaxSymlinkBytes + 1, 't');
  EXPECT_EQ(
      number(run(fs().make(root(), kRootIno, "l", {.type = FileType::kSymlink, .target = longer}))),
      ENAMETOOLONG);
}

TEST_F(Names, AListingGivesEachEntryOnceWhileOthersComeAndGo) {
  const Ino d = directory("d");
  for (int i = 0; i < 50; ++i) file("f" + std::to_string(i), d);
  auto page = run(fs().read_directory(root(), d, 0, 10, true));
  ASSERT_TRUE(page);
  ASSERT_EQ(page->size(), 10u);
  EXPECT_EQ(page->front().attributes->links, 1u);
  EXPECT_EQ(unlink("f3", d), 0);
  EXPECT_EQ(unlink("f9", d), 0);  // the one at the cookie
  EXPECT_EQ(unlink("f20", d), 0);
  file("new", d);
  EXPECT_EQ(rename(d, "f30", d, "f31"), 0);  // replaced: the name stays where it was
  std::vector<std::string> rest;
  uint64_t cookie = page->back().entry.cookie;
  while (true) {
    page = run(fs().read_directory(root(), d, cookie, 7, false));
    ASSERT_TRUE(page);
    if (page->empty()) break;
    for (const auto& listed : *page) rest.push_back(listed.entry.name);
    cookie = page->back().entry.cookie;
  }
  std::vector<std::string> expected;
  for (int i = 10; i < 50; ++i) {
    if (i != 20 && i != 30) expected.push_back("f" + std::to_string(i));
  }
  expected.push_back("new");
  EXPECT_EQ(rest, expected);
}

TEST_F(Names, AnUnlinkedFileLivesUntilItsLastClose) {
  const OpenOwner owner{1}, other{2};
  auto made = run(fs().make(root(), kRootIno, "f", {.mode = 0600}, owner));
  ASSERT_TRUE(made);
  const Ino f = made->ino;
  ASSERT_TRUE(run(fs().open_file(root(), f, O_RDWR, other)));
  EXPECT_EQ(write(f, 0, std::string(100'000, 'x')), 0);
  EXPECT_EQ(unlink("f"), 0);
  EXPECT_EQ(stat(f).links, 0u);
  EXPECT_EQ(read(f, 99'990), std::string(10, 'x'));
  EXPECT_EQ(number(run(fs().link(root(), f, kRootIno, "again"))), ENOENT);
  ASSERT_TRUE(run(fs().close_file(f, owner)));
  settle();
  EXPECT_EQ(stat(f).links, 0u);
  EXPECT_GT(space_.used_bytes(), 0u);
  run(fs().forget(other));
  settle();
  EXPECT_EQ(number(run(fs().get_attributes(f))), ESTALE);
  EXPECT_EQ(space_.used_bytes(), 0u);
  EXPECT_TRUE(space_.free_is_zero());
  EXPECT_EQ(run(fs().usage())->inodes, 1u);
  EXPECT_EQ(number(run(fs().close_file(f, owner))), EBADF);
}

TEST_F(Names, ACrashDeletesUnlinkedFilesThatNobodyOpensAgain) {
  const OpenOwner owner{1};
  const Ino f = run(fs().make(root(), kRootIno, "f", {.mode = 0600}, owner))->ino;
  EXPECT_EQ(write(f, 0, std::string(100'000, 'x')), 0);
  EXPECT_EQ(unlink("f"), 0);
  restart();
  settle();
  EXPECT_EQ(number(run(fs().get_attributes(f))), ESTALE);
  EXPECT_EQ(space_.used_bytes(), 0u);
}

TEST_F(Names, UnlinkedFilesCanBeOpenedAgainAfterARestart) {
  options_.reclaim_ns = 1'000'000'000;
  const OpenOwner owner{1};
  const Ino f = run(fs().make(root(), kRootIno, "f", {.mode = 0600}, owner))->ino;
  const Ino g = run(fs().make(root(), kRootIno, "g", {.mode = 0600}, owner))->ino;
  EXPECT_EQ(write(f, 0, "kept"), 0);
  EXPECT_EQ(unlink("f"), 0);
  EXPECT_EQ(unlink("g"), 0);
  restart();
  ASSERT_TRUE(run(fs().open_file(root(), f, O_RDONLY, owner)));
  run([](Executor& executor) -> Task<void> {
    co_await executor.sleep_for(2'000'000'000);
  }(executor_));
  settle();
  EXPECT_EQ(read(f), "kept");
  EXPECT_EQ(run(fs().usage())->inodes, 2u) << "the root, and what is open";
  EXPECT_EQ(number(run(fs().open_file(root(), g, O_RDONLY, owner))), ESTALE);
}

TEST_F(Names, RenameReplacesAtomically) {
  const Ino a = directory("a"), b = directory("b");
  const Ino f = file("f", a), g = file("g", b);
  EXPECT_EQ(write(g, 0, std::string(70'000, 'g')), 0);
  EXPECT_EQ(rename(a, "f", b, "g"), 0);
  settle();
  EXPECT_EQ(lookup_error("f", a), ENOENT);
  EXPECT_EQ(lookup("g", b), f);
  EXPECT_EQ(number(run(fs().get_attributes(g))), ESTALE);
  EXPECT_EQ(space_.used_bytes(), 0u);
  file("h", a);
  EXPECT_EQ(rename(a, "h", b, "g", RenameMode::kNoReplace), EEXIST);
  EXPECT_EQ(rename(a, "none", b, "g"), ENOENT);
  EXPECT_EQ(rename(a, "h", b, "none", RenameMode::kExchange), ENOENT);
  const Ino h = lookup("h", a);
  EXPECT_EQ(rename(a, "h", b, "g", RenameMode::kExchange), 0);
  EXPECT_EQ(lookup("h", a), f);
  EXPECT_EQ(lookup("g", b), h);
}

TEST_F(Names, RenameOfDirectoriesNeverMakesALoop) {
  const Ino a = directory("a"), b = directory("b", a), c = directory("c", b);
  EXPECT_EQ(rename(kRootIno, "a", c, "x"), EINVAL);
  EXPECT_EQ(rename(kRootIno, "a", a, "x"), EINVAL);
  EXPECT_EQ(rename(kRootIno, "a", b, "c", RenameMode::kExchange), EINVAL);
  EXPECT_EQ(rename(b, "c", kRootIno, "a"), ENOTEMPTY);
  EXPECT_EQ(rename(b, "c", kRootIno, "a", RenameMode::kExchange), EINVAL);
  EXPECT_EQ(rename(b, "c", kRootIno, "c"), 0);
  EXPECT_EQ(*run(fs().parent_of(c)), kRootIno);
  EXPECT_EQ(stat(b).links, 2u);
  EXPECT_EQ(stat(kRootIno).links, 4u);
  file("f");
  EXPECT_EQ(rename(kRootIno, "f", kRootIno, "c"), EISDIR);
  EXPECT_EQ(rename(kRootIno, "c", kRootIno, "f"), ENOTDIR);
  EXPECT_EQ(rename(kRootIno, "c", a, "b"), 0);  // an empty directory is replaced
  EXPECT_EQ(lookup("b", a), c);
  EXPECT_EQ(rename(kRootIno, ".", a, "b"), EBUSY);
}

TEST_F(Names, TwoRenamesAtOnceMakeNoLoop) {
  for (int i = 0; i < 20; ++i) {
    const Ino a = directory("a"), b = directory("b");
    const Caller caller;
    const auto move = [&](Ino from, std::string name, Ino to, int& result) -> Task<void> {
      result = number(co_await fs().rename(caller, from, name, to, "x", RenameMode::kReplace));
    };
    int first = -1, second = -1;
    executor_.spawn(move(kRootIno, "a", b, first));
    executor_.spawn(move(kRootIno, "b", a, second));
    while (first < 0 || second < 0) executor_.run_once();
    EXPECT_TRUE((first == 0 && (second == EINVAL || second == ENOENT)) ||
                (second == 0 && (first == EINVAL || first == ENOENT)))
        << first << " " << second;
    const Ino outer = first == 0 ? b : a;
    EXPECT_EQ(rmdir("x", outer), 0);
    EXPECT_EQ(rmdir(first == 0 ? "b" : "a"), 0);
  }
}

// Both move directories that the other one's target lies in, and touch no directory together.
TEST_F(Names, TwoRenamesOfDistantDirectoriesMakeNoLoop) {
  commits_take_turns();
  for (unsigned calls = 0; calls < 4; ++calls) {
    const std::string suffix = std::to_string(calls);
    const Ino p = directory("p" + suffix), q = directory("q" + suffix);
    const Ino a = directory("a", p), b = directory("b", q);
    const Ino c = directory("c", a), d = directory("d", b);
    const Caller caller;
    const auto move = [&](Ino from, std::string name, Ino to, int& result) -> Task<void> {
      result = number(co_await fs().rename(caller, from, name, to, "x", RenameMode::kReplace));
    };
    int first = -1, second = -1;
    executor_.spawn(move(p, "a", d, first));
    executor_.spawn(move(q, "b", c, second));
    while (first < 0 || second < 0) sleep(1000);
    EXPECT_TRUE((first == 0 && second == EINVAL) || (second == 0 && first == EINVAL))
        << first << " " << second;
  }
  EXPECT_TRUE(damage().empty());
}

TEST_F(Names, AnOpenBesideAnUnlinkHasTheFileOrNothing) {
  commits_take_turns();
  for (unsigned calls = 0; calls < 4; ++calls) {
    const Ino f = file("f");
    EXPECT_EQ(write(f, 0, "text"), 0);
    int opened = -1, removed = -1;
    const Caller caller;
    const auto open = [&]() -> Task<void> {
      opened = number(co_await fs().open_file(caller, f, O_RDONLY, OpenOwner{1}));
    };
    const auto remove = [&]() -> Task<void> {
      removed = number(co_await fs().unlink(caller, kRootIno, "f"));
    };
    executor_.spawn(open());
    executor_.spawn(remove());
    while (opened < 0 || removed < 0) sleep(1000);
    EXPECT_EQ(removed, 0);
    EXPECT_TRUE(opened == 0 || opened == ESTALE) << opened;
    if (opened != 0) continue;
    EXPECT_EQ(read(f), "text") << calls;
    EXPECT_TRUE(run(fs().close_file(f, OpenOwner{1})));
  }
  settle();
  EXPECT_EQ(run(fs().usage())->inodes, 1u);
}

TEST_F(Names, AnOpenDirectoryThatWasRemovedHasNoNames) {
  const Ino d = directory("d");
  ASSERT_TRUE(run(fs().open_file(root(), d, O_RDONLY | O_DIRECTORY, OpenOwner{1})));
  EXPECT_EQ(rmdir("d"), 0);
  EXPECT_EQ(stat(d).links, 0u);
  EXPECT_EQ(lookup_error(".", d), ENOENT);
  EXPECT_EQ(lookup_error("..", d), ENOENT);
  EXPECT_EQ(make_error_of(d, "f"), ENOENT);
  EXPECT_TRUE(run(fs().close_file(d, OpenOwner{1})));
  settle();
  EXPECT_EQ(number(run(fs().get_attributes(d))), ESTALE);
  EXPECT_TRUE(damage().empty());
}

TEST_F(Names, CountsAndParentsFollowRenames) {
  const Ino a = directory("a"), b = directory("b"), inner = directory("inner", a);
  file("f", a);
  file("g", b);
  EXPECT_EQ(rename(a, "inner", b, "g", RenameMode::kExchange), 0);
  EXPECT_EQ(stat(a).links, 2u);
  EXPECT_EQ(stat(b).links, 3u);
  EXPECT_EQ(*run(fs().parent_of(inner)), b);
  EXPECT_EQ(rename(b, "g", a, "inner", RenameMode::kExchange), 0);
  EXPECT_EQ(*run(fs().parent_of(inner)), a);
  EXPECT_EQ(rename(b, "g", a, "inner", RenameMode::kExchange), 0);
  EXPECT_EQ(*run(fs().parent_of(inner)), b);
  EXPECT_EQ(rename(a, "inner", b, "g", RenameMode::kExchange), 0);
  EXPECT_EQ(*run(fs().parent_of(inner)), a);
  const Ino empty = directory("empty", b);
  EXPECT_EQ(rename(a, "inner", b, "empty"), 0);
  EXPECT_EQ(number(run(fs().get_attributes(empty))), ESTALE);
  EXPECT_EQ(stat(a).size, 1u);
  EXPECT_EQ(stat(b).size, 2u);
  EXPECT_EQ(rename(a, "f", b, "f"), 0);
  EXPECT_EQ(stat(a).size, 0u);
  EXPECT_EQ(stat(b).size, 3u);
  EXPECT_TRUE(damage().empty()) << ::testing::PrintToString(damage());
}

}  // namespace
}  // namespace pmstore::fs
