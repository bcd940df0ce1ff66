// Records that move out of slabs and frames of which little is used.
#include "pmstore/shard/record_mover.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "pmstore/check.h"
#include "tests/unit/pmstore/shard/record_frames_fixture.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

using namespace small_frames;

struct RecordMoverTest : ::testing::Test {
  SlabArena& arena() { return s.store().arena(); }
  void fill_frames(size_t most) {
    const int count = fill(s, most);
    for (int i = 0; i < count; ++i) there.insert(i);
  }
  // Of each `of` records that follow one another `most` stay.
  void keep(int most, int of) {
    const std::set<int> before = there;
    for (const int i : before) {
      if (i % of >= most) erase_one(i);
    }
  }
  void erase_nine_tenths() { keep(1, 10); }
  void erase_one(int i) {
    ASSERT_TRUE(s.erase(key_of(i))) << i;
    there.erase(i);
  }
  // The number of steps.
  int move_all() {
    for (int steps = 1; steps < 10'000; ++steps) {
      const auto more = s.store().move_some_records();
      if (!more) ADD_FAILURE() << more.error().to_string();
      if (!more || !*more) return steps;
    }
    ADD_FAILURE() << "there is no end of it";
    return 0;
  }
  void expect_all_there() {
    for (const int i : there) expect_there(s, i, i + 1);
    EXPECT_EQ(s.store().live_records(), there.size());
    EXPECT_EQ(arena().used_slots(), there.size());
    const KeyIndex& index = s.store().index();
    for (const int i : there) {
      const std::string key = key_of(i);
      const uint64_t unit = index.unit_of(IndexKey::of(s.table(), key));
      EXPECT_EQ(index.version(unit) % 2, 0u) << "no change of it is under way";
    }
  }
  std::map<int, GetReply> places() {
    std::map<int, GetReply> all;
    for (const int i : there) all[i] = s.get(key_of(i))->reply;
    return all;
  }
  size_t slabs_with_records() {
    std::set<uint64_t> chunks;
    for (const auto& [i, at] : places()) chunks.insert(at.slot / kChunkBytes);
    return chunks.size();
  }

  // By undecided transactions, until `held` is cleared.
  void hold_the_log() {
    for (int i = 0;; ++i) {
      const std::string key = "held" + std::to_string(i);
      held_messages.push_back(
          s.transaction().write(WriteKind::kPut, s.table(), key, "v").message());
      const auto request = decode_commit(StoreInRegion::kClient, held_messages.back());
      auto more = s.store().cpu().prepare(*request);
      if (!more) break;
      held.push_back(std::move(*more));
    }
  }

  StoreInRegion s{4 << 20, in_frames()};
  std::set<int> there;
  std::vector<std::vector<std::byte>> held_messages;
  std::vector<CpuCommit::Prepared> held;
};

TEST_F(RecordMoverTest, WhatIsLeftOfManySlabsFillsAFewAndTheFramesGoBack) {
  fill_frames(6);
  keep(1, 30);
  EXPECT_TRUE(arena().looks_sparse());
  give_back(s);
  ASSERT_EQ(extents(s), 6u) << "each has a record";
  const auto before = places();
  move_all();
  expect_all_there();
  EXPECT_GT(s.store().moved_records(), 0u);
  EXPECT_FALSE(arena().looks_sparse());
  // 42 slots in a slab, seven eighths of them used.
  EXPECT_LE(slabs_with_records(), there.size() * 8 / 7 / 42 + 1);
  give_back(s);
  EXPECT_EQ(extents(s), 1u);
  for (const auto& [i, now] : places()) {
    const GetReply& then = before.at(i);
    if (now.slot != then.slot) continue;
    EXPECT_EQ(now.version, then.version) << "it stayed as it was";
  }
  s.reopen();
  expect_all_there();
  EXPECT_TRUE(check_store(s.pool())->sound());
}

