// RemoteWriter against a connection that writes down what is posted and completes it when told: the
// exact chains, what happens when the queue is full, and what happens when it breaks. The scenarios
// run the same code against real providers.
#include "persist/remote_writer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "base/clock.h"

namespace pmstore::persist {
namespace {

using ::testing::ElementsAre;

class FakeRegion final : public fabric::MemoryRegion {
 public:
  explicit FakeRegion(std::span<std::byte> memory)
      : fabric::MemoryRegion(memory, fabric::Access::kLocal) {}
};

class FakeDevice final : public fabric::Device {
 public:
  explicit FakeDevice(base::Executor& executor) : Device(executor) {}
  Result<std::unique_ptr<fabric::MemoryRegion>> register_memory(std::span<std::byte> memory,
                                                                fabric::Access) override {
    if (refuse) return make_error(ErrorCode::kIo, "no locked memory");
    return std::make_unique<FakeRegion>(memory);
  }
  Task<Result<std::unique_ptr<fabric::Connection>>> connect(fabric::Uri,
                                                            fabric::ConnectOptions) override {
    co_return make_error(ErrorCode::kUnsupported, "fake");
  }
  Result<std::unique_ptr<fabric::Listener>> listen(const fabric::Uri&, fabric::Acceptor&) override {
    return make_error(ErrorCode::kUnsupported, "fake");
  }
  Task<Result<std::unique_ptr<fabric::Connection>>> loopback() override {
    co_return make_error(ErrorCode::kUnsupported, "fake");
  }
  bool refuse = false;
};

class FakeConnection final : public fabric::Connection {
 public:
  explicit FakeConnection(base::Executor& executor) : Connection(executor) {
    capabilities_.read_after_write = true;
    capabilities_.cpu_moves_data = false;
    capabilities_.native_flush = true;
  }
  Status post(const fabric::Batch& batch, fabric::Completion* completion) override {
    if (full_for > 0) {
      --full_for;
      return make_error(ErrorCode::kBackPressure, "full");
    }
    if (broken_) return why_broken_;
    std::string chain;
    for (const auto& request : batch) {
      constexpr const char* kNames[] = {"write", "writeimm", "read", "cas", "faa", "flush"};
      chain +=
          fmt::format("{}{} {}+{}", chain.empty() ? "" : ", ", kNames[static_cast<int>(request.op)],
                      request.remote_address, request.bytes);
    }
    chains.push_back(chain);
    ++counters_.doorbells;
    completion->arm();
    pending.push_back(completion);
    return {};
  }
  void complete_one(bool ok) {
    if (!ok) {
      broken_ = true;
      why_broken_ = make_error(ErrorCode::kDisconnected, "fake break");
    }
    auto* completion = pending.front();
    pending.pop_front();
    completion->finish(ok);
  }

  std::vector<std::string> chains;
  std::deque<fabric::Completion*> pending;
  int full_for = 0;
};

class RemoteWriterTest : public testing::Test {
 protected:
  std::unique_ptr<RemoteWriter> make(WriteStrategy strategy) {
    auto writer = RemoteWriter::create(device_, connection_, nullptr, region_,
                                       {Domain::kCpuCache, WriteLanding::kMemory, true},
                                       {.strategy = strategy});
    EXPECT_TRUE(writer) << writer.error().to_string();
    return std::move(*writer);
  }
  // Writes, completing every chain as it comes.
  Result<Persisted> write(RemoteWriter& writer, std::span<const RemotePiece> pieces,
                          int fail_after = 1000, std::span<const RemoteLook> looks = {}) {
    auto task = writer.write(pieces, looks);
    task.start();
    for (int turn = 0; !task.done() && turn < 100'000; ++turn) {
      executor_.run_once();
      if (!connection_.pending.empty()) connection_.complete_one(fail_after-- > 0);
    }
    EXPECT_TRUE(task.done());
    return task.take();
  }
  template <typename T>
  T finish(Task<T> task) {
    task.start();
    for (int turn = 0; !task.done() && turn < 100'000; ++turn) {
      executor_.run_once();
      if (!connection_.pending.empty()) connection_.complete_one(true);
    }
    EXPECT_TRUE(task.done());
    return task.take();
  }
  Status write_visible(RemoteWriter& writer, std::span<const RemotePiece> pieces,
                       std::span<const RemoteLook> looks) {
    return finish(writer.write_visible(pieces, looks));
  }
  Result<Persisted> persist(RemoteWriter& writer, std::span<const RemoteRange> ranges) {
    return finish(writer.persist(ranges));
  }
  RemotePiece piece(uint32_t bytes, uint64_t offset) { return {{buffer_, bytes, nullptr}, offset}; }

