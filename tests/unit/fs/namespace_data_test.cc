// Data: inline, extents, sizes, holes, and where freed space goes.
#include <fcntl.h>

#include <cerrno>

#include "fs/layout/fs_layout.h"
#include "tests/unit/fs/namespace_fixture.h"

namespace pmstore::fs {
namespace {

using Data = NamespaceTest;

FileMap map_of(NamespaceWorld& world, Ino ino, uint64_t bytes = kMaxFileBytes) {
  auto mapped = world.run(world.fs().map(ino, 0, bytes, false));
  EXPECT_TRUE(mapped) << mapped.error().to_string();
  return mapped ? mapped->map : FileMap{};
}

TEST_F(Data, SmallFilesLieInTheirInode) {
  const Ino f = file("f");
  EXPECT_TRUE(stat(f).is_inline);
  EXPECT_EQ(write(f, 0, "hello"), 0);
  EXPECT_EQ(write(f, std::nullopt, " you"), 0);
  EXPECT_EQ(read(f), "hello you");
  EXPECT_EQ(write(f, 4095, "!"), 0);
  EXPECT_TRUE(stat(f).is_inline);
  EXPECT_EQ(stat(f).size, 4096u);
  EXPECT_EQ(read(f, 4, 6), std::string("o you\0", 6));
  EXPECT_EQ(space_.used_bytes(), 0u);
  EXPECT_EQ(write(f, 4096, "x"), 0);
  EXPECT_FALSE(stat(f).is_inline);
  EXPECT_EQ(stat(f).data_bytes, kUnitBytes);
  EXPECT_EQ(read(f, 0, 9), "hello you");
  EXPECT_EQ(read(f, 4095), "!x");
  restart();
  EXPECT_EQ(read(f, 4095), "!x");
}

TEST_F(Data, ExtentsGrowWithTheFile) {
  const Ino f = file("f");
  const std::string block(kUnitBytes, 'b');
  for (int i = 0; i < 190; ++i) EXPECT_EQ(write(f, std::nullopt, block), 0);
  EXPECT_EQ(stat(f).size, 190 * block.size());
  const FileMap map = map_of(*this, f);
  EXPECT_LE(map.extents.size(), 50u);
  uint64_t sum = 0;
  for (const MapExtent& extent : map.extents) sum += extent.place.bytes;
  EXPECT_EQ(sum, stat(f).data_bytes);
  EXPECT_LE(sum, 190 * block.size() * 9 / 8);
}

TEST_F(Data, HolesReadAsZeros) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 1'000'000, "end"), 0);
  EXPECT_EQ(stat(f).size, 1'000'003u);
  EXPECT_EQ(stat(f).data_bytes, kUnitBytes);
  EXPECT_EQ(read(f, 0, 10), std::string(10, '\0'));
  EXPECT_EQ(read(f, 999'999), std::string("\0end", 4));
  EXPECT_EQ(write(f, kUnitBytes - 2, "edge"), 0);
  EXPECT_EQ(read(f, kUnitBytes - 3, 6), std::string("\0edge\0", 6));
  const FileMap map = map_of(*this, f);
  ASSERT_EQ(map.extents.size(), 2u);
  EXPECT_EQ(map.extents[0].file_offset, 0u);
  EXPECT_EQ(map.extents[0].place.bytes, 2 * kUnitBytes);
}

TEST_F(Data, WhatWasBehindTheSizeIsNeverSeen) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, std::string(100'000, 'x')), 0);
  EXPECT_EQ(truncate(f, 70'000), 0);
  EXPECT_EQ(truncate(f, 80'000), 0);
  EXPECT_EQ(read(f, 69'999, 2), std::string("x\0", 2));
  EXPECT_EQ(read(f, 70'000), std::string(10'000, '\0'));
  EXPECT_EQ(truncate(f, 60'000), 0);
  EXPECT_EQ(write(f, 65'000, "y"), 0);
  EXPECT_EQ(read(f, 60'000), std::string(5000, '\0') + "y");
  // A client with an old map writes behind the size.
  const FileMap map = map_of(*this, f);
  std::fill_n(space_.bytes_of(map.extents[0].place).begin() + 65'001, 300, std::byte{'z'});
  EXPECT_EQ(allocate(f, AllocateMode::kExtend, 0, 65'200), 0);
  EXPECT_EQ(read(f, 65'000), "y" + std::string(199, '\0'));
}

TEST_F(Data, TruncatingFreesAndTellsOthers) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, std::string(500'000, 'x')), 0);
  const FileMap before = map_of(*this, f);
  const uint64_t used = space_.used_bytes();
  map_changes_.clear();
  EXPECT_EQ(truncate(f, 100), 0);
  EXPECT_EQ(map_changes_, std::vector<Ino>{f});
  for (const MapExtent& extent : before.extents) {
    EXPECT_NE(space_.generation(extent.place), extent.generation);
  }
  EXPECT_FALSE(stat(f).is_inline);
  EXPECT_EQ(stat(f).data_bytes, kUnitBytes);
  settle();
  EXPECT_EQ(space_.used_bytes(), kUnitBytes);
  EXPECT_LT(space_.used_bytes(), used);
  EXPECT_TRUE(space_.free_is_zero());
  EXPECT_EQ(run(fs().usage())->quarantined_bytes, 0u);
  // Within a unit, too: who has an old map must not read what is behind the size.
  const FileMap left = map_of(*this, f);
  EXPECT_EQ(truncate(f, 50), 0);
  EXPECT_NE(space_.generation(left.extents[0].place), left.extents[0].generation);
  EXPECT_EQ(truncate(f, 0), 0);
  EXPECT_TRUE(stat(f).is_inline);
  settle();
  EXPECT_EQ(space_.used_bytes(), 0u);
}

TEST_F(Data, QuarantineSurvivesACrashAndEndsBehindIt) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, std::string(500'000, 'x')), 0);
  space_.failing_cleans = 1000;
  EXPECT_EQ(truncate(f, 0), 0);
  settle();
  EXPECT_GE(run(fs().usage())->quarantined_bytes, 500'000u);
  EXPECT_GE(space_.used_bytes(), 500'000u);
  space_.failing_cleans = 0;
  restart();
  settle();
  EXPECT_EQ(run(fs().usage())->quarantined_bytes, 0u);
  EXPECT_EQ(space_.used_bytes(), 0u);
  EXPECT_TRUE(space_.free_is_zero());
}

TEST_F(Data, ScansAmongWorkersFreeNothingTwice) {
  for (uint64_t grace_ns = 1; grace_ns < 40; ++grace_ns) {
    const Ino f = file("f" + std::to_string(grace_ns));
    for (uint64_t i = 0; i < 20; ++i) ASSERT_EQ(write(f, 2 * i * kUnitBytes, "x"), 0);
    space_.failing_cleans = 1000;
    ASSERT_EQ(allocate(f, AllocateMode::kPunchHole, 0, 40 * kUnitBytes), 0);
    space_.failing_cleans = 0;
    // One scan at the start, one at the end of the grace period: while the workers are busy.
    options_.reclaim_ns = grace_ns;
    restart();
    settle();
    EXPECT_EQ(space_.used_bytes(), 0u);
    EXPECT_EQ(run(fs().usage())->quarantined_bytes, 0u);
  }
}

TEST_F(Data, WhatIsUnlinkedInTheGracePeriodCanBeOpenedAgain) {
  const Ino f = file("f"), g = file("g"), small = file("small"), other = file("other");
  for (const Ino ino : {f, g}) EXPECT_EQ(write(ino, 0, std::string(10'000, 'x')), 0);
  options_.reclaim_ns = 60'000'000'000;
  restart();
  // Another client, which is quicker than the one that has them open.
  EXPECT_EQ(unlink("f"), 0);
  EXPECT_EQ(unlink("small"), 0);
  EXPECT_EQ(rename(kRootIno, "other", kRootIno, "g"), 0);
  ASSERT_TRUE(run(fs().open_file(root(), f, O_RDONLY, OpenOwner{2})));
  EXPECT_EQ(number(run(fs().close_file(f, OpenOwner{2}))), 0);
  for (int i = 0; i < 100; ++i) executor_.run_once();
  for (const Ino ino : {f, g, small}) {
    EXPECT_TRUE(run(fs().open_file(root(), ino, O_RDONLY, OpenOwner{1}))) << raw(ino);
  }
  EXPECT_EQ(read(f, 0, 1), "x");
  sleep(options_.reclaim_ns);
  settle();
  EXPECT_EQ(read(g, 0, 1), "x");
  run(fs().forget(OpenOwner{1}));
  settle();
  EXPECT_EQ(space_.used_bytes(), 0u);
  EXPECT_EQ(run(fs().usage())->inodes, 2u);
  EXPECT_EQ(lookup("g"), other);
}

TEST_F(Data, AnOpenThatEndsBehindItsSessionIsClosed) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, std::string(10'000, 'x')), 0);
  int ended = 0;
  const auto open = [&]() -> Task<void> {
    (void)co_await fs().open_file(root(), f, O_RDONLY, OpenOwner{1});
    ++ended;
  };
  const auto make = [&]() -> Task<void> {
    (void)co_await fs().make(root(), kRootIno, "g", {}, OpenOwner{1});
    ++ended;
  };
  executor_.spawn(open());
  const auto forget = [&]() -> Task<void> {
    co_await fs().forget(OpenOwner{1});
    ++ended;
  };
  executor_.spawn(make());
  executor_.spawn(forget());
  while (ended < 3) executor_.run_once();
  EXPECT_EQ(unlink("f"), 0);
  EXPECT_EQ(unlink("g"), 0);
  settle();
  EXPECT_EQ(space_.used_bytes(), 0u);
  EXPECT_EQ(run(fs().usage())->inodes, 1u);
}

TEST_F(Data, WhatIsLeftOfTruncationsIsFinished) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, std::string(200'000, 'x')), 0);
  namespace_.reset();
  const auto put_orphan = [&](Ino ino) {
    const TableId orphans = *run(client_->open_table(".fs.orphans"));
    ASSERT_TRUE(run(client_->put(orphans, internal::ino_key(ino),
                                 internal::encode(internal::OrphanKind::kTruncated))));
  };
  put_orphan(f);         // it may be open, and is finished all the same
  put_orphan(Ino{999});  // it was unlinked
  options_.reclaim_ns = 60'000'000'000;
  restart();
  for (int i = 0; i < 200; ++i) executor_.run_once();
  client_.reset();
  open_store();
  EXPECT_EQ(run(check_namespace(*client_, {}, false))->found, 0u);
}

TEST_F(Data, WhatCannotBeFreedHoldsUpNothingElse) {
  constexpr uint64_t kBad = 20;  // more than there are workers
  const Ino f = file("f");
  for (uint64_t i = 0; i < kBad + 4; ++i) ASSERT_EQ(write(f, 2 * i * kUnitBytes, "x"), 0);
  space_.uncleanable_below = kBad * kUnitBytes;
  ASSERT_EQ(truncate(f, 0), 0);
  settle();
  EXPECT_EQ(space_.used_bytes(), kBad * kUnitBytes);
  space_.uncleanable_below = 0;
  sleep(120'000'000'000);
  settle();
  EXPECT_EQ(space_.used_bytes(), 0u);
}

TEST_F(Data, AnAllocationThatCannotEndTakesNothing) {
  const Ino f = file("f"), g = file("g");
  EXPECT_EQ(allocate(f, AllocateMode::kKeepSize, 0, uint64_t{1} << 40), ENOSPC);
  EXPECT_EQ(space_.used_bytes(), 0u);
  EXPECT_EQ(stat(f).data_bytes, 0u);
  EXPECT_EQ(allocate(f, AllocateMode::kKeepSize, 0, 10 << 20), 0);
  // What is there needs no room.
  EXPECT_EQ(allocate(f, AllocateMode::kExtend, 0, 12 << 20), 0);
  EXPECT_EQ(truncate(f, 100), 0);
  EXPECT_EQ(allocate(f, AllocateMode::kKeepSize, 0, 12 << 20), 0);
  EXPECT_EQ(truncate(f, 100), 0);  // room behind the size goes
  EXPECT_EQ(stat(f).data_bytes, kUnitBytes);
  // Space that is being cleaned is waited for.
  EXPECT_EQ(allocate(g, AllocateMode::kKeepSize, 0, 15 << 20), 0);
  EXPECT_EQ(unlink("g"), 0);
  EXPECT_EQ(write(f, 8 << 20, std::string(1 << 20, 'x')), 0);
  EXPECT_EQ(allocate(f, AllocateMode::kExtend, 0, 15 << 20), 0);
}

TEST_F(Data, RoomBehindInlineDataGoesWithATruncation) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, "some"), 0);
  space_.failing_writes = 1;
  EXPECT_EQ(allocate(f, AllocateMode::kKeepSize, 0, 1 << 20), EIO);
  EXPECT_TRUE(stat(f).is_inline);
  ASSERT_GT(stat(f).data_bytes, kUnitBytes);
  EXPECT_EQ(truncate(f, 2), 0);
  EXPECT_EQ(stat(f).data_bytes, kUnitBytes);
  EXPECT_EQ(read(f), "so");
  EXPECT_EQ(truncate(f, 0), 0);
  EXPECT_EQ(stat(f).data_bytes, 0u);
  settle();
  EXPECT_EQ(space_.used_bytes(), 0u);
}

TEST_F(Data, ABusyFileDoesNotLockItsDirectory) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, std::string(10'000, 'x')), 0);
  space_.zero_ns = 1'000'000'000;
  const Caller caller;
  int ended = 0;
  const auto grow = [&]() -> Task<void> {
    const AttributeChange larger{.set = AttributeChange::kSize, .size = 20'000};
    const auto grown = co_await fs().set_attributes(caller, f, larger);
    EXPECT_TRUE(grown);
    ++ended;
  };
  const auto remove = [&]() -> Task<void> {
    const auto removed = co_await fs().unlink(caller, kRootIno, "f");
    EXPECT_TRUE(removed);
    ++ended;
  };
  const auto open = [&]() -> Task<void> {
    const NewFile existing{.exclusive = false, .open_flags = O_RDONLY};
    const auto opened = co_await fs().make(caller, kRootIno, "f", existing, OpenOwner{1});
    EXPECT_TRUE(opened);
    ++ended;
  };
  executor_.spawn(grow());
  executor_.spawn(open());
  executor_.spawn(remove());
  for (int i = 0; i < 20; ++i) {
    file("other" + std::to_string(i));
    EXPECT_EQ(ended, 0);
  }
  sleep(5'000'000'000);
  EXPECT_EQ(ended, 3);
  // Who opens it behind the removal makes it anew.
  const auto left = run(fs().lookup(root(), kRootIno, "f"));
  EXPECT_TRUE(!left || left->ino != f);
}

TEST_F(Data, PunchedRangesReadAsZerosAndAreFreed) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, std::string(4 * kUnitBytes, 'x')), 0);
  EXPECT_EQ(allocate(f, AllocateMode::kPunchHole, kUnitBytes - 10, 2 * kUnitBytes + 20), 0);
  EXPECT_EQ(stat(f).size, 4 * kUnitBytes);
  EXPECT_EQ(stat(f).data_bytes, 2 * kUnitBytes);
  const std::string all = read(f);
  EXPECT_EQ(all.substr(0, kUnitBytes - 10), std::string(kUnitBytes - 10, 'x'));
  EXPECT_EQ(all.substr(kUnitBytes - 10, 2 * kUnitBytes + 20),
            std::string(2 * kUnitBytes + 20, '\0'));
  EXPECT_EQ(all.substr(3 * kUnitBytes + 10), std::string(kUnitBytes - 10, 'x'));
  EXPECT_EQ(allocate(f, AllocateMode::kPunchHole, 10, 5), 0);
  EXPECT_EQ(read(f, 9, 7), std::string("x\0\0\0\0\0x", 7));
  // To the end of the file: its last unit goes, too.
  EXPECT_EQ(truncate(f, 4 * kUnitBytes - 100), 0);
  EXPECT_EQ(allocate(f, AllocateMode::kPunchHole, 3 * kUnitBytes, kUnitBytes - 100), 0);
  EXPECT_EQ(stat(f).data_bytes, kUnitBytes);
  EXPECT_EQ(allocate(f, AllocateMode::kPunchHole, 0, 0), EINVAL);
  EXPECT_EQ(allocate(f, AllocateMode::kPunchHole, kMaxFileBytes, 1), EFBIG);
}

TEST_F(Data, ZeroedRangesKeepTheirRoom) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, "abcdef"), 0);
  EXPECT_EQ(allocate(f, AllocateMode::kZeroRange, 2, 2), 0);
  EXPECT_EQ(read(f), std::string("ab\0\0ef", 6));
  EXPECT_EQ(allocate(f, AllocateMode::kZeroRange, 5, 100'000), 0);
  EXPECT_EQ(stat(f).size, 100'005u);
  EXPECT_EQ(stat(f).data_bytes, 2 * kUnitBytes);
  EXPECT_EQ(read(f), std::string("ab\0\0e", 5) + std::string(100'000, '\0'));
}

TEST_F(Data, RoomBehindTheSizeIsKept) {
  const Ino f = file("f");
  EXPECT_EQ(allocate(f, AllocateMode::kKeepSize, 0, 1'000'000), 0);
  EXPECT_EQ(stat(f).size, 0u);
  EXPECT_EQ(stat(f).data_bytes, 16 * kUnitBytes);
  EXPECT_EQ(write(f, 500'000, "x"), 0);
  EXPECT_EQ(stat(f).data_bytes, 16 * kUnitBytes);
  EXPECT_EQ(read(f, 499'990), std::string(10, '\0') + "x");
  EXPECT_EQ(allocate(f, AllocateMode::kExtend, 0, 1'000'000), 0);
  EXPECT_EQ(stat(f).size, 1'000'000u);
  EXPECT_EQ(read(f, 500'000, 2), std::string("x\0", 2));
}

TEST_F(Data, AFullAreaIsNoSpaceAndLeavesNothing) {
  const Ino f = file("f");
  const std::string block(1 << 20, 'b');
  int error = 0;
  while (error == 0) error = write(f, std::nullopt, block);
  EXPECT_EQ(error, ENOSPC);
  const uint64_t size = stat(f).size;
  EXPECT_EQ(size % block.size(), 0u);
  EXPECT_GE(size, 15u << 20);
  const Ino g = file("g");
  EXPECT_EQ(write(g, 0, std::string(5000, 'g')), ENOSPC);
  EXPECT_EQ(stat(g).size, 0u);
  EXPECT_EQ(stat(g).data_bytes, 0u);
  EXPECT_EQ(write(g, 0, "inline fits"), 0);
  EXPECT_EQ(allocate(g, AllocateMode::kExtend, 0, 1 << 20), ENOSPC);
  EXPECT_EQ(unlink("f"), 0);
  settle();
  EXPECT_EQ(write(g, 0, std::string(5000, 'g')), 0);
}

TEST_F(Data, AFullPoolIsNoSpaceAndCanBeEmptied) {
  const Ino large = file("large");
  EXPECT_EQ(write(large, 0, std::string(500'000, 'x')), 0);
  std::vector<std::string> made;
  const std::string text(4000, 't');
  int error = 0;
  for (int i = 0; error == 0; ++i) {
    const std::string name = "f" + std::to_string(i);
    error = make_error_of(kRootIno, name);
    if (error == 0) {
      made.push_back(name);
      error = write(lookup(name), 0, text);
    }
  }
  EXPECT_EQ(error, ENOSPC);
  ASSERT_GT(made.size(), 100u);
  EXPECT_EQ(names(kRootIno).size(), made.size() + 1);
  // To take things away needs no room.
  EXPECT_EQ(truncate(large, 0), 0);
  EXPECT_EQ(unlink("large"), 0);
  for (const std::string& name : made) EXPECT_EQ(unlink(name), 0) << name;
  settle();
  EXPECT_TRUE(names(kRootIno).empty());
  EXPECT_EQ(space_.used_bytes(), 0u);
}

TEST_F(Data, AFailedWriteChangesNothing) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, std::string(100'000, 'x')), 0);
  space_.failing_writes = 1;
  EXPECT_EQ(write(f, 100'000, "more"), EIO);
  EXPECT_EQ(stat(f).size, 100'000u);
  EXPECT_EQ(write(f, std::nullopt, "more"), 0);
  EXPECT_EQ(read(f, 99'999), "xmore");
}

TEST_F(Data, TwoAppendersNeverOverlap) {
  const Ino f = file("f");
  int done = 0;
  const auto append = [&](char letter) -> Task<void> {
    for (int i = 0; i < 40; ++i) {
      const std::string text(1 + i * 97 % 3000, letter);
      const auto written = co_await fs().write(f, std::nullopt, as_bytes(text));
      EXPECT_TRUE(written);
      if (!written) break;
      const auto back = co_await fs().read(f, written->offset, text.size());
      EXPECT_TRUE(back && as_text(*back) == text);
    }
    ++done;
  };
  executor_.spawn(append('a'));
  executor_.spawn(append('b'));
  while (done < 2) executor_.run_once();
  uint64_t expected = 0;
  for (int i = 0; i < 40; ++i) expected += 2 * (1 + static_cast<uint64_t>(i) * 97 % 3000);
  EXPECT_EQ(stat(f).size, expected);
}

TEST_F(Data, OpenTruncates) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, std::string(100'000, 'x')), 0);
  const auto opened = run(fs().open_file(root(), f, O_WRONLY | O_TRUNC, OpenOwner{1}));
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->size, 0u);
  EXPECT_EQ(read(f), "");
}

TEST_F(Data, MapsAreGivenRoomBelowTheSize) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, "inline"), 0);
  auto mapped = run(fs().map(f, 0, 6, true));
  ASSERT_TRUE(mapped);
  EXPECT_FALSE(mapped->attributes.is_inline);
  ASSERT_EQ(mapped->map.extents.size(), 1u);
  EXPECT_EQ(read(f), "inline");
  EXPECT_EQ(truncate(f, 10 * kUnitBytes), 0);
  mapped = run(fs().map(f, 5 * kUnitBytes, kMaxFileBytes, true));
  ASSERT_TRUE(mapped);
  uint64_t sum = 0;
  for (const MapExtent& extent : mapped->map.extents) sum += extent.place.bytes;
  EXPECT_EQ(sum, 5 * kUnitBytes);
  EXPECT_EQ(number(run(fs().map(kRootIno, 0, 1, false))), EISDIR);
}

TEST_F(Data, ALargeTruncationTakesManyTransactions) {
  const Ino f = file("f"), other = file("other");
  // Turns, so that extents are not neighbours.
  for (uint64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(write(f, 2 * i * kUnitBytes, "x"), 0);
    ASSERT_EQ(write(other, 2 * i * kUnitBytes, "y"), 0);
  }
  EXPECT_EQ(map_of(*this, f).extents.size(), 100u);
  EXPECT_EQ(truncate(f, 1), 0);
  EXPECT_EQ(map_of(*this, f).extents.size(), 1u);
  settle();
  EXPECT_EQ(unlink("other"), 0);
  settle();
  EXPECT_EQ(space_.used_bytes(), kUnitBytes);
  EXPECT_TRUE(space_.free_is_zero());
}

}  // namespace
}  // namespace pmstore::fs
