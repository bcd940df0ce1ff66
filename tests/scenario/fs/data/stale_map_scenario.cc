// A map that changes while accesses by it are under way (rule 1 of file data): what is acknowledged
// took effect before the change, and what is read is from before it. With late effects as well.
#include <algorithm>
#include <cstring>

#include "tests/scenario/fs/data/data_scenario.h"

namespace pmstore::scenario {
namespace {

using fs::DataOutcome;

constexpr size_t kLine = 64;

class StaleMap : public DataScenario {
 protected:
  static int rounds() { return late_effects() || modelled() ? 30 : 100; }
  uint64_t a_moment() { return random_.below(modelled() || late_effects() ? 200'000 : 2'000'000); }
  // The same number in every line.
  static std::vector<std::byte> lines_of(uint64_t number) {
    std::vector<std::byte> made(kSeenBytes);
    for (size_t at = 0; at < made.size(); at += sizeof number) {
      std::memcpy(made.data() + at, &number, sizeof number);
    }
    return made;
  }
  static uint64_t lowest_line(const std::vector<std::byte>& lines) {
    uint64_t lowest = UINT64_MAX;
    for (size_t at = 0; at < lines.size(); at += kLine) {
      uint64_t number;
      std::memcpy(&number, lines.data() + at, sizeof number);
      lowest = std::min(lowest, number);
    }
    return lowest;
  }
  void write_while_the_map_changes(fs::DataSync sync);
};
PMSTORE_DATA_SCENARIOS(StaleMap);

void StaleMap::write_while_the_map_changes(fs::DataSync sync) {
  fs::MapExtent extent = allocate(1);
  uint64_t number = 0;
  uint64_t acknowledged = 0;
  uint64_t stale = 0;
  for (int round = 0; round < rounds(); ++round) {
    uint64_t last = number;  // acknowledged in this round; what is from before is poisoned
    Invalidated change;
    bool changed = false;
    const auto writing = [&]() -> base::Task<void> {
      while (true) {
        const bool begun_after = changed;
        const auto bytes = lines_of(++number);
        std::vector<fs::WritePiece> pieces{{extent, 0, bytes}};
        const auto done = co_await data_->write(data_->session(), std::move(pieces), sync);
        EXPECT_TRUE(done) << done.error().to_string();
        if (!done || *done == DataOutcome::kStaleMap) co_return;
        EXPECT_FALSE(begun_after) << "an old map was acknowledged";
        if (begun_after) co_return;
        last = number;
        ++acknowledged;
      }
    };
    const auto changing = [&]() -> base::Task<void> {
      co_await executor_.sleep_for(a_moment());
      change = co_await invalidate(extent);
      changed = true;
    };
    const uint64_t before = number;
    std::vector<base::Task<void>> tasks;
    tasks.push_back(writing());
    tasks.push_back(changing());
    run_together(std::move(tasks));
    ++stale;
    if (last > before) {
      ASSERT_GE(lowest_line(change.seen), last)
          << "in round " << round << " a write was acknowledged that the change has not seen";
    }
    extent = change.fresh;
    // So that every line is this map's, and no late WRITE of the old one is taken for a new one.
    ASSERT_EQ(write(extent, 0, lines_of(++number)), DataOutcome::kDone);
  }
  EXPECT_GT(acknowledged, 0u);
  EXPECT_EQ(stale, static_cast<uint64_t>(rounds()));
}

TEST_P(StaleMap, AWriteThatIsAcknowledgedWasThereBeforeTheChange) {
  write_while_the_map_changes(fs::DataSync::kAlways);
}

TEST_P(StaleMap, AVisibleWriteThatIsAcknowledgedWasThereBeforeTheChange) {
  write_while_the_map_changes(fs::DataSync::kFsync);
}

TEST_P(StaleMap, WhatIsReadIsFromBeforeTheChange) {
  fs::MapExtent extent = allocate(1);
  uint64_t read_well = 0;
  for (int round = 0; round < rounds(); ++round) {
    ASSERT_EQ(write(extent, 0, lines_of(7)), DataOutcome::kDone);
    Invalidated change;
    bool changed = false;
    const auto reading = [&]() -> base::Task<void> {
      std::vector<std::byte> into(kSeenBytes);
      const auto right = lines_of(7);
      while (true) {
        const bool begun_after = changed;
        std::fill(into.begin(), into.end(), std::byte{0});
        std::vector<fs::ReadPiece> pieces{{extent, 0, into}};
        const auto done = co_await data_->read(data_->session(), std::move(pieces));
        EXPECT_TRUE(done) << done.error().to_string();
        if (!done || *done == DataOutcome::kStaleMap) co_return;
        EXPECT_FALSE(begun_after) << "an old map was read by";
        if (begun_after) co_return;
        ++read_well;
        EXPECT_EQ(into, right) << "in round " << round;
      }
    };
    const auto changing = [&]() -> base::Task<void> {
      co_await executor_.sleep_for(a_moment());
      change = co_await invalidate(extent);
      changed = true;
    };
    std::vector<base::Task<void>> tasks;
    tasks.push_back(reading());
    tasks.push_back(changing());
    run_together(std::move(tasks));
    if (HasFailure()) return;
    extent = change.fresh;
  }
  EXPECT_GT(read_well, 0u);
}

// The end of a client's sessions is a fence: nothing that it posted lands afterwards.
TEST_P(StaleMap, NothingOfAnEndedSessionLandsInUnitsThatOthersHave) {
  fs::FileDataOptions options = data_options();
  const auto other = open(options);
  ASSERT_NE(other, nullptr);
  for (int round = 0; round < rounds() / 3; ++round) {
    const fs::MapExtent extent = allocate(1);
    std::vector<std::byte> bytes(kSeenBytes, std::byte{1});
    std::vector<base::Task<Outcome>> under_way;
    for (int i = 0; i < 4; ++i) {
      std::vector<fs::WritePiece> pieces{{extent, 0, bytes}};
      under_way.push_back(other->write(other->session(), std::move(pieces)));
      under_way.back().start();
    }
    const Invalidated change = run(invalidate(extent));
    // Ends those of both: they are one client's.
    EXPECT_TRUE(run(control(kEndSessions, {})));
    EXPECT_TRUE(run(control(kFree, {extent.place.offset, extent.place.bytes})));
    // The next owner.
    const fs::MapExtent next = allocate(1);
    EXPECT_EQ(next.place, extent.place);
    while (!run(data_->connected())) {
    }
    const std::vector<std::byte> mine(kSeenBytes, std::byte{2});
    auto done = write(next, 0, mine);
    while (!done || *done != DataOutcome::kDone) done = write(next, 0, mine);
    for (auto& task : under_way) {
      while (!task.done()) executor_.run_once();
      const Outcome late = task.take();
      EXPECT_FALSE(late.has_value() && *late == DataOutcome::kDone &&
                   lowest_line(change.seen) != lowest_line(bytes));
    }
    run([](base::Executor& executor) -> base::Task<void> {
      co_await executor.sleep_for(1'000'000);
    }(executor_));
    EXPECT_EQ(see(next, 0), mine);
    EXPECT_TRUE(run(control(kFree, {next.place.offset, next.place.bytes})));
    while (!run(other->connected())) {
    }
  }
}

}  // namespace
}  // namespace pmstore::scenario
