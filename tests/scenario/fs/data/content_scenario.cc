// What accesses cost, and that they do what they say, on every provider.
#include <algorithm>

#include "tests/scenario/fs/data/data_scenario.h"

namespace pmstore::scenario {
namespace {

using fs::DataOutcome;

class FileDataContent : public DataScenario {
 protected:
  std::vector<std::byte> some(size_t bytes) {
    std::vector<std::byte> made(bytes);
    for (std::byte& each : made) each = static_cast<std::byte>(random_.next());
    return made;
  }
};
PMSTORE_DATA_SCENARIOS(FileDataContent);

TEST_P(FileDataContent, AnAlignedDurableWriteIsOneDoorbellAndOneRoundTrip) {
  const fs::MapExtent extent = allocate(1);
  const auto bytes = some(4096);
  EXPECT_EQ(data_->strategy(), GetParam().one_sided ? persist::WriteStrategy::kDoorbell
                                                    : persist::WriteStrategy::kTwoSided);
  const fabric::Counters before = data_->counters();
  EXPECT_EQ(write(extent, 4096, bytes), DataOutcome::kDone);
  const fabric::Counters cost = data_->counters() - before;
  EXPECT_EQ(cost.doorbells, 1u);
  EXPECT_EQ(cost.round_trips, 1u);
  EXPECT_EQ(cost.server_messages, GetParam().one_sided ? 0u : 1u);
  EXPECT_EQ(see(extent, 4096), bytes);
}

TEST_P(FileDataContent, AReadIsOneDoorbellAndOneRoundTripAndNoMessage) {
  const fs::MapExtent extent = allocate(1);
  const auto bytes = some(4096);
  EXPECT_EQ(write(extent, 8192, bytes), DataOutcome::kDone);
  std::vector<std::byte> into(4096);
  const fabric::Counters before = data_->counters();
  EXPECT_EQ(read(extent, 8192, into), DataOutcome::kDone);
  const fabric::Counters cost = data_->counters() - before;
  EXPECT_EQ(cost.doorbells, 1u);
  EXPECT_EQ(cost.round_trips, 1u);
  EXPECT_EQ(cost.server_messages, 0u);
  EXPECT_EQ(into, bytes);
}

TEST_P(FileDataContent, VisibleWritesAreNoMessageAndOneStepMakesThemDurable) {
  const fs::MapExtent extent = allocate(2);
  const uint64_t session = data_->session();
  const auto bytes = some(4096);
  std::vector<persist::RemoteRange> ranges;
  fabric::Counters before = data_->counters();
  for (uint64_t offset = 0; offset < 16 * 8192; offset += 8192) {
    std::vector<fs::WritePiece> pieces{{extent, offset, bytes}};
    const auto done = run(data_->write(session, std::move(pieces), fs::DataSync::kFsync));
    EXPECT_EQ(done, DataOutcome::kDone);
    ranges.push_back({extent.place.offset + offset, bytes.size()});
  }
  const fabric::Counters writes = data_->counters() - before;
  EXPECT_EQ(writes.doorbells, 16u);
  EXPECT_EQ(writes.round_trips, 16u);
  EXPECT_EQ(writes.server_messages, 0u);
  EXPECT_EQ(see(extent, 15 * 8192), bytes);
  before = data_->counters();
  const auto durable = run(data_->persist(data_->start_of(session), ranges));
  EXPECT_EQ(durable, fs::PersistOutcome::kDurable);
  const fabric::Counters step = data_->counters() - before;
  EXPECT_EQ(step.doorbells, 1u);
  EXPECT_EQ(step.round_trips, 1u);
  EXPECT_EQ(step.server_messages, GetParam().one_sided ? 0u : 1u);
  EXPECT_EQ(run(data_->persist(data_->start_of(session) + 1, ranges)), fs::PersistOutcome::kLost);
}

// The session was there before the section.
TEST_P(FileDataContent, ALaterSectionIsReachedLikeTheFirst) {
  const fs::MapExtent first = allocate(kDataBytes / fs::kUnitBytes);
  const auto grown = run(control(kGrow, {0, 2u << 20}));
  ASSERT_TRUE(grown) << grown.error().to_string();
  const fs::MapExtent later = allocate(4);
  ASSERT_GT(later.place.offset, first.place.offset + first.place.bytes);
  const auto bytes = some(200'000);
  EXPECT_EQ(write(later, 1000, bytes), DataOutcome::kDone);
  std::vector<std::byte> into(bytes.size());
  const fabric::Counters before = data_->counters();
  EXPECT_EQ(read(later, 1000, into), DataOutcome::kDone);
  const fabric::Counters cost = data_->counters() - before;
  EXPECT_EQ(cost.doorbells, 1u);
  EXPECT_EQ(cost.server_messages, 0u);
  EXPECT_EQ(into, bytes);
  const std::span<const std::byte> all(bytes);
  std::vector<fs::WritePiece> pieces{{first, 5000, all.first(4096)},
                                     {later, 70'000, all.subspan(4096, 4096)}};
  EXPECT_EQ(run(data_->write(data_->session(), pieces, fs::DataSync::kFsync)), DataOutcome::kDone);
  EXPECT_EQ(see(first, 5000), std::vector(bytes.begin(), bytes.begin() + 4096));
  EXPECT_EQ(see(later, 70'000), std::vector(bytes.begin() + 4096, bytes.begin() + 8192));
  const std::vector<persist::RemoteRange> ranges{{first.place.offset + 5000, 4096},
                                                 {later.place.offset + 70'000, 4096}};
  const auto durable = run(data_->persist(data_->start_of(data_->session()), ranges));
  EXPECT_EQ(durable, fs::PersistOutcome::kDurable);
  run(invalidate(later));
  EXPECT_EQ(read(later, 0, into), DataOutcome::kStaleMap);
  EXPECT_EQ(write(later, 0, bytes), DataOutcome::kStaleMap);
}

TEST_P(FileDataContent, MoreThanAServerFlushesInOneTurnIsMadeDurableInParts) {
  const fs::MapExtent extent = allocate(40);
  const uint64_t start = data_->start_of(data_->session());
  const std::vector<persist::RemoteRange> all{{extent.place.offset, 40 * fs::kUnitBytes}};
  const fabric::Counters before = data_->counters();
  EXPECT_EQ(run(data_->persist(start, all)), fs::PersistOutcome::kDurable);
  const fabric::Counters step = data_->counters() - before;
  EXPECT_EQ(step.server_messages, GetParam().one_sided ? 0u : 3u);
  const std::vector<persist::RemoteRange> outside{{fs::kMaxFileBytes, 1}};
  EXPECT_EQ(run(data_->persist(start, outside)).code(), ErrorCode::kInvalidArgument);
}

TEST_P(FileDataContent, AMebibyteIsOneRoundTripToo) {
  const fs::MapExtent extent = allocate(17);
  // In a file WRITEs and the message that makes them durable, but over tcp one message.
  const bool is_file = GetParam().domain == persist::Domain::kNone && !modelled() &&
                       scheme() != fabric::Scheme::kTcp;
  const uint64_t doorbells = is_file ? 2 : 1;
  std::vector<std::byte> memory = some(1 << 20);
  const auto bytes = memory;
  EXPECT_TRUE(data_->register_buffer(memory));
  for (const uint64_t offset : {uint64_t{0}, uint64_t{123}}) {
    const fabric::Counters before = data_->counters();
    EXPECT_EQ(write(extent, offset, memory), DataOutcome::kDone);
    const fabric::Counters cost = data_->counters() - before;
    EXPECT_EQ(cost.doorbells, doorbells);
    EXPECT_EQ(cost.round_trips, 1u);
    EXPECT_EQ(cost.server_messages, GetParam().one_sided ? 0u : 1u);
    std::fill(memory.begin(), memory.end(), std::byte{0});
    EXPECT_EQ(read(extent, offset, memory), DataOutcome::kDone);
    EXPECT_EQ((data_->counters() - before).doorbells, doorbells + 1);
    EXPECT_EQ(memory, bytes);
  }
  run(data_->forget_buffer(memory));
}

// Many tasks, each with ranges of its own in shared extents, against a copy.
TEST_P(FileDataContent, ManyAccessesOfAllSizesKeepApart) {
  constexpr size_t kTasks = 8;
  const uint64_t steps = late_effects() || modelled() ? 12 : 60;
  const fs::MapExtent extents[] = {allocate(40), allocate(40)};
  constexpr uint64_t kShare = 40 * fs::kUnitBytes / kTasks;
  const auto work = [&](size_t task) -> base::Task<void> {
    std::vector<std::byte> copy(2 * kShare);  // of its share of both extents
    for (uint64_t step = 0; step < steps; ++step) {
      const uint64_t most = random_.below(4) == 0 ? kShare : 5000;
      const uint64_t bytes = 1 + random_.below(most);
      const uint64_t at = random_.below(kShare - bytes + 1);
      const uint64_t cut = random_.below(bytes + 1);
      const uint64_t offset = task * kShare + at;
      if (random_.below(2) == 0) {
        const auto fresh = some(bytes);
        const std::span<const std::byte> all(fresh);
        std::copy_n(all.begin(), cut, copy.begin() + static_cast<ptrdiff_t>(at));
        std::copy(all.begin() + static_cast<ptrdiff_t>(cut), all.end(),
                  copy.begin() + static_cast<ptrdiff_t>(kShare + at + cut));
        std::vector<fs::WritePiece> pieces{{extents[0], offset, all.first(cut)},
                                           {extents[1], offset + cut, all.subspan(cut)}};
        const auto done = co_await data_->write(data_->session(), std::move(pieces));
        EXPECT_EQ(done, DataOutcome::kDone);
      } else {
        std::vector<std::byte> into(bytes);
        const std::span<std::byte> all(into);
        std::vector<fs::ReadPiece> pieces{{extents[0], offset, all.first(cut)},
                                          {extents[1], offset + cut, all.subspan(cut)}};
        const auto done = co_await data_->read(data_->session(), std::move(pieces));
        EXPECT_EQ(done, DataOutcome::kDone);
        const auto one = copy.begin() + static_cast<ptrdiff_t>(at);
        const auto other = copy.begin() + static_cast<ptrdiff_t>(kShare + at + cut);
        EXPECT_TRUE(std::equal(all.begin(), all.begin() + static_cast<ptrdiff_t>(cut), one));
        EXPECT_TRUE(std::equal(all.begin() + static_cast<ptrdiff_t>(cut), all.end(), other));
      }
    }
  };
  std::vector<base::Task<void>> tasks;
  for (size_t task = 0; task < kTasks; ++task) tasks.push_back(work(task));
  run_together(std::move(tasks));
}

TEST_P(FileDataContent, EndedSessionsAreMadeAgainAndTheirMapsAreStale) {
  const fs::MapExtent extent = allocate(1);
  const auto bytes = some(100);
  EXPECT_EQ(write(extent, 0, bytes), DataOutcome::kDone);
  const uint64_t session = data_->session();
  EXPECT_TRUE(run(control(kEndSessions, {})));
  std::vector<std::byte> into(100);
  std::vector<fs::ReadPiece> pieces{{extent, 0, into}};
  // Until the news of the end have arrived, an access fails with its session.
  while (data_->session() == session) {
    const auto done = run(data_->read(session, pieces));
    EXPECT_FALSE(done.has_value() && *done == DataOutcome::kDone);
  }
  EXPECT_EQ(run(data_->read(session, pieces)), DataOutcome::kStaleMap);
  EXPECT_EQ(read(extent, 0, into), DataOutcome::kDone);
  EXPECT_EQ(into, bytes);
}

}  // namespace
}  // namespace pmstore::scenario
