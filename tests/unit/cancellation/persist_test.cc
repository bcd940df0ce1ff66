// Every awaitable of persist/, and those of the appender that is made of its writes, is destroyed
// at each of its points. tests/structure/awaitables.py looks for their names here.
#include <gtest/gtest.h>

#include "tests/unit/cancellation/persist_world.h"

namespace pmstore::cancellation {
namespace {

using base::Task;
using persist::RemotePiece;
using persist::WriteStrategy;

Task<void> write(PersistWorld& world, std::vector<RemotePiece> pieces) {
  const std::span<const RemotePiece> all(pieces);
  const auto written = co_await world.writer->write(all);
  for (const RemotePiece& piece : pieces) world.wrote(piece, written);
}

// One after the other, and durable together.
Task<void> write_visible(PersistWorld& world, std::vector<RemotePiece> pieces) {
  std::vector<persist::RemoteRange> ranges;
  Result<persist::Persisted> durable = make_error(ErrorCode::kDisconnected, "not written");
  Status visible;
  for (const RemotePiece& piece : pieces) {
    const persist::RemoteLook look = world.look();
    ranges.push_back({piece.offset, piece.from.bytes});
    visible = co_await world.writer->write_visible({&piece, 1}, {&look, 1});
    if (!visible) break;
  }
  if (visible) {
    durable = co_await world.writer->persist(ranges);
  } else {
    durable = visible.error();
  }
  for (const RemotePiece& piece : pieces) world.wrote(piece, durable);
}

// By message where the strategy has one; elsewhere it is refused.
Task<void> write_then_persist(PersistWorld& world, std::vector<RemotePiece> pieces) {
  const std::span<const RemotePiece> all(pieces);
  const persist::RemoteLook look = world.look();
  const std::span<const persist::RemoteLook> looks(&look, 1);
  auto durable = co_await world.writer->write_then_persist(all, looks);
  const bool is_refused = !durable && durable.code() == ErrorCode::kInvalidArgument;
  if (is_refused) durable = co_await world.writer->write(all);
  for (const RemotePiece& piece : pieces) world.wrote(piece, durable);
}

// All at the same time.
Task<void> together(PersistWorld& world, std::vector<Task<void>> tasks) {
  for (auto& each : tasks) each.start();
  for (const auto& each : tasks) {
    while (!each.done()) co_await world.executor().sleep_for(10 * kMicrosecond);
  }
}

// Takes a while, and gives all that the server knows of.
class Truncates final : public log::RemoteAppender::RoomMaker {
 public:
  explicit Truncates(PersistWorld& world) : world_(world) {}
  Task<Result<uint64_t>> make_room(uint64_t tail_lsn, uint64_t) override {
    co_await world_.executor().sleep_for(100 * kMicrosecond);
    PMSTORE_CO_TRY_STATUS(world_.ring().note_tail(tail_lsn));
    PMSTORE_CO_TRY(const persist::Persisted durable, world_.memory().drain());
    PMSTORE_CO_TRY_STATUS(world_.ring().truncate(durable, tail_lsn, world_.next_sequence));
    co_return tail_lsn;
  }

