// FileData against a served area: what is asked for is done, with so many doorbells and messages; a
// stale map is noticed; what is abandoned harms nobody.
#include "fs/file_data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "fabric/local/fault_injection.h"
#include "fabric/local/local_device.h"
#include "tests/unit/fs/data/file_data_fixture.h"

namespace pmstore::fs {
namespace {

// By WRITE and READ, and by message.
class FileDataPaths : public FileDataTest, public testing::WithParamInterface<persist::Domain> {
 protected:
  FileDataPaths() : FileDataTest(GetParam()) {}
  bool one_sided() const { return GetParam() == persist::Domain::kCpuCache; }
};

INSTANTIATE_TEST_SUITE_P(Domains, FileDataPaths,
                         testing::Values(persist::Domain::kNone, persist::Domain::kMemoryController,
                                         persist::Domain::kCpuCache),
                         [](const auto& tested) {
                           return std::string(persist::domain_name(tested.param));
                         });

TEST_P(FileDataPaths, TheFastestDurableStrategyIsUsed) {
  const auto data = open();
  EXPECT_EQ(data->strategy(),
            one_sided() ? persist::WriteStrategy::kDoorbell : persist::WriteStrategy::kTwoSided);
  EXPECT_EQ(data->area(), kTestIdentity);
  EXPECT_EQ(data->bytes(), space_->total_bytes());
}

TEST_P(FileDataPaths, AStrategyThatIsNotDurableHereIsRefused) {
  options_.write_strategy = persist::WriteStrategy::kDoorbell;
  EXPECT_EQ(try_open().has_value(), one_sided());
  options_.write_strategy = persist::WriteStrategy::kTwoSided;
  EXPECT_TRUE(try_open());
}

TEST_P(FileDataPaths, AnAlignedWriteIsOneDoorbellAndOneRoundTrip) {
  const auto data = open();
  const MapExtent extent = allocate(2);
  const auto bytes = some(4096);
  const fabric::Counters before = data->counters();
  EXPECT_EQ(write(*data, extent, 8192, bytes), DataOutcome::kDone);
  const fabric::Counters cost = data->counters() - before;
  EXPECT_EQ(cost.doorbells, 1u);
  EXPECT_EQ(cost.round_trips, 1u);
  EXPECT_EQ(cost.server_messages, one_sided() ? 0u : 1u);
  if (one_sided()) {
    EXPECT_EQ(cost.completions, 1u);
    EXPECT_EQ(cost.work_requests, 3u) << "WRITE, READ of its end, READ of the word";
  }
  EXPECT_EQ(stored(extent, 8192, 4096), bytes);
}

TEST_P(FileDataPaths, AReadIsOneDoorbellAndNoMessage) {
  const auto data = open();
  const MapExtent extent = allocate(2);
  EXPECT_EQ(write(*data, extent, 100, some(4096)), DataOutcome::kDone);
  std::vector<std::byte> into(4096);
  const fabric::Counters before = data->counters();
  EXPECT_EQ(read(*data, extent, 100, into), DataOutcome::kDone);
  const fabric::Counters cost = data->counters() - before;
  EXPECT_EQ(cost.doorbells, 1u);
  EXPECT_EQ(cost.round_trips, 1u);
  EXPECT_EQ(cost.completions, 1u);
  EXPECT_EQ(cost.work_requests, 2u);
  EXPECT_EQ(cost.server_messages, 0u);
  EXPECT_EQ(into, some(4096));
}

TEST_P(FileDataPaths, PiecesOfSeveralExtentsGoTogether) {
  const auto data = open();
  const MapExtent one = allocate(1);
  const MapExtent other = allocate(3);
  const auto bytes = some(30'000);
  const std::span<const std::byte> all(bytes);
  const fabric::Counters before = data->counters();
  std::vector<WritePiece> pieces{{one, 60'000, all.first(5536)},
                                 {other, 7, all.subspan(5536, 1)},
                                 {other, 8, {}},
                                 {other, 20'000, all.subspan(5537)}};
  EXPECT_EQ(run(data->write(data->session(), std::move(pieces))), DataOutcome::kDone);
  EXPECT_EQ((data->counters() - before).round_trips, 1u);
  std::vector<std::byte> into(bytes.size());
  const std::span<std::byte> room(into);
  std::vector<ReadPiece> back{{one, 60'000, room.first(5536)},
                              {other, 7, room.subspan(5536, 1)},
                              {other, 20'000, room.subspan(5537)}};
  EXPECT_EQ(run(data->read(data->session(), std::move(back))), DataOutcome::kDone);
  EXPECT_EQ(into, bytes);
  EXPECT_EQ(stored(one, 60'000, 5536), std::vector(bytes.begin(), bytes.begin() + 5536));
}

TEST_P(FileDataPaths, LargeOnesAreCutIntoParts) {
  const auto data = open();
  const MapExtent extent = allocate(110);
  const auto bytes = some(6'543'210);
  EXPECT_EQ(write(*data, extent, 1234, bytes), DataOutcome::kDone);
  EXPECT_EQ(stored(extent, 1234, bytes.size()), bytes);
  std::vector<std::byte> into(bytes.size());
  const fabric::Counters before = data->counters();
  EXPECT_EQ(read(*data, extent, 1234, into), DataOutcome::kDone);
  EXPECT_EQ(into, bytes);
  EXPECT_EQ((data->counters() - before).doorbells, 7u) << "one for each MiB";
}

TEST_P(FileDataPaths, AMessageMakesALargeWriteToAFileDurableBehindIt) {
  const auto data = open();
  const MapExtent extent = allocate(20);
  const bool is_file = GetParam() == persist::Domain::kNone;
  const auto cost_of = [&](size_t bytes, DataOutcome outcome) {
    const fabric::Counters before = data->counters();
    EXPECT_EQ(write(*data, extent, 4096, some(bytes)), outcome);
    return data->counters() - before;
  };
  const uint64_t drains = pool_.pool().memory().stats().drains;
  for (const size_t bytes : {size_t{128} << 10, size_t{1} << 20}) {
    const fabric::Counters cost = cost_of(bytes, DataOutcome::kDone);
    EXPECT_EQ(cost.doorbells, is_file ? 2u : 1u);
    EXPECT_EQ(cost.round_trips, 1u);
    EXPECT_EQ(cost.server_messages, one_sided() ? 0u : 1u);
    EXPECT_EQ(stored(extent, 4096, bytes), some(bytes));
  }
  EXPECT_EQ(pool_.pool().memory().stats().drains - drains, one_sided() ? 0u : 2u);
  EXPECT_EQ(cost_of((128 << 10) - 1, DataOutcome::kDone).doorbells, 1u);
  change(extent);
  EXPECT_EQ(cost_of(1 << 20, DataOutcome::kStaleMap).doorbells, is_file ? 2u : 1u);
  options_.write_strategy = persist::WriteStrategy::kTwoSided;
  const auto by_message = open();
  const fabric::Counters before = by_message->counters();
  EXPECT_EQ(write(*by_message, map(extent.place), 0, some(1 << 20)), DataOutcome::kDone);
  EXPECT_EQ((by_message->counters() - before).doorbells, 1u);
}

TEST_P(FileDataPaths, RegisteredMemoryNeedsNoBuffer) {
  options_.small_buffers = options_.large_buffers = 1;
  const auto data = open();
  const MapExtent extent = allocate(60);
  std::vector<std::byte> memory = some(3 << 20);
  const std::vector<std::byte> bytes = memory;
  EXPECT_TRUE(data->register_buffer(memory));
  const std::span<std::byte> part = std::span(memory).subspan(77, 2 << 20);
  EXPECT_EQ(write(*data, extent, 5, part), DataOutcome::kDone);
  std::fill(memory.begin(), memory.end(), std::byte{0});
  EXPECT_EQ(read(*data, extent, 5, part), DataOutcome::kDone);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), bytes.begin() + 77));
  EXPECT_EQ(memory[76], std::byte{0});
  run(data->forget_buffer(memory));
  EXPECT_TRUE(data->register_buffer(std::span(memory).first(100)));
  EXPECT_TRUE(data->register_buffer(std::span(memory).subspan(100, 50)));
  // Not registered as a whole: it is copied.
  EXPECT_EQ(read(*data, extent, 5, std::span(memory).subspan(90, 20)), DataOutcome::kDone);
  EXPECT_EQ(memory[90], bytes[77]);
}

TEST_P(FileDataPaths, WhatIsOutsideIsRefused) {
  const auto data = open();
  const MapExtent extent = allocate(1);
  std::vector<std::byte> bytes(100);
  const auto refused = [&](const MapExtent& where, uint64_t offset) {
    const auto written = write(*data, where, offset, bytes);
    const auto got = read(*data, where, offset, bytes);
    return written.code() == ErrorCode::kInvalidArgument && written.code() == got.code();
  };
  EXPECT_TRUE(refused(extent, kUnitBytes - 99));
  EXPECT_TRUE(refused(extent, UINT64_MAX - 10));
  MapExtent far = extent;
  far.place.offset = space_->total_bytes();
  EXPECT_TRUE(refused(far, 0));
  far.place = {0, 0, space_->total_bytes() + kUnitBytes};
  EXPECT_TRUE(refused(far, 0));
  far.place = {0, 8, kUnitBytes};
  EXPECT_TRUE(refused(far, 0));
  // A write and a read of two places that no known section has.
  EXPECT_EQ(data->counters().server_messages, 4u) << "they ask for sections, and store nothing";
  EXPECT_EQ(write(*data, extent, kUnitBytes - 100, bytes), DataOutcome::kDone);
}

// ---- stale maps ----

TEST_P(FileDataPaths, AMapThatHasChangedIsNoticed) {
  const auto data = open();
  const MapExtent extent = allocate(2);
  EXPECT_EQ(write(*data, extent, 0, some(4096)), DataOutcome::kDone);
  change(extent);
  std::vector<std::byte> into(4096, std::byte{9});
  EXPECT_EQ(write(*data, extent, 0, some(4096, 2)), DataOutcome::kStaleMap);
  EXPECT_EQ(read(*data, extent, 0, into), DataOutcome::kStaleMap);
  EXPECT_EQ(into, std::vector<std::byte>(4096, std::byte{9})) << "old bytes are not given";
  const MapExtent fresh = map(extent.place);
  EXPECT_EQ(read(*data, fresh, 0, into), DataOutcome::kDone);
  if (!one_sided()) {
    EXPECT_EQ(into, some(4096)) << "what is a message stores nothing";
    EXPECT_EQ(service_->stale_writes(), 1u);
  }
  EXPECT_EQ(write(*data, fresh, 0, some(4096, 3)), DataOutcome::kDone);
}

TEST_P(FileDataPaths, OneStaleExtentOfSeveralIsEnough) {
  const auto data = open();
  const MapExtent one = allocate(1);
  const MapExtent other = allocate(1);
  change(other);
  const auto bytes = some(64);
  std::vector<WritePiece> pieces{{one, 0, bytes}, {other, 0, bytes}};
  EXPECT_EQ(run(data->write(data->session(), std::move(pieces))), DataOutcome::kStaleMap);
  std::vector<std::byte> into(128);
  std::vector<ReadPiece> back{{one, 0, std::span(into).first(64)},
                              {other, 0, std::span(into).subspan(64)}};
  EXPECT_EQ(run(data->read(data->session(), std::move(back))), DataOutcome::kStaleMap);
}

TEST_P(FileDataPaths, AMapOfAnEarlierSessionIsStale) {
  const auto data = open();
  const MapExtent extent = allocate(1);
  const uint64_t session = data->session();
  EXPECT_EQ(service_->end_sessions(options_.secret.id(), SessionEnd::kSilent), 1u);
  EXPECT_EQ(service_->clients().size(), 0u);
  std::vector<std::byte> bytes(64);
  let_time_pass(1);
  std::vector<ReadPiece> pieces{{extent, 0, bytes}};
  EXPECT_EQ(run(data->read(session, pieces)), DataOutcome::kStaleMap);
  EXPECT_GT(data->session(), session);
  std::vector<WritePiece> written{{extent, 0, bytes}};
  EXPECT_EQ(run(data->write(session, written)), DataOutcome::kStaleMap);
  EXPECT_EQ(run(data->read(data->session(), pieces)), DataOutcome::kDone);
}

TEST_P(FileDataPaths, NoMapOutlivesAStartOfTheServer) {
  options_.reconnect_timeout_ns = 1'000'000'000;
  const auto data = open();
  const MapExtent extent = allocate(1);
  const auto bytes = some(64);
  EXPECT_EQ(write(*data, extent, 0, bytes), DataOutcome::kDone);
  const uint64_t session = data->session();
  stop();
  start();
  EXPECT_TRUE(space_->claim(extent.place));
  let_time_pass(1);
  EXPECT_TRUE(run(data->connected()));
  EXPECT_GT(data->session(), session);
  EXPECT_EQ(write(*data, extent, 0, bytes), DataOutcome::kStaleMap) << "also by its word";
  std::vector<std::byte> into(64);
  EXPECT_EQ(read(*data, map(extent.place), 0, into), DataOutcome::kDone);
  EXPECT_EQ(into, bytes);
}

// ---- sessions ----

TEST_P(FileDataPaths, AServerThatStaysAwayIsSaid) {
  const auto data = open();
  const MapExtent extent = allocate(1);
  stop();
  std::vector<std::byte> bytes(64);
  EXPECT_EQ(read(*data, extent, 0, bytes).code(), ErrorCode::kDisconnected);
  EXPECT_EQ(run(data->connected()).code(), ErrorCode::kDisconnected);
}

TEST_P(FileDataPaths, AnotherAreaIsNotTakenForTheOld) {
  options_.area = kTestIdentity + 1;
  EXPECT_EQ(try_open().code(), ErrorCode::kNotFound);
  options_.area = kTestIdentity;
  EXPECT_TRUE(try_open());
}

// What was posted in a session before may not overwrite what is written in the next.
TEST_P(FileDataPaths, ANewSessionEndsTheOneBefore) {
  const auto data = open();
  const auto other = open();
  EXPECT_EQ(service_->sessions(), 2u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(host_->kick(options_.secret.id()), 2u);
    let_time_pass(1);
    EXPECT_TRUE(run(data->connected()));
    EXPECT_TRUE(run(other->connected()));
    EXPECT_EQ(service_->sessions(), 2u);
  }
}

TEST_P(FileDataPaths, SilenceEndsASessionAndPingsKeepIt) {
  const auto data = open();
  let_time_pass(10 * kLeaseMs);
  EXPECT_EQ(service_->sessions(), 1u);
  EXPECT_EQ(data->session(), 1u);
  service::LinkOptions options;
  options.service = service::ServiceId::kFileData;
  options.secret = ClientSecret::of_number(8);
  const FileDataHello hello{0, 1};
  const auto silent = run(service::Link::open(*device_, uri_, options, service::bytes_of(hello)));
  ASSERT_TRUE(silent);
  EXPECT_EQ(service_->sessions(), 2u);
  let_time_pass(2 * kLeaseMs);
  EXPECT_EQ(service_->sessions(), 1u);
  EXPECT_FALSE(service_->has_session(options.secret.id()));
}

TEST_P(FileDataPaths, WhoClosesIsGoneAtOnce) {
  std::vector<ClientId> gone;
  service_->on_client_gone = [&](const ClientId& client) { gone.push_back(client); };
  auto data = open();
  const MapExtent extent = allocate(1);
  run(data->close());
  std::vector<std::byte> bytes(8);
  EXPECT_EQ(read(*data, extent, 0, bytes).code(), ErrorCode::kDisconnected);
  data.reset();
  let_time_pass(1);
  EXPECT_EQ(service_->sessions(), 0u);
  EXPECT_EQ(gone, std::vector{options_.secret.id()});
}

// ---- many, and abandoned ones ----

TEST_P(FileDataPaths, ManyAtOnceShareTheBuffers) {
  options_.small_buffers = 2;
  options_.large_buffers = 1;
  const auto data = open();
  const MapExtent extent = allocate(100);
  std::vector<std::vector<std::byte>> sources;
  std::vector<Task<Result<DataOutcome>>> tasks;
  for (unsigned i = 0; i < 20; ++i) sources.push_back(some(i % 3 == 0 ? 200'000 : 1000, i));
  for (unsigned i = 0; i < 20; ++i) {
    std::vector<WritePiece> pieces{{extent, i * 200'000, sources[i]}};
    tasks.push_back(data->write(data->session(), std::move(pieces)));
    tasks.back().start();
  }
  for (unsigned i = 0; i < 20; ++i) {
    while (!tasks[i].done()) executor_.run_once();
    EXPECT_EQ(tasks[i].take(), DataOutcome::kDone);
    EXPECT_EQ(stored(extent, i * 200'000, sources[i].size()), sources[i]);
  }
}

TEST_P(FileDataPaths, WhatIsAbandonedTouchesNoMemoryAndGivesItsBuffersBack) {
  options_.small_buffers = options_.large_buffers = 1;
  device_ = fabric::open_local_device(executor_, {.late_effects_seed = 5}).value();
  const auto data = open();
  const MapExtent extent = allocate(85);
  const MapExtent zeros = allocate(85);
  const std::vector<std::byte> untouched(5 << 20, std::byte{0x77});
  int abandoned = 0;
  // After each number of turns.
  for (int turns = 0; turns < 12; ++turns) {
    for (const size_t bytes : {size_t{100}, untouched.size()}) {
      auto into = untouched;
      auto from = std::make_unique<std::vector<std::byte>>(untouched);
      {
        std::vector<ReadPiece> pieces{{zeros, 0, std::span(into).first(bytes)}};
        std::vector<WritePiece> written{{extent, 0, std::span(*from).first(bytes)}};
        auto reading = data->read(data->session(), std::move(pieces));
        auto writing = data->write(data->session(), std::move(written));
        writing.start();
        reading.start();
        for (int i = 0; i < turns; ++i) executor_.run_once();
        abandoned += !reading.done();
      }
      from.reset();
      const auto when_it_was_dropped = into;
      run(data->settled());
      EXPECT_EQ(into, when_it_was_dropped);
    }
  }
  EXPECT_GT(abandoned, 5);
  const auto bytes = some(2 << 20);
  EXPECT_EQ(write(*data, extent, 0, bytes), DataOutcome::kDone);
  std::vector<std::byte> into(bytes.size());
  EXPECT_EQ(read(*data, extent, 0, into), DataOutcome::kDone);
  EXPECT_EQ(into, bytes);
}

TEST_P(FileDataPaths, AClientMayGoWithAccessesUnderWay) {
  device_ = fabric::open_local_device(executor_, {.late_effects_seed = 3}).value();
  for (int turns = 0; turns < 6; ++turns) {
    auto data = open();
    const MapExtent extent = allocate(1);
    std::vector<std::byte> bytes(64);
    std::vector<ReadPiece> pieces{{extent, 0, bytes}};
    std::vector<WritePiece> written{{extent, 0, bytes}};
    auto reading = data->read(data->session(), pieces);
    auto writing = data->write(data->session(), written);
    reading.start();
    writing.start();
    for (int i = 0; i < turns; ++i) executor_.run_once();
    data.reset();
    // The connection has gone with it, though the tasks have not.
    for (int i = 0; service_->sessions() > 0 && i < 20; ++i) let_time_pass(1);
    EXPECT_EQ(service_->sessions(), 0u);
    space_->give_back(extent.place);
  }
}

TEST_P(FileDataPaths, SettledWaitsForWhatBeganBefore) {
  const auto data = open();
  const MapExtent extent = allocate(1);
  std::vector<std::byte> bytes(64);
  std::vector<WritePiece> pieces{{extent, 0, bytes}};
  auto writing = data->write(data->session(), pieces);
  writing.start();
  auto settled = data->settled();
  settled.start();
  EXPECT_EQ(settled.done(), one_sided()) << "in this process a WRITE is done at once";
  { auto dropped = std::move(writing); }
  while (!settled.done()) executor_.run_once();
  run(data->settled());
}

// Its connection is broken for the client only: the server does not know yet.
TEST_P(FileDataPaths, WhatMayStillLandIsSaidUntilTheNextSession) {
  const auto data = open();
  const MapExtent extent = allocate(1);
  EXPECT_TRUE(run(data->landed()));
  const uint64_t session = data->session();
  {
    fabric::FailNthRequest breaks(1, fabric::FaultSide::kConnector,
                                  {fabric::Fault::kBreakAfter, 0});
    const fabric::ScopedFaultInjector installed(breaks);
    const auto bytes = some(64);
    std::vector<WritePiece> pieces{{extent, 0, bytes}};
    auto writing = data->write(session, pieces);
    writing.start();
    { auto dropped = std::move(writing); }
    run(data->settled());
  }
  EXPECT_EQ(run(data->landed()).code(), ErrorCode::kDisconnected);
  let_time_pass(10);
  EXPECT_TRUE(run(data->landed()));
  EXPECT_GT(data->session(), session);
}

// A write loses its connection while its bytes are on their way; the caller repeats it in the next
// session, then writes something else there.
TEST_P(FileDataPaths, WhatWasLostWithItsSessionDoesNotLandLater) {
  options_.reconnect_timeout_ns = 1'000'000'000;
  int lost = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    device_ = fabric::open_local_device(executor_, {.late_effects_seed = seed}).value();
    auto data = open();
    const MapExtent extent = allocate(1);
    Result<DataOutcome> first = DataOutcome::kDone;
    {
      fabric::FailNthRequest breaks(
          1 + seed % 3, fabric::FaultSide::kConnector,
          {seed % 2 == 0 ? fabric::Fault::kBreakBefore : fabric::Fault::kBreakAfter, 0});
      const fabric::ScopedFaultInjector installed(breaks);
      first = write(*data, extent, 0, some(4096, 1));
    }
    ASSERT_TRUE(first) << first.error().to_string();
    lost += *first == DataOutcome::kStaleMap;
    EXPECT_EQ(write(*data, extent, 0, some(4096, 1)), DataOutcome::kDone);
    EXPECT_EQ(write(*data, extent, 0, some(4096, 2)), DataOutcome::kDone);
    let_time_pass(20);
    EXPECT_EQ(stored(extent, 0, 4096), some(4096, 2)) << "seed " << seed;
    data.reset();
    EXPECT_TRUE(run(space_->zero(extent.place)));
    space_->release(extent.place);
    let_time_pass(1);
  }
  EXPECT_GT(lost, 5);
}

class FileDataAtOnce : public FileDataTest {};

TEST_F(FileDataAtOnce, AccessesThatNeedNoWaitLetOthersHaveTheirTurn) {
  const auto data = open();
  const MapExtent extent = allocate(1);
  bool had_a_turn = false;
  auto other = [](base::Executor& executor, bool& turn) -> Task<void> {
    co_await executor.yield();
    turn = true;
  }(executor_, had_a_turn);
  other.start();
  std::vector<std::byte> bytes(64);
  std::vector<WritePiece> pieces{{extent, 0, bytes}};
  int begun = 0;
  for (; begun < 1000; ++begun) {
    auto writing = data->write(data->session(), pieces);
    writing.start();
    if (!writing.done()) break;
  }
  EXPECT_LT(begun, 100);
  executor_.run_once();
  EXPECT_TRUE(had_a_turn);
}

}  // namespace
}  // namespace pmstore::fs