  base::RealClock clock_;
  base::Executor executor_{clock_};
  FakeDevice device_{executor_};
  FakeConnection connection_{executor_};
  fabric::RemoteRegion region_{.address = 100'000, .bytes = 4096, .key = 7};
  std::byte buffer_[4096] = {};
};

TEST_F(RemoteWriterTest, DoorbellIsOneChainThatReadsTheLastBytes) {
  auto writer = make(WriteStrategy::kDoorbell);
  const RemotePiece pieces[] = {piece(64, 0), piece(256, 1024)};
  EXPECT_TRUE(write(*writer, pieces));
  EXPECT_THAT(connection_.chains, ElementsAre("write 100000+64, write 101024+256, read 101272+8"));
  EXPECT_EQ(connection_.counters().round_trips, 1u);
}

TEST_F(RemoteWriterTest, ShortWritesAreReadWhole) {
  auto writer = make(WriteStrategy::kDoorbell);
  const RemotePiece pieces[] = {piece(3, 10)};
  EXPECT_TRUE(write(*writer, pieces));
  EXPECT_THAT(connection_.chains, ElementsAre("write 100010+3, read 100010+3"));
}

TEST_F(RemoteWriterTest, AVisibleWriteHasNoStepThatMakesItDurable) {
  for (const auto strategy :
       {WriteStrategy::kDoorbell, WriteStrategy::kFlush, WriteStrategy::kNaive}) {
    connection_.chains.clear();
    auto writer = make(strategy);
    const RemotePiece pieces[] = {piece(64, 0), piece(256, 1024)};
    const RemoteLook looks[] = {{{buffer_, 8, nullptr}, region_.at(4000)}};
    EXPECT_TRUE(write_visible(*writer, pieces, looks));
    EXPECT_THAT(connection_.chains,
                ElementsAre("write 100000+64, write 101024+256, read 104000+8"));
  }
}

TEST_F(RemoteWriterTest, AVisibleWriteNeedsALook) {
  auto writer = make(WriteStrategy::kDoorbell);
  const RemotePiece pieces[] = {piece(64, 0)};
  EXPECT_EQ(write_visible(*writer, pieces, {}).code(), ErrorCode::kInvalidArgument);
  const RemotePiece outside[] = {piece(64, 4090)};
  const RemoteLook looks[] = {{{buffer_, 8, nullptr}, region_.at(4000)}};
  EXPECT_EQ(write_visible(*writer, outside, looks).code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(connection_.chains.empty());
}

TEST_F(RemoteWriterTest, OnlyAServerThatIsAskedMakesAWriteDurableBehindIt) {
  const RemotePiece pieces[] = {piece(64, 0)};
  const RemoteLook looks[] = {{{buffer_, 8, nullptr}, region_.at(4000)}};
  for (const auto strategy : {WriteStrategy::kDoorbell, WriteStrategy::kFlush}) {
    auto writer = make(strategy);
    EXPECT_EQ(finish(writer->write_then_persist(pieces, looks)).code(),
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(finish(writer->write_then_persist(pieces, {})).code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_TRUE(connection_.chains.empty());
}

TEST_F(RemoteWriterTest, OneReadMakesAllRangesDurable) {
  auto writer = make(WriteStrategy::kDoorbell);
  const RemoteRange ranges[] = {{0, 64}, {1024, 256}, {2000, 3}};
  EXPECT_TRUE(persist(*writer, ranges));
  EXPECT_THAT(connection_.chains, ElementsAre("read 102000+3"));
  EXPECT_EQ(connection_.counters().round_trips, 1u);
}

TEST_F(RemoteWriterTest, EachRangeIsFlushedWhereTheFabricCan) {
  auto writer = make(WriteStrategy::kFlush);
  std::vector<RemoteRange> ranges;
  for (uint64_t i = 0; i <= RemoteWriter::kMaxPieces; ++i) ranges.push_back({i * 128, 64});
  EXPECT_TRUE(persist(*writer, ranges));
  ASSERT_EQ(connection_.chains.size(), 2u);
  EXPECT_THAT(connection_.chains[0], ::testing::HasSubstr("flush 101920+64"));
  EXPECT_EQ(connection_.chains[1], "flush 102048+64");
}

TEST_F(RemoteWriterTest, ARangeThatIsLongerThanARequestMaySayIsFlushedInParts) {
  region_.bytes = uint64_t{8} << 30;
  auto writer = make(WriteStrategy::kFlush);
  const RemoteRange ranges[] = {{64, uint64_t{4} << 30}, {uint64_t{6} << 30, 64}};
  EXPECT_TRUE(persist(*writer, ranges));
  EXPECT_THAT(connection_.chains,
              ElementsAre("flush 100064+1073741824, flush 1073841888+1073741824, "
                          "flush 2147583712+1073741824, flush 3221325536+1073741824, "
                          "flush 6442550944+64"));
}

TEST_F(RemoteWriterTest, NothingOrWhatIsOutsideIsNotMadeDurable) {
  auto writer = make(WriteStrategy::kDoorbell);
  EXPECT_EQ(persist(*writer, {}).code(), ErrorCode::kInvalidArgument);
  const RemoteRange outside[] = {{0, 64}, {4090, 64}};
  EXPECT_EQ(persist(*writer, outside).code(), ErrorCode::kInvalidArgument);
  const RemoteRange empty[] = {{0, 0}};
  EXPECT_EQ(persist(*writer, empty).code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(connection_.chains.empty());
}

TEST_F(RemoteWriterTest, NaiveWaitsTwice) {
  auto writer = make(WriteStrategy::kNaive);
  const RemotePiece pieces[] = {piece(64, 0)};
  EXPECT_TRUE(write(*writer, pieces));
  EXPECT_THAT(connection_.chains, ElementsAre("write 100000+64", "read 100056+8"));
  EXPECT_EQ(connection_.counters().round_trips, 2u);
}

TEST_F(RemoteWriterTest, OutstandingPostsTwiceAndWaitsOnce) {
  auto writer = make(WriteStrategy::kOutstanding);
  const RemotePiece pieces[] = {piece(64, 0)};
  auto task = writer->write(pieces);
  task.start();
  EXPECT_THAT(connection_.chains, ElementsAre("write 100000+64", "read 100056+8"));
  connection_.complete_one(true);
  EXPECT_FALSE(task.done());
  connection_.complete_one(true);
  EXPECT_TRUE(task.done());
  EXPECT_EQ(connection_.counters().round_trips, 1u);
}

TEST_F(RemoteWriterTest, FlushCoversEveryPiece) {
  auto writer = make(WriteStrategy::kAuto);
  EXPECT_EQ(writer->strategy(), WriteStrategy::kFlush);
  const RemotePiece pieces[] = {piece(64, 0), piece(256, 1024)};
  EXPECT_TRUE(write(*writer, pieces));
  EXPECT_THAT(connection_.chains, ElementsAre("write 100000+64, write 101024+256, flush 100000+64, "
                                              "flush 101024+256"));
}

TEST_F(RemoteWriterTest, LooksGoBehindWhatMakesTheWriteDurable) {
  const RemotePiece pieces[] = {piece(64, 0)};
  const RemoteLook looks[] = {{{buffer_, 8, nullptr}, {700'000, 9}},
                              {{buffer_ + 8, 8, nullptr}, {700'008, 9}}};
  const auto chains_of = [&](WriteStrategy strategy) {
    connection_.chains.clear();
    EXPECT_TRUE(write(*make(strategy), pieces, 1000, looks));
    return connection_.chains;
  };
  const std::string look = "read 700000+8, read 700008+8";
  EXPECT_THAT(chains_of(WriteStrategy::kDoorbell),
              ElementsAre("write 100000+64, read 100056+8, " + look));
  EXPECT_THAT(chains_of(WriteStrategy::kFlush),
              ElementsAre("write 100000+64, flush 100000+64, " + look));
  for (auto strategy : {WriteStrategy::kNaive, WriteStrategy::kOutstanding}) {
    EXPECT_THAT(chains_of(strategy), ElementsAre("write 100000+64", "read 100056+8, " + look));
  }
}

TEST_F(RemoteWriterTest, PiecesAndLooksFitInEveryChainOrAreRefused) {
  std::vector<RemotePiece> pieces(RemoteWriter::kMaxPieces - 1, piece(64, 0));
  std::vector<RemoteLook> looks = {{{buffer_, 8, nullptr}, {700'000, 9}}};
  for (auto strategy : {WriteStrategy::kDoorbell, WriteStrategy::kNaive,
                        WriteStrategy::kOutstanding, WriteStrategy::kFlush}) {
    EXPECT_TRUE(write(*make(strategy), pieces, 1000, looks)) << strategy_name(strategy);
  }
  connection_.chains.clear();
  looks.push_back(looks[0]);
  EXPECT_EQ(write(*make(WriteStrategy::kAuto), pieces, 1000, looks).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_TRUE(connection_.chains.empty());
}

TEST_F(RemoteWriterTest, SixteenPiecesFitInEveryChain) {
  std::vector<RemotePiece> pieces;
  for (uint64_t i = 0; i < RemoteWriter::kMaxPieces; ++i) pieces.push_back(piece(64, i * 64));
  for (auto strategy : {WriteStrategy::kDoorbell, WriteStrategy::kNaive,
                        WriteStrategy::kOutstanding, WriteStrategy::kFlush}) {
    EXPECT_TRUE(write(*make(strategy), pieces)) << strategy_name(strategy);
  }
}

TEST_F(RemoteWriterTest, AFullSendQueueIsWaitedFor) {
  const RemotePiece pieces[] = {piece(64, 0)};
  for (auto strategy :
       {WriteStrategy::kDoorbell, WriteStrategy::kNaive, WriteStrategy::kOutstanding}) {
    connection_.full_for = 3;
    connection_.chains.clear();
    auto writer = make(strategy);
    EXPECT_TRUE(write(*writer, pieces)) << strategy_name(strategy);
    EXPECT_EQ(connection_.chains.size(), strategy == WriteStrategy::kDoorbell ? 1u : 2u);
  }
}

TEST_F(RemoteWriterTest, NoTokenWithoutEveryCompletion) {
  const RemotePiece pieces[] = {piece(64, 0)};
  for (auto [strategy, steps] : {std::pair{WriteStrategy::kDoorbell, 1},
                                 {WriteStrategy::kNaive, 2},
                                 {WriteStrategy::kOutstanding, 2},
                                 {WriteStrategy::kFlush, 1}}) {
    for (int failing = 0; failing < steps; ++failing) {
      FakeConnection fresh(executor_);
      auto writer = RemoteWriter::create(device_, fresh, nullptr, region_,
                                         {Domain::kCpuCache, WriteLanding::kMemory, true},
                                         {.strategy = strategy});
      ASSERT_TRUE(writer);
      auto task = (*writer)->write(pieces);
      task.start();
      for (int step = 0; !task.done(); ++step) {
        ASSERT_FALSE(fresh.pending.empty());
        fresh.complete_one(step < failing);
      }
      const auto lost = task.take();
      ASSERT_FALSE(lost) << strategy_name(strategy) << " failing at " << failing;
      EXPECT_EQ(lost.code(), ErrorCode::kDisconnected);
    }
  }
}

TEST_F(RemoteWriterTest, OutsideTheRegionNothingIsPosted) {
  auto writer = make(WriteStrategy::kDoorbell);
  std::vector<std::vector<RemotePiece>> wrong = {{},
                                                 {piece(0, 0)},
                                                 {piece(64, 4096 - 63)},
                                                 {piece(64, UINT64_MAX - 10)},
                                                 {piece(64, 0), piece(8, 4096)},
                                                 std::vector<RemotePiece>(17, piece(8, 0))};
  for (const auto& pieces : wrong) {
    const auto refused = write(*writer, pieces);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_TRUE(connection_.chains.empty());
  const RemotePiece last[] = {piece(64, 4096 - 64)};
  EXPECT_TRUE(write(*writer, last));
}

TEST_F(RemoteWriterTest, CreationTellsWhatIsMissing) {
  const PersistCapability adr{Domain::kMemoryController, WriteLanding::kLastLevelCache, false};
  auto refused = RemoteWriter::create(device_, connection_, nullptr, region_, adr,
                                      {.strategy = WriteStrategy::kDoorbell});
  EXPECT_EQ(refused.code(), ErrorCode::kUnsupported);
  refused = RemoteWriter::create(device_, connection_, nullptr, region_, adr, {});
  EXPECT_EQ(refused.code(), ErrorCode::kInvalidArgument) << "two_sided without RPC";
  const PersistCapability eadr{Domain::kCpuCache, WriteLanding::kMemory, false};
  refused =
      RemoteWriter::create(device_, connection_, nullptr, region_, eadr, {.two_sided_bytes = 1});
  EXPECT_EQ(refused.code(), ErrorCode::kInvalidArgument) << "hybrid without RPC";
  device_.refuse = true;
  refused = RemoteWriter::create(device_, connection_, nullptr, region_, eadr, {});
  EXPECT_EQ(refused.code(), ErrorCode::kIo);
}

// Carries 8 bytes to another region while it has something to carry.
class Passenger final : public WriteRider {
 public:
  std::optional<Ride> board() override {
    ++asked;
    if (!waiting) return std::nullopt;
    return Ride{{bytes, sizeof bytes, nullptr}, {500'000, 9}};
  }
  void departed() override {
    ++departures;
    waiting = false;
  }
  bool waiting = true;
  int asked = 0;
  int departures = 0;
  std::byte bytes[8] = {};
};

TEST_F(RemoteWriterTest, RiderGoesInFrontInTheSameDoorbell) {
  const RemotePiece pieces[] = {piece(64, 0)};
  for (auto [strategy, first_chain] :
       {std::pair{WriteStrategy::kDoorbell, "write 500000+8, write 100000+64, read 100056+8"},
        {WriteStrategy::kNaive, "write 500000+8, write 100000+64"},
        {WriteStrategy::kOutstanding, "write 500000+8, write 100000+64"},
        {WriteStrategy::kFlush, "write 500000+8, write 100000+64, flush 100000+64"}}) {
    connection_.chains.clear();
    auto writer = make(strategy);
    Passenger rider;
    writer->set_rider(rider);
    auto task = writer->write(pieces);
    task.start();
    while (!task.done()) connection_.complete_one(true);
    EXPECT_TRUE(task.take()) << strategy_name(strategy);
    EXPECT_EQ(connection_.chains[0], first_chain) << strategy_name(strategy);
    EXPECT_EQ(rider.departures, 1) << strategy_name(strategy);
    for (size_t i = 1; i < connection_.chains.size(); ++i) {
      EXPECT_EQ(connection_.chains[i], "read 100056+8") << "it rides once";
    }
  }
}

TEST_F(RemoteWriterTest, RiderWithNothingToCarryStaysAtHome) {
  auto writer = make(WriteStrategy::kDoorbell);
  Passenger rider;
  rider.waiting = false;
  writer->set_rider(rider);
  const RemotePiece pieces[] = {piece(64, 0)};
  auto task = writer->write(pieces);
  task.start();
  connection_.complete_one(true);
  EXPECT_TRUE(task.take());
  EXPECT_THAT(connection_.chains, ElementsAre("write 100000+64, read 100056+8"));
  EXPECT_EQ(rider.departures, 0);
}

TEST_F(RemoteWriterTest, RiderIsAskedAgainAfterAFullSendQueue) {
  auto writer = make(WriteStrategy::kDoorbell);
  connection_.full_for = 3;
  Passenger rider;
  writer->set_rider(rider);
  const RemotePiece pieces[] = {piece(64, 0)};
  auto task = writer->write(pieces);
  task.start();
  EXPECT_EQ(rider.departures, 0) << "nothing was posted";
  while (connection_.pending.empty()) executor_.run_once();
  connection_.complete_one(true);
  EXPECT_TRUE(task.take());
  EXPECT_EQ(rider.asked, 4);
  EXPECT_EQ(rider.departures, 1);
}

TEST_F(RemoteWriterTest, RiderHasRoomBehindFifteenPieces) {
  std::vector<RemotePiece> pieces;
  for (uint64_t i = 0; i < RemoteWriter::kMaxPieces; ++i) pieces.push_back(piece(64, i * 64));
  auto writer = make(WriteStrategy::kFlush);
  Passenger rider;
  writer->set_rider(rider);
  auto refused = writer->write(pieces);
  refused.start();
  EXPECT_EQ(refused.take().code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(connection_.chains.empty());
  pieces.pop_back();
  auto task = writer->write(pieces);
  task.start();
  connection_.complete_one(true);
  EXPECT_TRUE(task.take());
}

TEST_F(RemoteWriterTest, ManyWritesInFlightKeepTheirOwnCompletions) {
  auto writer = make(WriteStrategy::kDoorbell);
  std::vector<std::array<RemotePiece, 1>> pieces;
  for (uint64_t i = 0; i < 32; ++i) pieces.push_back({piece(64, i * 64)});
  std::vector<Task<Result<Persisted>>> tasks;
  for (const auto& each : pieces) tasks.push_back(writer->write(each));
  for (auto& task : tasks) task.start();
  EXPECT_EQ(connection_.chains.size(), 32u);
  EXPECT_EQ(connection_.chains[5], "write 100320+64, read 100376+8");
  for (auto& task : tasks) {
    EXPECT_FALSE(task.done());
    connection_.complete_one(true);
    EXPECT_TRUE(task.done());
  }
}

}  // namespace
}  // namespace pmstore::persist
