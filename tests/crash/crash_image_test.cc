// What the crash machinery itself must show and must not show, on traces small enough to count by
// hand.
#include "tests/crash/crash_image.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "persist/memory.h"

namespace pmstore::crash {
namespace {

constexpr size_t kBytes = 4096;

class CrashImageTest : public testing::Test {
 protected:
  void store(uint64_t at, const std::string& text) {
    memory_.store(memory_.at(at), text.data(), text.size());
  }
  // All contents that [at, at + bytes) may have after a crash at the end of the trace.
  static std::set<std::string> survivors(const Trace& trace, uint64_t at, size_t bytes,
                                         uint64_t limit = 1000) {
    CrashStates states(trace);
    while (states.step()) {
    }
    std::set<std::string> found;
    Random random(1);
    states.visit(limit, random, [&](CrashImage& image) {
      found.emplace(reinterpret_cast<const char*>(image.bytes().data() + at), bytes);
      return true;
    });
    return found;
  }

  PageBytes region_{kBytes};
  persist::Memory memory_{region_.bytes(), {.domain = persist::Domain::kMemoryController}};
};

TEST_F(CrashImageTest, StoresOfOneLineSurviveAsAPrefix) {
  CrashRecorder recorder(memory_);
  store(0, "AAAAAAAA");
  store(8, "BBBBBBBB");
  const std::string a(8, 'A'), b(8, 'B'), none(8, '\0');
  EXPECT_EQ(survivors(recorder.take(), 0, 16),
            (std::set<std::string>{none + none, a + none, a + b}));
}

TEST_F(CrashImageTest, LinesSurviveInAnyOrder) {
  CrashRecorder recorder(memory_);
  store(0, "A");
  store(64, "B");
  const Trace trace = recorder.take();
  EXPECT_EQ(survivors(trace, 0, 65).size(), 4u);
}

TEST_F(CrashImageTest, OneStoreOverTwoLinesMayLeaveOnlyItsEnd) {
  CrashRecorder recorder(memory_);
  store(56, "AAAAAAAABBBBBBBB");
  EXPECT_TRUE(survivors(recorder.take(), 56, 16).contains(std::string(8, '\0') + "BBBBBBBB"));
}

TEST_F(CrashImageTest, OverwrittenWordMayHoldTheOldTheFirstOrTheLast) {
  CrashRecorder recorder(memory_);
  store(0, "A");
  store(0, "B");
  const std::string none(1, '\0');
  EXPECT_EQ(survivors(recorder.take(), 0, 1), (std::set<std::string>{none, "A", "B"}));
}

TEST_F(CrashImageTest, FlushAndDrainTogetherMakeDurable) {
  CrashRecorder recorder(memory_);
  store(0, "A");
  memory_.flush(memory_.at(0), 1);
  ASSERT_TRUE(memory_.drain());
  const Trace trace = recorder.take();
  EXPECT_EQ(survivors(trace, 0, 1), (std::set<std::string>{"A"}));
  ASSERT_EQ(trace.barriers().size(), 2u);
  for (size_t barrier : trace.barriers()) {
    EXPECT_EQ(survivors(trace.without(barrier), 0, 1).size(), 2u) << trace.describe(barrier);
  }
}

TEST_F(CrashImageTest, StoreBetweenFlushAndDrainStaysInDoubt) {
  CrashRecorder recorder(memory_);
  store(0, "A");
  memory_.flush(memory_.at(0), 1);
  store(1, "B");
  ASSERT_TRUE(memory_.drain());
  EXPECT_EQ(survivors(recorder.take(), 0, 2), (std::set<std::string>{std::string("A\0", 2), "AB"}));
}

TEST_F(CrashImageTest, BarriersThatFindNothingToDoAreNoMutants) {
  CrashRecorder recorder(memory_);
  ASSERT_TRUE(memory_.drain());       // 0: nothing was flushed
  memory_.flush(memory_.at(0), 64);   // 1: nothing was stored
  store(0, "A");                      // 2
  memory_.flush(memory_.at(64), 64);  // 3: another line
  memory_.flush(memory_.at(32), 64);  // 4
  memory_.flush(memory_.at(0), 1);    // 5: again
  ASSERT_TRUE(memory_.drain());       // 6
  ASSERT_TRUE(memory_.drain());       // 7: again
  EXPECT_EQ(recorder.take().barriers(), (std::vector<size_t>{4, 6}));
}

TEST_F(CrashImageTest, NonTemporalStoreNeedsOnlyTheDrain) {
  CrashRecorder recorder(memory_);
  const std::string text(256, 'N');
  memory_.write(memory_.at(0), text.data(), text.size());
  ASSERT_TRUE(memory_.drain());
  const Trace trace = recorder.take();
  EXPECT_EQ(survivors(trace, 0, 256), (std::set<std::string>{text}));
  for (size_t barrier : trace.barriers()) {
    EXPECT_GT(survivors(trace.without(barrier), 0, 256).size(), 1u) << trace.describe(barrier);
  }
}

TEST_F(CrashImageTest, TooManyStatesAreSampledWithTheExtremes) {
  CrashRecorder recorder(memory_);
  const std::string text(512, 'N');
  store(0, text);
  const auto found = survivors(recorder.take(), 0, 512, 60);
  EXPECT_GT(found.size(), 30u);
  EXPECT_TRUE(found.contains(text));
  EXPECT_TRUE(found.contains(std::string(512, '\0')));
  EXPECT_TRUE(found.contains(text.substr(64) + std::string(64, '\0'))) << "all but the last line";
}

TEST_F(CrashImageTest, WhatACheckStoresIsUndone) {
  CrashRecorder recorder(memory_);
  store(0, "A");
  const Trace trace = recorder.take();
  CrashSearch search;
  const auto complaint = search.run(trace, [](CrashImage& image, size_t) {
    persist::Memory memory(image.bytes(), {.domain = persist::Domain::kMemoryController});
    image.watch(memory);
    std::optional<std::string> wrong;
    if (*memory.at(1000) != std::byte{0}) wrong = "a trace of the image before";
    memory.store(memory.at(1000), "X", 1);
    return wrong;
  });
  EXPECT_FALSE(complaint) << *complaint;
  EXPECT_EQ(search.images_seen, 3u) << "before the store, and two after it";
}

TEST_F(CrashImageTest, SearchSaysWhereItWentWrong) {
  CrashRecorder recorder(memory_);
  store(0, "A");
  recorder.mark();
  const Trace trace = recorder.take();
  CrashSearch search;
  const auto complaint = search.run(trace, [](CrashImage& image, size_t marks) {
    const bool there = image.bytes()[0] == std::byte{'A'};
    return marks > 0 && !there ? std::optional<std::string>("lost") : std::nullopt;
  });
  EXPECT_EQ(complaint, "crash before the end, after 1 marks: lost");
}

}  // namespace
}  // namespace pmstore::crash
