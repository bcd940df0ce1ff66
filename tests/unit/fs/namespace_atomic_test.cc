// Atomic writes: what they leave, in which order their steps come, and what is left of one that
// fails or is given up.
#include <cerrno>
#include <filesystem>

#include "base/random.h"
#include "fs/layout/fs_layout.h"
#include "tests/unit/fs/namespace_fixture.h"

namespace pmstore::fs {
namespace {

using Step = MemorySpace::Step;

class AtomicWrites : public NamespaceTest {
 protected:
  int replace(Ino ino, uint64_t offset, std::string_view text) {
    return number(run(fs().write(ino, offset, as_bytes(text), true)));
  }
  Ino large(std::string_view name, uint64_t bytes) {
    const Ino ino = file(name);
    EXPECT_EQ(write(ino, 0, std::string(bytes, 'x')), 0);
    return ino;
  }
  FileMap map_of(Ino ino) {
    auto mapped = run(fs().map(ino, 0, kMaxFileBytes, false));
    EXPECT_TRUE(mapped);
    return mapped ? mapped->map : FileMap{};
  }
  std::string all_of(Ino ino) { return read(ino) + read(ino, kMaxMessageData, kMaxMessageData); }
  // The file has this content, and nothing else has any room.
  void expect_only(Ino ino, const std::string& content) {
    EXPECT_TRUE(all_of(ino) == content);
    settle();
    EXPECT_EQ(run(fs().usage())->quarantined_bytes, 0u);
    EXPECT_EQ(space_.used_bytes(), stat(ino).data_bytes);
    EXPECT_TRUE(space_.free_is_zero());
    EXPECT_EQ(damage(), std::vector<std::string>{});
    EXPECT_TRUE(all_of(ino) == content);
  }
};

TEST_F(AtomicWrites, TakeThePlaceOfBytesInSeveralUnitsAndKeepTheRest) {
  std::string content(200'000, 'x');
  const Ino f = large("f", content.size());
  const uint64_t data_bytes = stat(f).data_bytes;
  now_ns_ += 1000;
  EXPECT_EQ(replace(f, 60'000, std::string(20'000, 'y')), 0);
  content.replace(60'000, 20'000, std::string(20'000, 'y'));
  EXPECT_EQ(stat(f).data_bytes, data_bytes);
  EXPECT_EQ(stat(f).mtime_ns, now_ns_);
  expect_only(f, content);
}

TEST_F(AtomicWrites, LeaveWhatIsInFrontOfAndBehindThemInItsPlace) {
  std::string content(5 * kUnitBytes, 'x');
  const Ino f = large("f", content.size());
  const FileMap before = map_of(f);
  EXPECT_EQ(replace(f, 2 * kUnitBytes + 10, "y"), 0);
  content[2 * kUnitBytes + 10] = 'y';
  const FileMap after = map_of(f);
  ASSERT_EQ(before.extents.size(), 1u);
  ASSERT_EQ(after.extents.size(), 3u);
  const uint64_t place = before.extents[0].place.offset;
  EXPECT_EQ(after.extents[0].place, (AreaRange{0, place, 2 * kUnitBytes}));
  EXPECT_NE(after.extents[0].generation, before.extents[0].generation);
  EXPECT_EQ(after.extents[2].file_offset, 3 * kUnitBytes);
  EXPECT_EQ(after.extents[2].place.offset, place + 3 * kUnitBytes);
  expect_only(f, content);
}

TEST_F(AtomicWrites, MayLieOverHolesAndTheEndOfTheFile) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 3 * kUnitBytes, "end"), 0);
  std::string content(3 * kUnitBytes, '\0');
  content += "end";
  EXPECT_EQ(replace(f, kUnitBytes + 100, "in a hole"), 0);
  content.replace(kUnitBytes + 100, 9, "in a hole");
  EXPECT_TRUE(read(f) == content);
  const std::string over(2 * kUnitBytes, 'o');
  EXPECT_EQ(replace(f, 3 * kUnitBytes + 1, over), 0);
  content.resize(3 * kUnitBytes + 1);
  content += over;
  EXPECT_EQ(stat(f).size, content.size());
  expect_only(f, content);
}

TEST_F(AtomicWrites, DoNotShowWhatLiesBehindTheSize) {
  const Ino f = large("f", 10'000);
  const AreaRange place = map_of(f).extents.at(0).place;
  // As a client with an old map may leave it.
  std::ranges::fill(space_.bytes_of(place).subspan(10'000), std::byte{'!'});
  EXPECT_EQ(replace(f, 5000, "y"), 0);
  EXPECT_EQ(truncate(f, 20'000), 0);
  std::string content(10'000, 'x');
  content[5000] = 'y';
  content.resize(20'000);
  expect_only(f, content);
}

TEST_F(AtomicWrites, OfInlineFilesAndAtTheEndAreAsOthersAre) {
  const Ino f = file("f");
  EXPECT_EQ(replace(f, 0, "inline"), 0);
  EXPECT_EQ(replace(f, 2, "LINE"), 0);
  EXPECT_EQ(read(f), "inLINE");
  EXPECT_TRUE(stat(f).is_inline);
  std::string content = "inLI" + std::string(100'000, 'o');
  EXPECT_EQ(replace(f, 4, std::string(100'000, 'o')), 0);
  EXPECT_EQ(read(f), content);
  EXPECT_EQ(replace(f, content.size() + 3, "more"), 0);
  content += std::string(3, '\0') + "more";
  expect_only(f, content);
}

TEST_F(AtomicWrites, AreAtMostAMebibyte) {
  const Ino f = large("f", 1 << 20);
  EXPECT_EQ(replace(f, 0, std::string((1 << 20) + 1, 'y')), EINVAL);
  EXPECT_EQ(replace(f, 5, std::string(1 << 20, 'y')), 0);
  expect_only(f, std::string(5, 'x') + std::string(1 << 20, 'y'));
}

TEST_F(AtomicWrites, TakeSetIdBitsAway) {
  const Ino f = large("f", 10'000);
  EXPECT_EQ(number(run(fs().set_attributes({}, f, {.set = AttributeChange::kMode, .mode = 04755}))),
            0);
  EXPECT_EQ(replace(f, 0, "y"), 0);
  EXPECT_EQ(stat(f).mode, 0755);
}

// The words of the old units change before these are read, the new ones are written before the old
// ones are given up, and clients hear of it before that.
TEST_F(AtomicWrites, StepsComeInTheirOrder) {
  const Ino f = large("f", 2 * kUnitBytes);
  const AreaRange old = map_of(f).extents.at(0).place;
  map_changes_.clear();
  std::vector<Step> steps;
  space_.on_step = [&](Step step, const AreaRange& range) {
    if (step == Step::kWords && steps.empty()) {
      EXPECT_EQ(range, old);
    }
    if (step == Step::kWrite) {
      EXPECT_NE(range.offset / kUnitBytes, old.offset / kUnitBytes) << "the old bytes are whole";
    }
    if (step == Step::kRetire) {
      EXPECT_EQ(range, (AreaRange{0, old.offset, kUnitBytes}));
      EXPECT_EQ(map_changes_, std::vector<Ino>{f});
    }
    steps.push_back(step);
  };
  EXPECT_EQ(replace(f, 100, "y"), 0);
  settle();
  space_.on_step = {};
  ASSERT_GE(steps.size(), 4u);
  EXPECT_EQ(steps[0], Step::kWords);
  EXPECT_EQ(steps[1], Step::kWrite);
  EXPECT_EQ(steps[2], Step::kRetire);
}

TEST_F(AtomicWrites, WhatClientsWriteBeforeTheWordsChangeIsKept) {
  const Ino f = large("f", kUnitBytes);
  const AreaRange old = map_of(f).extents.at(0).place;
  space_.on_step = [&](Step step, const AreaRange&) {
    if (step == Step::kWords) space_.bytes_of(old)[7] = std::byte{'c'};
  };
  EXPECT_EQ(replace(f, 100, "y"), 0);
  space_.on_step = {};
  std::string content(kUnitBytes, 'x');
  content[7] = 'c';
  content[100] = 'y';
  expect_only(f, content);
}

TEST_F(AtomicWrites, AStepThatFailsLeavesTheOldBytes) {
  const std::string content(100'000, 'x');
  const Ino f = large("f", content.size());
  const auto fails = [&](int number) {
    EXPECT_EQ(replace(f, 60'000, std::string(10'000, 'y')), number);
    expect_only(f, content);
  };
  space_.failing_words = 1;
  fails(EIO);
  space_.failing_writes = 1;
  fails(EIO);
  space_.allocations_left = 0;
  fails(ENOSPC);
  space_.allocations_left = 1;  // of the two that it takes
  space_.on_step = {};
  EXPECT_EQ(replace(f, 60'000, std::string(10'000, 'y')), 0) << "one extent may have both units";
  space_.allocations_left = -1;
}

// A power cut between the writing of new units and the transaction: a start finds them in
// quarantine.
TEST_F(AtomicWrites, NewUnitsAreRecordedBeforeTheyAreWritten) {
  const Ino f = large("f", 100'000);
  const std::string copy = scratch_.path("copy");
  space_.on_step = [&](Step step, const AreaRange&) {
    if (step == Step::kWrite && !std::filesystem::exists(copy)) {
      std::filesystem::copy_file(path_, copy);
    }
  };
  EXPECT_EQ(replace(f, 0, "y"), 0);
  space_.on_step = {};
  stop();
  std::filesystem::rename(copy, path_);
  start();
  settle();
  EXPECT_TRUE(space_.free_is_zero()) << "the new unit was written, and belongs to nothing";
  EXPECT_EQ(space_.used_bytes(), stat(f).data_bytes);
}

// Its caller is destroyed after any number of turns: all of it is there, or nothing.
TEST_F(AtomicWrites, OneThatIsGivenUpHappensAsAWholeOrNot) {
  commits_take_turns();
  const std::string old(2 * kUnitBytes, 'x');
  std::string fresh = old;
  fresh.replace(kUnitBytes - 5, 10, "yyyyyyyyyy");
  const Ino f = file("f");
  bool went_on = true;
  for (int turns = 0; went_on; ++turns) {
    ASSERT_EQ(write(f, 0, old), 0);
    {
      auto task = fs().write(f, kUnitBytes - 5, as_bytes("yyyyyyyyyy"), true);
      task.start();
      for (int i = 0; i < turns && !task.done(); ++i) executor_.run_once();
      went_on = !task.done();
    }
    settle();
    const std::string now = read(f);
    EXPECT_TRUE(now == old || now == fresh) << "after " << turns << " turns";
  }
  EXPECT_TRUE(read(f) == fresh);
  expect_only(f, fresh);
}

TEST_F(AtomicWrites, ManyOfThemAreAsAReferenceHasThem) {
  base::Random random(5);
  std::string content;
  const Ino f = file("f");
  for (int step = 0; step < 200; ++step) {
    const uint64_t most = random.below(4) == 0 ? 5 * kUnitBytes : 3000;
    const std::string text(1 + random.below(most), static_cast<char>('a' + random.below(26)));
    const uint64_t offset = random.below(8 * kUnitBytes);
    if (content.size() < offset + text.size()) content.resize(offset + text.size());
    content.replace(offset, text.size(), text);
    const bool atomic = random.below(3) > 0;
    ASSERT_EQ(number(run(fs().write(f, offset, as_bytes(text), atomic))), 0);
    if (random.below(20) == 0) restart();
    ASSERT_TRUE(read(f) == content) << "step " << step;
  }
  expect_only(f, content);
}

}  // namespace
}  // namespace pmstore::fs
