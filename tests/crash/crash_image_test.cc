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

// Two machines' memories side by side: who drains waits for his own flushes only.
TEST_F(CrashImageTest, AMachineDrainsWhatIsItsOwn) {
  const auto both = memory_.mapping();
  persist::Memory one(both.first(both.size() / 2), {.domain = memory_.domain()});
  persist::Memory other(both.subspan(both.size() / 2), {.domain = memory_.domain()});
  persist::Memory* const parts[] = {&one, &other};
  CrashRecorder recorder(parts, both);
  const uint64_t at = one.bytes();
  for (persist::Memory* const memory : parts) {
    memory->store(memory->base(), "A", 1);
    memory->flush(memory->base(), 1);
  }
  ASSERT_TRUE(one.drain());
  const std::string none(1, '\0');
  Trace trace = recorder.take();
  EXPECT_EQ(survivors(trace, 0, 1), (std::set<std::string>{"A"}));
  EXPECT_EQ(survivors(trace, at, 1), (std::set<std::string>{none, "A"}));
  EXPECT_EQ(trace.barriers().size(), 3u);
  trace.events.push_back(
      {.kind = model::EventKind::kDrain, .offset = at, .bytes = other.bytes(), .data = {}});
  EXPECT_EQ(survivors(trace, at, 1), (std::set<std::string>{"A"}));
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

// ---- what devices write ----

class DmaTest : public CrashImageTest {
 protected:
  void dma(CrashRecorder& recorder, uint64_t at, const std::string& text, model::Landing landing) {
    recorder.on_dma_write(memory_.at(at), text.data(), text.size(), landing);
    std::memcpy(memory_.at(at), text.data(), text.size());
  }
  void packet(CrashRecorder& recorder) { recorder.on_packet(model::Packet::kAcknowledged, 1, 64); }
};

TEST_F(DmaTest, WriteIntoTheCacheIsInDoubtUntilItIsFlushed) {
  CrashRecorder recorder(memory_);
  dma(recorder, 0, "A", model::Landing::kLastLevelCache);
  packet(recorder);
  const Trace trace = recorder.trace();
  EXPECT_EQ(survivors(trace, 0, 1).size(), 2u);
  memory_.flush(memory_.at(0), 1);
  ASSERT_TRUE(memory_.drain());
  EXPECT_EQ(survivors(recorder.take(), 0, 1), (std::set<std::string>{"A"}));
}

TEST_F(DmaTest, WriteIntoMemoryIsDurableWhenItIsOver) {
  CrashRecorder recorder(memory_);
  const std::string text(128, 'A');
  dma(recorder, 0, text, model::Landing::kMemory);
  Trace trace = recorder.trace();
  EXPECT_TRUE(survivors(trace, 0, 128).contains(std::string(64, '\0') + text.substr(64)))
      << "in the middle of it, its lines may have landed in any order";
  packet(recorder);
  EXPECT_EQ(survivors(recorder.take(), 0, 128), (std::set<std::string>{text}));
}

TEST_F(DmaTest, WriteIntoMemoryTakesTheLinesEarlierStoresAlong) {
  CrashRecorder recorder(memory_);
  store(0, "A");
  store(64, "B");
  dma(recorder, 8, "C", model::Landing::kMemory);
  packet(recorder);
  const Trace trace = recorder.take();
  EXPECT_EQ(survivors(trace, 0, 9), (std::set<std::string>{std::string("A\0\0\0\0\0\0\0C", 9)}));
  EXPECT_EQ(survivors(trace, 64, 1).size(), 2u) << "another line";
}

TEST_F(DmaTest, WhatIsOutsideTheMemoryIsIgnored) {
  CrashRecorder recorder(memory_);
  char elsewhere = 0;
  recorder.on_dma_write(&elsewhere, "A", 1, model::Landing::kMemory);
  EXPECT_TRUE(recorder.take().events.empty());
}

// ---- eADR ----

class CachesSurviveTest : public DmaTest {
 protected:
  void store_in_caches(uint64_t at, const std::string& text) {
    caches_.store(caches_.at(at), text.data(), text.size());
  }
  persist::Memory caches_{region_.bytes(), {.domain = persist::Domain::kCpuCache}};
};

TEST_F(CachesSurviveTest, StoreSurvivesWithoutFlush) {
  CrashRecorder recorder(caches_);
  store_in_caches(0, "A");
  store_in_caches(64, "B");
  const std::string a = "A" + std::string(63, '\0');
  EXPECT_EQ(survivors(recorder.take(), 0, 65), (std::set<std::string>{a + '\0', a + 'B'}));
}

TEST_F(CachesSurviveTest, StoreOverTwoLinesIsCutAtOnePlace) {
  CrashRecorder recorder(caches_);
  store_in_caches(56, "AAAAAAAABBBBBBBB");
  const std::string none(8, '\0');
  EXPECT_EQ(survivors(recorder.take(), 56, 16),
            (std::set<std::string>{none + none, "AAAAAAAA" + none, "AAAAAAAABBBBBBBB"}));
}

TEST_F(CachesSurviveTest, DeviceWriteSurvivesWhereverItLands) {
  for (const auto landing : {model::Landing::kLastLevelCache, model::Landing::kMemory}) {
    CrashRecorder recorder(caches_);
    dma(recorder, 0, "A", landing);
    packet(recorder);
    EXPECT_EQ(survivors(recorder.take(), 0, 1), (std::set<std::string>{"A"}));
  }
}

// Between a non-temporal store and its fence other stores may come; only the fence counts.
TEST_F(CachesSurviveTest, NonTemporalStoreSettlesAtTheFenceAndNotBefore) {
  const std::string a(64, 'A'), none(64, '\0');
  const auto stream = [&] { caches_.write_part(caches_.at(0), a.data(), a.size(), 256); };
  CrashRecorder alone(caches_);
  stream();
  packet(alone);
  store_in_caches(64, "B");
  packet(alone);
  const auto found = survivors(alone.take(), 0, 65);
  EXPECT_TRUE(found.contains(none + "B")) << "the later store may be there first";
  EXPECT_TRUE(found.contains(a + "B"));
  EXPECT_FALSE(found.contains(a + '\0')) << "the ordinary one is in the caches";
  for (const bool drains : {false, true}) {
    std::memset(region_.data(), 0, 65);
    CrashRecorder fenced(caches_);
    stream();
    drains ? static_cast<void>(caches_.drain()) : caches_.end_parts();
    const Trace trace = fenced.take();
    EXPECT_EQ(survivors(trace, 0, 64), (std::set<std::string>{a}));
    EXPECT_EQ(trace.barriers(), (std::vector<size_t>{0, 1}));
  }
}

TEST_F(CachesSurviveTest, OrdinaryStoreTakesTheLinesNonTemporalOnesAlong) {
  CrashRecorder recorder(caches_);
  const std::string a(64, 'A');
  caches_.write_part(caches_.at(0), a.data(), a.size(), 256);
  store_in_caches(0, "B");
  packet(recorder);
  EXPECT_EQ(survivors(recorder.take(), 0, 64), (std::set<std::string>{"B" + std::string(63, 'A')}));
}

TEST_F(CachesSurviveTest, TheSwitchToAnotherProcessIsAFence) {
  CrashRecorder recorder(caches_);
  const std::string a(64, 'A');
  caches_.write_part(caches_.at(0), a.data(), a.size(), 256);
  recorder.process_dies();
  EXPECT_EQ(survivors(recorder.take(), 0, 64), (std::set<std::string>{a}));
}

// ---- no persistence domain: a file's pages ----

class PageCacheTest : public testing::Test {
 protected:
  static constexpr size_t kPage = 4096;
  void store(uint64_t at, const std::string& text) {
    memory_.store(memory_.at(at), text.data(), text.size());
  }
  // What the first bytes of the first two pages may be.
  static std::set<std::string> survivors(const Trace& trace) {
    CrashStates states(trace);
    states.step_to(trace.events.size());
    std::set<std::string> found;
    Random random(1);
    states.visit(1000, random, [&](CrashImage& image) {
      std::string bytes;
      for (const size_t at : {size_t{0}, size_t{64}, kPage}) {
        const auto byte = static_cast<char>(image.bytes()[at]);
        bytes += byte == 0 ? '-' : byte;
      }
      found.insert(bytes);
      return true;
    });
    return found;
  }

  PageBytes region_{2 * kPage};
  persist::Memory memory_{region_.bytes(), {.domain = persist::Domain::kNone}};
};

TEST_F(PageCacheTest, FlushesDoNothingUntilTheDrainSynchronizesTheirPages) {
  CrashRecorder recorder(memory_);
  store(0, "A");
  memory_.flush(memory_.at(0), 1);
  const Trace trace = recorder.trace();
  EXPECT_EQ(survivors(trace), (std::set<std::string>{"---", "A--"}));
  ASSERT_TRUE(memory_.drain());
  const Trace drained = recorder.take();
  EXPECT_EQ(survivors(drained), (std::set<std::string>{"A--"}));
  EXPECT_EQ(drained.barriers(), (std::vector<size_t>{3})) << "store, flush, drain, msync";
  EXPECT_EQ(survivors(drained.without(3)).size(), 2u);
}

TEST_F(PageCacheTest, AnMsyncCoversItsPagesAndNoOthers) {
  CrashRecorder recorder(memory_);
  store(0, "A");
  store(kPage, "C");
  memory_.flush(memory_.at(0), 1);
  store(64, "B");  // behind the flush, in front of the msync
  ASSERT_TRUE(memory_.drain());
  EXPECT_EQ(survivors(recorder.take()), (std::set<std::string>{"AB-", "ABC"}));
}

// The next process does not know what the dead one had noted.
TEST_F(PageCacheTest, WhatADeadProcessHasNotSynchronizedStaysInDoubt) {
  CrashRecorder recorder(memory_);
  store(0, "A");
  memory_.flush(memory_.at(0), 1);
  recorder.process_dies();
  persist::Memory next(region_.bytes(), {.domain = persist::Domain::kNone});
  next.set_observer(&recorder);
  ASSERT_TRUE(next.drain());
  EXPECT_EQ(survivors(recorder.trace()).size(), 2u);
  next.flush(next.at(0), 1);
  ASSERT_TRUE(next.drain());
  EXPECT_EQ(survivors(recorder.trace()), (std::set<std::string>{"A--"}));
  next.set_observer(nullptr);
}

// ---- one image after the other ----

TEST_F(CrashImageTest, CachesOutliveTheProcess) {
  CrashRecorder recorder(memory_);
  store(0, "A");
  memory_.flush(memory_.at(0), 1);
  store(64, "B");
  const Trace run = recorder.take();
  CrashRecorder after(memory_);
  ASSERT_TRUE(memory_.drain());  // waits for nothing that the dead process has flushed
  memory_.flush(memory_.at(64), 1);
  ASSERT_TRUE(memory_.drain());
  const Trace recovery = after.take();
  CrashStates states(run);
  states.step_to(run.events.size());
  states.process_dies();
  states.follow(recovery);
  EXPECT_EQ(states.count(), 4u);
  states.step_to(recovery.events.size());
  EXPECT_EQ(states.count(), 2u);
}

TEST_F(CrashImageTest, HashIsThatOfTheContent) {
  CrashRecorder recorder(memory_);
  store(0, "A");
  store(0, "A");
  store(64, "B");
  const Trace trace = recorder.take();
  CrashStates states(trace);
  states.step_to(3);
  std::set<uint64_t> hashes;
  std::set<std::string> contents;
  Random random(1);
  states.visit(100, random, [&](CrashImage& image) {
    hashes.insert(states.image_hash());
    contents.emplace(reinterpret_cast<const char*>(image.bytes().data()), kBytes);
    return true;
  });
  EXPECT_EQ(states.count(), 6u);
  EXPECT_EQ(contents.size(), 4u);
  EXPECT_EQ(hashes.size(), 4u);
}

TEST_F(CrashImageTest, OneChoiceShowsOneImage) {
  CrashRecorder recorder(memory_);
  store(0, "AAAAAAAABBBBBBBB");
  store(64, "C");
  const Trace trace = recorder.take();
  CrashStates states(trace);
  states.step_to(2);
  EXPECT_TRUE(states.is_valid({1, 0}));
  EXPECT_FALSE(states.is_valid({3, 0}));
  EXPECT_FALSE(states.is_valid({1}));
  states.show({1, 1}, [&](CrashImage& image) {
    EXPECT_EQ(image.bytes()[0], std::byte{'A'});
    EXPECT_EQ(image.bytes()[8], std::byte{0});
    EXPECT_EQ(image.bytes()[64], std::byte{'C'});
    return true;
  });
}

}  // namespace
}  // namespace pmstore::crash
