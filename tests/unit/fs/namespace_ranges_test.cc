// Ranges of many extents, room behind the size, and extended attributes.
#include <fcntl.h>

#include <cerrno>

#include "tests/unit/fs/namespace_fixture.h"

namespace pmstore::fs {
namespace {

class Ranges : public NamespaceTest {
 protected:
  // `count` extents of a unit, with holes between.
  Ino holes(std::string_view name, uint64_t count) {
    const Ino ino = file(name);
    for (uint64_t i = 0; i < count; ++i) EXPECT_EQ(write(ino, 2 * i * kUnitBytes, "x"), 0);
    return ino;
  }
};

TEST_F(Ranges, AnInlineFileThatGrowsKeepsItsData) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, "text"), 0);
  EXPECT_EQ(truncate(f, 100'000), 0);
  EXPECT_EQ(read(f), "text" + std::string(99'996, '\0'));
  const Ino g = file("g");
  EXPECT_EQ(write(g, 0, "text"), 0);
  EXPECT_EQ(write(g, 200'000, "end"), 0);
  EXPECT_EQ(read(g, 0, 5), std::string("text\0", 5));
  EXPECT_EQ(stat(g).data_bytes, 2 * kUnitBytes);
  EXPECT_TRUE(damage().empty());
}

TEST_F(Ranges, AZeroedRangeOfManyExtentsReadsAsZeros) {
  const Ino f = holes("f", 100);
  EXPECT_EQ(allocate(f, AllocateMode::kZeroRange, 1, 190 * kUnitBytes), 0);
  for (uint64_t i = 0; i < 100; ++i) {
    const bool is_zero = i > 0 && i <= 95;
    EXPECT_EQ(read(f, 2 * i * kUnitBytes, 1), is_zero ? std::string(1, '\0') : "x") << i;
  }
}

TEST_F(Ranges, AFileThatGrowsMeetsWhatIsThere) {
  const Ino f = file("f");
  const std::string block(kUnitBytes, 'b');
  for (int i = 0; i < 64; ++i) ASSERT_EQ(write(f, std::nullopt, block), 0);
  EXPECT_EQ(truncate(f, 64 * kUnitBytes), 0);  // room behind the size goes
  EXPECT_EQ(allocate(f, AllocateMode::kKeepSize, 66 * kUnitBytes, kUnitBytes), 0);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(write(f, std::nullopt, block), 0);
  EXPECT_EQ(read(f, 63 * kUnitBytes).size(), 5 * kUnitBytes);
  EXPECT_TRUE(damage().empty()) << ::testing::PrintToString(damage());
}

TEST_F(Ranges, AWriteWithoutRoomTakesNone) {
  const Ino f = file("f"), g = file("g");
  const uint64_t most = space_.total_bytes() - 3 * kUnitBytes;
  EXPECT_EQ(allocate(f, AllocateMode::kKeepSize, 0, most), 0);
  EXPECT_EQ(write(g, 0, std::string(10 * kUnitBytes, 'g')), ENOSPC);
  EXPECT_EQ(space_.used_bytes(), most);
  EXPECT_EQ(write(g, 0, std::string(3 * kUnitBytes, 'g')), 0);
}

TEST_F(Ranges, AnAllocationThatFailsHalfWayLeavesNothing) {
  const Ino f = file("f"), other = file("other"), g = file("g"), small = file("small");
  // Turns, so that what is free is in pieces.
  for (uint64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(write(f, 2 * i * kUnitBytes, "x"), 0);
    ASSERT_EQ(write(other, 2 * i * kUnitBytes, "y"), 0);
  }
  EXPECT_EQ(unlink("other"), 0);
  settle();
  const uint64_t used = space_.used_bytes();
  // Others take the rest meanwhile: behind the first transaction, which has 64 extents.
  space_.allocations_left = 70;
  EXPECT_EQ(allocate(g, AllocateMode::kExtend, 0, 80 * kUnitBytes), ENOSPC);
  EXPECT_EQ(stat(g).data_bytes, 0u);
  EXPECT_EQ(stat(g).size, 0u);
  EXPECT_EQ(space_.used_bytes(), used);
  // What is to be zeroed keeps its data.
  EXPECT_EQ(write(small, 0, "text"), 0);
  space_.allocations_left = 1;
  EXPECT_EQ(allocate(f, AllocateMode::kZeroRange, 0, 80 * kUnitBytes), ENOSPC);
  EXPECT_EQ(read(f, 2 * kUnitBytes, 1), "x");
  EXPECT_EQ(stat(f).data_bytes, 100 * kUnitBytes);
  // An inline file moves as a whole or not at all.
  space_.allocations_left = 1;
  EXPECT_EQ(write(small, 200'000, "end"), ENOSPC);
  EXPECT_TRUE(stat(small).is_inline);
  EXPECT_EQ(stat(small).data_bytes, 0u);
  space_.allocations_left = 1;
  EXPECT_EQ(allocate(small, AllocateMode::kExtend, 2 * kUnitBytes, 10), ENOSPC);
  EXPECT_EQ(stat(small).data_bytes, 0u);
  EXPECT_EQ(read(small), "text");
  EXPECT_EQ(space_.used_bytes(), used);
  space_.allocations_left = -1;
  EXPECT_TRUE(damage().empty()) << ::testing::PrintToString(damage());
  EXPECT_EQ(allocate(g, AllocateMode::kExtend, 0, 80 * kUnitBytes), 0);
  EXPECT_EQ(read(g, 0, 100), std::string(100, '\0'));
}

TEST_F(Ranges, WhatIsBeingCleanedIsWaitedFor) {
  const Ino f = file("f"), g = file("g");
  const uint64_t most = space_.total_bytes();
  EXPECT_EQ(allocate(f, AllocateMode::kKeepSize, 0, most), 0);
  space_.words_ns = 100'000'000;
  EXPECT_EQ(truncate(f, 0), 0);
  EXPECT_EQ(write(g, 0, std::string(kUnitBytes, 'g')), 0);
  EXPECT_EQ(unlink("g"), 0);
  EXPECT_EQ(allocate(f, AllocateMode::kKeepSize, 0, most), 0);
  EXPECT_EQ(unlink("f"), 0);
  const Ino h = file("h");
  EXPECT_EQ(allocate(h, AllocateMode::kKeepSize, 0, most), 0);
}

TEST_F(Ranges, AnUnlinkedFileThatIsTruncatedIsStillDeleted) {
  const Ino f = run(fs().make(root(), kRootIno, "f", {.mode = 0600}, OpenOwner{1}))->ino;
  EXPECT_EQ(write(f, 0, std::string(200'000, 'x')), 0);
  EXPECT_EQ(unlink("f"), 0);
  EXPECT_EQ(truncate(f, 0), 0);
  restart();
  settle();
  EXPECT_EQ(run(fs().usage())->inodes, 1u);
  EXPECT_EQ(space_.used_bytes(), 0u);
  EXPECT_TRUE(damage().empty()) << ::testing::PrintToString(damage());
}

TEST_F(Ranges, AScanAmongWorkersFreesNothingTwice) {
  // The scan at the end of the grace period sees what the workers are about to erase.
  space_.words_ns = 20;
  for (uint64_t grace_ns = 18; grace_ns < 23; ++grace_ns) {
    const Ino f = holes("f" + std::to_string(grace_ns), 5);
    space_.failing_cleans = 1000;
    ASSERT_EQ(allocate(f, AllocateMode::kPunchHole, 0, 40 * kUnitBytes), 0);
    space_.failing_cleans = 0;
    options_.reclaim_ns = grace_ns;
    restart();
    sleep(1'000'000);
    EXPECT_EQ(space_.used_bytes(), 0u);
  }
}

TEST_F(Ranges, WhatGoesIsNoFileAnyMore) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, std::string(10'000, 'x')), 0);
  space_.words_ns = 1'000'000'000;
  EXPECT_EQ(unlink("f"), 0);
  sleep(100'000'000);
  int read = -1, written = -1, set = -1, opened = -1;
  const Caller caller;
  const auto ask = [&]() -> Task<void> {
    opened = number(co_await fs().open_file(caller, f, O_RDONLY, OpenOwner{1}));
    read = number(co_await fs().read(f, 0, 1));
    written = number(co_await fs().write(f, 0, as_bytes("y")));
    set = number(co_await fs().set_xattr(caller, f, "user.a", as_bytes("1"), XattrMode::kSet));
  };
  executor_.spawn(ask());
  sleep(100'000'000);  // nobody waits for the cleaning
  EXPECT_EQ(opened, ESTALE);
  EXPECT_EQ(read, ESTALE);
  EXPECT_EQ(written, ESTALE);
  EXPECT_EQ(set, ESTALE);
  EXPECT_GT(space_.used_bytes(), 0u);
  sleep(5'000'000'000);
  EXPECT_EQ(space_.used_bytes(), 0u);
}

// One waits for the lock of the file's data, the other one for that of the directory.
TEST_F(Ranges, WhatIsOpenedBehindTheEndOfItsOwnerIsClosed) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, std::string(70'000, 'x')), 0);
  space_.zero_ns = 1'000'000'000;
  const Caller caller;
  int ended = 0;
  const auto grow = [&]() -> Task<void> {
    const AttributeChange larger{.set = AttributeChange::kSize, .size = 80'000};
    EXPECT_TRUE(co_await fs().set_attributes(caller, f, larger));
    ++ended;
  };
  const auto open = [&]() -> Task<void> {
    (void)co_await fs().open_file(caller, f, O_RDONLY, OpenOwner{1});
    ++ended;
  };
  const auto make = [&](std::string name, OpenOwner owner) -> Task<void> {
    (void)co_await fs().make(caller, kRootIno, name, {}, owner);
    ++ended;
  };
  const auto forget = [&](OpenOwner owner) -> Task<void> {
    co_await fs().forget(owner);
    ++ended;
  };
  executor_.spawn(grow());
  executor_.spawn(open());
  executor_.spawn(forget(OpenOwner{1}));
  sleep(5'000'000'000);
  ASSERT_EQ(ended, 3);
  EXPECT_EQ(unlink("f"), 0);
  settle();
  EXPECT_EQ(run(fs().usage())->inodes, 1u);
  commits_take_turns();
  for (unsigned calls = 0; calls < 4; ++calls) {
    ended = 0;
    executor_.spawn(make("a", OpenOwner{2}));
    executor_.spawn(make("b", OpenOwner{10 + calls}));
    executor_.spawn(forget(OpenOwner{10 + calls}));
    while (ended < 3) sleep(1000);
    EXPECT_EQ(unlink("a"), 0);
    EXPECT_EQ(unlink("b"), 0);
    run(fs().forget(OpenOwner{2}));
  }
  settle();
  EXPECT_EQ(run(fs().usage())->inodes, 1u);
}

TEST_F(Ranges, AnOpenBehindAnUnlinkFindsNoFile) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, std::string(10'000, 'x')), 0);
  int opened = -1;
  const auto remove = [&]() -> Task<void> {
    const Caller caller;
    EXPECT_TRUE(co_await fs().unlink(caller, kRootIno, "f"));
    opened = number(co_await fs().open_file(caller, f, O_RDONLY, OpenOwner{1}));
  };
  executor_.spawn(remove());
  while (opened < 0) sleep(1000);
  EXPECT_EQ(opened, ESTALE);
  settle();
  EXPECT_EQ(run(fs().usage())->inodes, 1u);
}

TEST_F(Ranges, ReadsBesideATruncationSeeBeforeOrBehindIt) {
  for (unsigned calls = 0; calls < 16; ++calls) {
    const Ino f = file("f" + std::to_string(calls));
    EXPECT_EQ(write(f, 0, std::string(200'000, 'x')), 0);
    shift(calls);
    std::optional<std::string> found;
    bool is_truncated = false;
    const auto look = [&]() -> Task<void> {
      const auto data = co_await fs().read(f, 0, kMaxMessageData);
      EXPECT_TRUE(data);
      found = data ? as_text(*data) : "";
    };
    const auto shrink = [&]() -> Task<void> {
      const Caller caller;
      const AttributeChange smaller{.set = AttributeChange::kSize, .size = 10};
      EXPECT_TRUE(co_await fs().set_attributes(caller, f, smaller));
      is_truncated = true;
    };
    executor_.spawn(look());
    executor_.spawn(shrink());
    while (!found || !is_truncated) sleep(1000);
    EXPECT_EQ(*found, std::string(found->size(), 'x')) << calls;
    EXPECT_TRUE(found->size() == 200'000 || found->size() == 10) << calls << " " << found->size();
  }
}

// ---- extended attributes ----

class Attributed : public NamespaceTest {
 protected:
  int set(const Caller& caller, Ino ino, std::string_view name, std::string_view value = "1") {
    return number(run(fs().set_xattr(caller, ino, name, as_bytes(value), XattrMode::kSet)));
  }
  const Caller alice_ = {1000, 1000, {}};
  const Caller bob_ = {1001, 1001, {}};
};

TEST_F(Attributed, EachClassHasItsRules) {
  const Ino f = file("f", kRootIno, 0666);
  EXPECT_EQ(set(bob_, f, "security.a"), EPERM);
  EXPECT_EQ(set(root(), f, "security.a"), 0);
  EXPECT_EQ(as_text(*run(fs().get_xattr(bob_, f, "security.a"))), "1");
  EXPECT_EQ(number(run(fs().remove_xattr(bob_, f, "security.a"))), EPERM);
  const Ino tmp = directory("tmp", kRootIno, 01777);
  EXPECT_EQ(set(bob_, tmp, "user.a"), EPERM) << "in a sticky directory only its owner";
  EXPECT_EQ(set(root(), tmp, "user.a"), 0);
  const auto made =
      run(fs().make(root(), kRootIno, "s", {.type = FileType::kSymlink, .target = "t"}));
  ASSERT_TRUE(made);
  EXPECT_EQ(set(root(), made->ino, "user.a"), EPERM);
  EXPECT_EQ(number(run(fs().get_xattr(root(), made->ino, "user.a"))), ENODATA);
  EXPECT_EQ(set(root(), made->ino, "trusted.a"), 0);
  EXPECT_TRUE(damage().empty()) << ::testing::PrintToString(damage());
}

TEST_F(Attributed, WhatIsRemovedIsNotCounted) {
  const Ino f = file("f");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(set(root(), f, "user.a"), 0);
    EXPECT_EQ(set(root(), f, "user.a", "other"), 0);
    EXPECT_TRUE(run(fs().remove_xattr(root(), f, "user.a")));
  }
  EXPECT_EQ(run(fs().list_xattrs(root(), f))->size(), 0u);
  EXPECT_TRUE(damage().empty()) << ::testing::PrintToString(damage());
}

TEST_F(Attributed, ValuesHaveABound) {
  const Ino f = file("f");
  const std::string half(kMaxXattrBytes / 2, 'v');
  EXPECT_EQ(set(root(), f, "user.a", half), 0);
  EXPECT_EQ(set(root(), f, "user.b", half), 0);
  EXPECT_EQ(set(root(), f, "user.c", "1"), ENOSPC);
  EXPECT_EQ(set(root(), f, "user.a", half + "1"), ENOSPC);
  EXPECT_EQ(set(root(), f, "user.c", ""), 0);
  EXPECT_EQ(set(root(), f, "user.a", "1"), 0) << "it takes the place of the one before";
  EXPECT_EQ(set(root(), f, "user.c", "1"), 0);
}

TEST_F(Attributed, NamesHaveABound) {
  const Ino f = file("f");
  const std::string long_name(245, 'n');
  int error = 0;
  int made = 0;
  for (; error == 0 && made < 1000; ++made) {
    error = set(root(), f, "user." + std::to_string(1000 + made) + long_name, "");
  }
  EXPECT_EQ(error, ENOSPC);
  EXPECT_EQ(made, 65'536 / 255 + 1);
  EXPECT_EQ(unlink("f"), 0);
  settle();
  EXPECT_EQ(run(fs().usage())->inodes, 1u);
}

}  // namespace
}  // namespace pmstore::fs