// Slabs that have become empty keep their slots, as in a pool on a device.
TEST_F(RecordMoverTest, OneRoundMovesNoRecordIntoASlabWithoutRecords) {
  constexpr int kRecords = 32'000;
  constexpr size_t kInSlab = 63;
  StoreInRegion large{96 << 20, in_frames(32 << 20, 1 << 20)};
  const std::string value(950, 'v');
  for (int i = 0; i < kRecords; ++i) ASSERT_TRUE(large.put(key_of(i), value));
  Random random(5);
  std::set<int> left;
  while (left.size() < kRecords / 100) left.insert(static_cast<int>(random.below(kRecords)));
  for (int i = 0; i < kRecords; ++i) {
    if (left.contains(i)) continue;
    ASSERT_TRUE(large.erase(key_of(i)));
  }
  const auto slabs = [&] {
    std::set<uint64_t> all;
    for (const int i : left) all.insert(large.get(key_of(i))->reply.slot / kChunkBytes);
    return all.size();
  };
  ASSERT_GT(slabs(), 150u);
  ASSERT_TRUE(*large.store().move_some_records());
  for (int steps = 0; large.store().arena().is_emptying(); ++steps) {
    ASSERT_LT(steps, 10'000) << "there is no end of it";
    ASSERT_TRUE(*large.store().move_some_records());
  }
  EXPECT_LE(slabs(), 2 * (left.size() * 8 / 7 / kInSlab + 1));
  EXPECT_LE(large.store().moved_records(), 3 * left.size());
  for (const int i : left) EXPECT_EQ(large.get(key_of(i))->value, value);
  // What was closed is used again.
  const uint64_t bytes = large.store().arena().bytes();
  for (int i = 0; i < kRecords; ++i) ASSERT_TRUE(large.put(key_of(i), value)) << i;
  EXPECT_EQ(large.store().arena().bytes(), bytes);
  EXPECT_TRUE(check_store(large.pool())->sound());
}

TEST_F(RecordMoverTest, AFrameWhoseSlabsFitInFrontOfItIsEmptied) {
  fill_frames(4);
  // The slabs of the last frames are full, and those in front of them have no record.
  const auto at = places();
  for (const auto& [i, reply] : at) {
    if (reply.slot / kFrameBytes < 2) erase_one(i);
  }
  give_back(s);
  const size_t before = extents(s);
  ASSERT_TRUE(arena().looks_sparse());
  move_all();
  expect_all_there();
  give_back(s);
  EXPECT_LT(extents(s), before);
  for (const auto& [i, reply] : places()) EXPECT_LT(reply.slot / kFrameBytes, 3u);
}

TEST_F(RecordMoverTest, ASlotThatARecordHasLeftShowsAHigherVersionAndATombstone) {
  fill_frames(6);
  erase_nine_tenths();
  const auto before = places();
  ASSERT_TRUE(*s.store().move_some_records());
  int moved = 0;
  for (const auto& [i, now] : places()) {
    const GetReply& then = before.at(i);
    if (now.slot == then.slot) continue;
    ++moved;
    const LockWord word = s.store().words().load(SlotOffset{then.slot});
    EXPECT_FALSE(word.is_locked());
    EXPECT_EQ(word.version(), then.version + 1);
    RecordHeader header;
    std::memcpy(&header, arena().at(SlotOffset{then.slot}), sizeof header);
    EXPECT_EQ(header.state, RecordState::kTombstone);
    EXPECT_EQ(header.version, then.version + 1);
  }
  EXPECT_GT(moved, 0);
  EXPECT_LE(moved, static_cast<int>(RecordMover::kMostRecords));
}

TEST_F(RecordMoverTest, AReadOfARecordThatHasMovedIsAConflict) {
  fill_frames(6);
  erase_nine_tenths();
  const auto before = places();
  move_all();
  int conflicts = 0;
  for (const auto& [i, now] : places()) {
    const GetReply& then = before.at(i);
    if (now.slot == then.slot) continue;
    auto change = s.transaction();
    change.read(then.slot, then.version).write(WriteKind::kPut, s.table(), "other", "value");
    EXPECT_EQ(s.commit(change).code(), ErrorCode::kConflict);
    ++conflicts;
  }
  EXPECT_GT(conflicts, 0);
}

TEST_F(RecordMoverTest, OneThatIsViewedStaysAndTheOthersOfItsSlabAreMoved) {
  s.store().set_sole_writer();
  fill_frames(6);
  erase_nine_tenths();
  const auto [last, place] = *places().rbegin();
  ASSERT_TRUE(s.store().viewed_slots()->begin_view(SlotOffset{place.slot}));
  move_all();
  EXPECT_EQ(s.get(key_of(last))->reply.slot, place.slot);
  EXPECT_EQ(s.get(key_of(last))->reply.version, place.version);
  expect_all_there();
  s.store().viewed_slots()->end_view(SlotOffset{place.slot});
  arena().look_for_sparse();
  move_all();
  EXPECT_NE(s.get(key_of(last))->reply.slot, place.slot);
  expect_all_there();
}

// In the frame that a pool is made with, which is not emptied as a whole.
TEST_F(RecordMoverTest, ARoundThatLeavesFewerSlabsIsFollowedByAnother) {
  StoreInRegion one{16 << 20, in_frames(4 << 20)};
  one.store().set_sole_writer();
  constexpr int kRecords = 55 * 42;
  for (int i = 0; i < kRecords; ++i) ASSERT_TRUE(one.put(key_of(i), value_of(i)));
  std::map<uint64_t, SlotOffset> in_slab;  // its only record
  for (int i = 0; i < kRecords; ++i) {
    const SlotOffset slot{one.get(key_of(i))->reply.slot};
    if (in_slab.try_emplace(raw(slot) / kChunkBytes, slot).second) continue;
    ASSERT_TRUE(one.erase(key_of(i)));
  }
  std::vector<SlotOffset> viewed;
  for (auto last = in_slab.rbegin(); viewed.size() < 36; ++last) {
    viewed.push_back(last->second);
    ASSERT_TRUE(one.store().viewed_slots()->begin_view(last->second));
  }
  while (one.store().moved_records() == 0) ASSERT_TRUE(*one.store().move_some_records());
  for (const SlotOffset slot : viewed) one.store().viewed_slots()->end_view(slot);
  while (*one.store().move_some_records()) {
  }
  EXPECT_GE(one.store().moved_records(), in_slab.size() - 4);
}

TEST_F(RecordMoverTest, AFrameThatKeepsARecordDoesNotHoldUpTheOneInFrontOfIt) {
  s.store().set_sole_writer();
  fill_frames(6);
  for (const auto& [i, reply] : places()) {
    if (reply.slot / kFrameBytes < 3) erase_one(i);
  }
  const auto [last, place] = *places().rbegin();
  const uint64_t frame = place.slot / kFrameBytes;
  ASSERT_TRUE(s.store().viewed_slots()->begin_view(SlotOffset{place.slot}));
  move_all();
  EXPECT_FALSE(arena().looks_sparse());
  std::set<uint64_t> frames;
  for (const auto& [i, reply] : places()) frames.insert(reply.slot / kFrameBytes);
  EXPECT_TRUE(frames.contains(frame));
  EXPECT_FALSE(frames.contains(frame - 1));
  expect_all_there();
  s.store().viewed_slots()->end_view(SlotOffset{place.slot});
  // It is tried again when a slot of it is freed.
  erase_one(last);
  move_all();
  expect_all_there();
}

TEST_F(RecordMoverTest, OneThatATransactionHasLockedStays) {
  fill_frames(6);
  erase_nine_tenths();
  const auto [last, place] = *places().rbegin();
  const auto message =
      s.transaction().write(WriteKind::kPut, s.table(), key_of(last), value_of(last + 1)).message();
  {
    auto prepared = s.store().cpu().prepare(*decode_commit(StoreInRegion::kClient, message));
    ASSERT_TRUE(prepared);
    move_all();
    EXPECT_GT(s.store().moved_records(), 0u);
    ASSERT_TRUE(prepared->commit());
  }
  EXPECT_EQ(s.get(key_of(last))->reply.slot, place.slot);
  EXPECT_EQ(s.get(key_of(last))->value, value_of(last + 1));
  ASSERT_TRUE(s.put(key_of(last), value_of(last)));
  expect_all_there();
}

TEST_F(RecordMoverTest, NoSlotOfASlabThatIsEmptiedIsHandedOutUntilThereIsNoOtherRoom) {
  fill_frames(6);
  keep(9, 20);  // 19 of 42
  const auto last = places().rbegin()->second.slot / kChunkBytes;
  ASSERT_TRUE(*s.store().move_some_records());
  const auto is_of_last = [&](const auto& each) { return each.second.slot / kChunkBytes == last; };
  const auto left = places();
  ASSERT_GT(std::count_if(left.begin(), left.end(), is_of_last), 0) << "a step does not empty it";
  // All other slots, then the pool's, then those of that slab.
  int of_last = 0;
  for (int i = 100'000; s.put(key_of(i), value_of(i)); ++i) {
    there.insert(i);
    if (s.get(key_of(i))->reply.slot / kChunkBytes != last) continue;
    ++of_last;
    ASSERT_FALSE(arena().is_emptying()) << i;
    ASSERT_EQ(extents(s), 6u) << "before the pool gives more";
  }
  EXPECT_EQ(of_last, 42 - std::count_if(left.begin(), left.end(), is_of_last)) << "none is lost";
  expect_all_there();
  s.reopen();
  expect_all_there();
}

TEST_F(RecordMoverTest, LittleIsDoneAtATimeAndAnythingMayHappenBetweenTwoSteps) {
  fill_frames(6);
  erase_nine_tenths();
  Random random(7);
  for (int round = 0; round < 400; ++round) {
    const uint64_t before = s.store().moved_records();
    ASSERT_TRUE(s.store().move_some_records());
    ASSERT_LE(s.store().moved_records() - before, RecordMover::kMostRecords);
    const int i = static_cast<int>(random.below(60));
    if (random.below(2) == 0) {
      ASSERT_TRUE(s.put(key_of(i), value_of(i)));
      there.insert(i);
    } else if (there.contains(i)) {
      erase_one(i);
    }
    if (random.below(40) == 0) give_back(s);
    if (random.below(60) == 0) {
      while (!s.store().give_back_idle_slabs(1, 0).value()) {
      }
    }
    if (random.below(100) == 0) s.reopen();
  }
  s.store().stop_moving();
  expect_all_there();
  EXPECT_TRUE(check_store(s.pool())->sound());
}

TEST_F(RecordMoverTest, AnOrderlyStopAmidItLeavesACheckpointWithAllFreeSlots) {
  fill_frames(6);
  erase_nine_tenths();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(*s.store().move_some_records());
  ASSERT_TRUE(s.store().close());
  EXPECT_EQ(s.store().no_checkpoint(), "");
  s.reopen();
  EXPECT_TRUE(s.store().recovery().from_checkpoint);
  expect_all_there();
  move_all();
  expect_all_there();
}

TEST_F(RecordMoverTest, SlabsOfWhichHalfIsUsedStay) {
  fill_frames(6);
  keep(3, 5);
  EXPECT_FALSE(arena().looks_sparse());
  EXPECT_EQ(move_all(), 1);
  EXPECT_EQ(s.store().moved_records(), 0u);
}

TEST_F(RecordMoverTest, RecordsOfADroppedTableStay) {
  fill_frames(6);
  erase_nine_tenths();
  ASSERT_TRUE(s.store().drop_table(s.table()));
  move_all();
  EXPECT_EQ(s.store().moved_records(), 0u);
}

TEST_F(RecordMoverTest, AStartLooksForWhatAnEarlierOneHasLeft) {
  fill_frames(6);
  keep(1, 30);
  ASSERT_TRUE(s.store().close());
  s.reopen();
  ASSERT_TRUE(s.store().recovery().from_checkpoint);
  EXPECT_TRUE(arena().looks_sparse());
  move_all();
  expect_all_there();
  EXPECT_EQ(give_back(s), 5);
}

TEST_F(RecordMoverTest, WhereTheLogIsHeldTheSameRecordsAreTriedLater) {
  fill_frames(6);
  erase_nine_tenths();
  hold_the_log();
  for (unsigned i = 1; i <= 5; ++i) {
    ASSERT_TRUE(*s.store().move_some_records());
    EXPECT_EQ(s.store().moving_waits(), i) << "the server pauses longer each time";
    EXPECT_EQ(s.store().moved_records(), 0u);
  }
  held.clear();
  ASSERT_TRUE(*s.store().move_some_records());
  EXPECT_EQ(s.store().moving_waits(), 0u);
  EXPECT_GT(s.store().moved_records(), 0u);
  move_all();
  expect_all_there();
}

struct ScanAmidMoves : RecordMoverTest {
  // A page; its keys are added to `seen`, each for the first time.
  Result<uint64_t> page(uint64_t cursor) {
    std::vector<std::byte> room(8 << 10);
    PMSTORE_TRY(const size_t bytes,
                s.store().scan(ScanRequest{cursor, 8 << 10, raw(s.table()), 0, {}}, room));
    const std::span<const std::byte> page_bytes = std::span(room).first(bytes);
    MessageReader reader(page_bytes);
    const auto reply = reader.get<ScanReply>();
    for (uint32_t i = 0; i < reply.count; ++i) {
      const auto item = reader.get<ScanItem>();
      const std::string key(reader.get_bytes(item.key_bytes));
      reader.get_bytes(item.value_bytes);
      EXPECT_TRUE(seen.insert(key).second) << key;
    }
    return reply.cursor;
  }
  std::set<std::string> seen;
};

TEST_F(ScanAmidMoves, SeesEachRecordOnceOrEndsBecauseRecordsHaveMoved) {
  Random random(3);
  int whole = 0;
  int ended = 0;
  for (int round = 0; round < 12; ++round) {
    for (int i = 0; extents(s) < 6; ++i) {
      if (!there.insert(i).second) continue;
      ASSERT_TRUE(s.put(key_of(i), value_of(i)));
    }
    keep(1, 4);
    for (int scan = 0; scan < 30; ++scan) {
      seen.clear();
      const uint64_t before = s.store().moved_records();
      uint64_t cursor = 0;
      Result<uint64_t> next = page(0);
      for (; next && *next != 0; next = page(cursor)) {
        cursor = *next;
        if (random.below(20) == 0) {
          ASSERT_TRUE(s.store().move_some_records());
        }
      }
      if (!next) {
        EXPECT_EQ(next.code(), ErrorCode::kTrimmed);
        EXPECT_GT(s.store().moved_records(), before) << "there is a reason";
        ++ended;
        continue;
      }
      ++whole;
      EXPECT_EQ(seen.size(), there.size());
      for (const int i : there) EXPECT_TRUE(seen.contains(key_of(i))) << i;
    }
    s.store().stop_moving();
    give_back(s);
  }
  EXPECT_GT(whole, 10);
  EXPECT_GT(ended, 10);
}

TEST_F(ScanAmidMoves, GoesOnWhereNothingCouldMove) {
  fill_frames(6);
  erase_nine_tenths();
  hold_the_log();
  const auto cursor = page(0);
  ASSERT_TRUE(cursor);
  ASSERT_NE(*cursor, 0u);
  ASSERT_TRUE(*s.store().move_some_records());
  ASSERT_EQ(s.store().moving_waits(), 1u);
  EXPECT_TRUE(page(*cursor));
  held.clear();
  ASSERT_TRUE(*s.store().move_some_records());
  ASSERT_GT(s.store().moved_records(), 0u);
  EXPECT_EQ(page(*cursor).code(), ErrorCode::kTrimmed);
}

TEST_F(ScanAmidMoves, ACursorFromBeforeAStartCountsNoMore) {
  fill_frames(2);
  const auto cursor = page(0);
  ASSERT_TRUE(cursor);
  ASSERT_NE(*cursor, 0u);
  ASSERT_TRUE(page(*cursor)) << "without moves it goes on";
  s.reopen();
  EXPECT_EQ(page(*cursor).code(), ErrorCode::kTrimmed);
}

TEST_F(ScanAmidMoves, ACursorCountsUntilRecordsMove) {
  fill_frames(6);
  ScanCursors cursors(1);
  EXPECT_EQ(cursors.position(0).value(), 0u);
  EXPECT_EQ(cursors.cursor(0), 0u);
  const uint64_t first = cursors.cursor(77);
  EXPECT_EQ(cursors.position(first).value(), 77u);
  EXPECT_TRUE(cursors.any_open());
  cursors.records_move();
  EXPECT_FALSE(cursors.any_open());
  EXPECT_EQ(cursors.position(first).code(), ErrorCode::kTrimmed);
  const uint64_t second = cursors.cursor(77);
  EXPECT_NE(second, first);
  EXPECT_EQ(cursors.position(second).value(), 77u);
  EXPECT_EQ(s.store().table_usage(s.table(), second).code(), ErrorCode::kTrimmed);
  EXPECT_EQ(cursors.pages(), 4u);
}

}  // namespace
}  // namespace pmstore::internal