 private:
  PersistWorld& world_;
};

const PersistWorld::Case kCases[] = {
    {"RemoteWriter::write",
     [](PersistWorld& world) -> Task<void> {
       std::vector<RemotePiece> pieces;
       pieces.push_back(world.piece(100, 300));
       pieces.push_back(world.piece(4096, 64));
       co_await write(world, pieces);
     }},
    // More than one request has room for.
    {"RemoteWriter::write, large",
     [](PersistWorld& world) -> Task<void> {
       std::vector<RemotePiece> pieces;
       pieces.push_back(world.piece(0, 5000));
       pieces.push_back(world.piece(10'000, 6000));
       co_await write(world, pieces);
     }},
    {"RemoteWriter::write, many",
     [](PersistWorld& world) -> Task<void> {
       std::vector<Task<void>> writes;
       for (uint64_t i = 0; i < 24; ++i) {
         std::vector<RemotePiece> pieces;
         pieces.push_back(world.piece(i * 1024, 1000));
         writes.push_back(write(world, pieces));
       }
       co_await together(world, std::move(writes));
     }},
    {"RemoteWriter::write_visible",
     [](PersistWorld& world) -> Task<void> {
       std::vector<RemotePiece> pieces;
       pieces.push_back(world.piece(100, 300));
       co_await write_visible(world, pieces);
     }},
    {"RemoteWriter::persist",
     [](PersistWorld& world) -> Task<void> {
       std::vector<RemotePiece> pieces;
       for (uint64_t i = 0; i < 5; ++i) pieces.push_back(world.piece(i * 1024, 1000));
       co_await write_visible(world, pieces);
     }},
    {"RemoteWriter::write_then_persist",
     [](PersistWorld& world) -> Task<void> {
       std::vector<RemotePiece> pieces;
       for (uint64_t i = 0; i < 3; ++i) pieces.push_back(world.piece(i * 4096, 3000));
       co_await write_then_persist(world, pieces);
     }},
    {"RemoteAppender::append",
     [](PersistWorld& world) -> Task<void> {
       Attempt& one = world.attempt(1, 1000);
       co_await world.append(one);
     }},
    // More of them than staging memory has room for.
    {"RemoteAppender::append, many",
     [](PersistWorld& world) -> Task<void> {
       std::vector<Task<void>> appends;
       for (int i = 0; i < 5; ++i) appends.push_back(world.append(world.attempt(1, 1500)));
       co_await together(world, std::move(appends));
     }},
    {"RemoteAppender::append_all",
     [](PersistWorld& world) -> Task<void> {
       Attempt& three = world.attempt(3, 700);
       co_await world.append_all(three, nullptr);
     }},
    {"RemoteAppender::RoomMaker::make_room",
     [](PersistWorld& world) -> Task<void> {
       Truncates room(world);
       for (int i = 0; i < 8; ++i) {
         Attempt& three = world.attempt(3, 1000);
         co_await world.append_all(three, &room);
       }
     }},
};

struct Setting {
  const char* name;
  WriteStrategy strategy;
  Weather weather;
};

const Setting kSettings[] = {
    {"doorbell", WriteStrategy::kDoorbell, Weather::kCalm},
    {"doorbell_slow", WriteStrategy::kDoorbell, Weather::kSlow},
    {"doorbell_broken", WriteStrategy::kDoorbell, Weather::kBroken},
    {"doorbell_server_gone", WriteStrategy::kDoorbell, Weather::kServerGone},
    {"naive_slow", WriteStrategy::kNaive, Weather::kSlow},
    {"naive_broken", WriteStrategy::kNaive, Weather::kBroken},
    {"outstanding_slow", WriteStrategy::kOutstanding, Weather::kSlow},
    {"outstanding_broken", WriteStrategy::kOutstanding, Weather::kBroken},
    {"two_sided", WriteStrategy::kTwoSided, Weather::kCalm},
    {"two_sided_slow", WriteStrategy::kTwoSided, Weather::kSlow},
    {"two_sided_broken", WriteStrategy::kTwoSided, Weather::kBroken},
    {"two_sided_server_gone", WriteStrategy::kTwoSided, Weather::kServerGone},
};

class PersistCancellation
    : public ::testing::TestWithParam<std::tuple<const PersistWorld::Case*, const Setting*>> {
 protected:
  void destroy_everywhere(Aftermath aftermath) {
    const auto& [tested, setting] = GetParam();
    PersistWorld world(setting->strategy);
    world.destroy_everywhere(*tested, setting->weather, aftermath);
  }
};

std::vector<const PersistWorld::Case*> cases() {
  std::vector<const PersistWorld::Case*> all;
  for (const auto& each : kCases) all.push_back(&each);
  return all;
}
std::vector<const Setting*> settings() {
  std::vector<const Setting*> all;
  for (const Setting& each : kSettings) all.push_back(&each);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Persist, PersistCancellation,
                         ::testing::Combine(::testing::ValuesIn(cases()),
                                            ::testing::ValuesIn(settings())),
                         [](const auto& param) {
                           return test_name(std::get<0>(param.param)->name,
                                            std::get<1>(param.param)->name);
                         });

TEST_P(PersistCancellation, LeavesNothingBehind) { destroy_everywhere(Aftermath::kUse); }

TEST_P(PersistCancellation, OfAClientThatGoesRightAfter) {
  destroy_everywhere(Aftermath::kDestroy);
}

}  // namespace
}  // namespace pmstore::cancellation
