// Records that take space from the pool when they need it, and give it back.
#include "pmstore/shard/record_frames.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "base/checksum.h"
#include "persist/pool_layout.h"
#include "pmstore/check.h"
#include "pmstore/convert.h"
#include "pmstore/layout/record.h"
#include "tests/unit/pmstore/shard/earlier_pool.h"
#include "tests/unit/pmstore/shard/record_frames_fixture.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

using namespace small_frames;

TEST(RecordFrames, ANewPoolHasOneExtentAndRecordsTakeMoreWhenTheyNeedThem) {
  StoreInRegion s(4 << 20, in_frames());
  EXPECT_EQ(extents(s), 1u);
  const int count = fill(s, 4);
  expect_there(s, 0, count);
  std::set<uint64_t> frames;
  for (int i = 0; i < count; ++i) frames.insert(s.get(key_of(i))->reply.slot / kFrameBytes);
  EXPECT_EQ(frames.size(), 4u);
}

TEST(RecordFrames, WhatIsInTheirExtentsIsThereAfterARestart) {
  StoreInRegion s(4 << 20, in_frames());
  const int count = fill(s, 4);
  const GetReply last = s.get(key_of(count - 1))->reply;
  s.reopen();
  EXPECT_EQ(s.store().recovery().live_records, static_cast<uint64_t>(count));
  expect_there(s, 0, count);
  EXPECT_EQ(s.get(key_of(count - 1))->reply.slot, last.slot);
  ASSERT_TRUE(check_store(s.pool())->sound());
}

TEST(RecordFrames, AFullPoolIsAnErrorForTheOneThatAskedAndLeavesEverythingAsItWas) {
  StoreInRegion s(2 << 20, in_frames());
  const int count = fill_up(s);
  EXPECT_GT(extents(s), 3u);
  const uint64_t used = s.store().arena().used_slots();
  const auto before = s.pool().info().extents.size();
  EXPECT_EQ(s.put("more", value_of(0)).code(), ErrorCode::kFull);
  EXPECT_EQ(s.store().arena().used_slots(), used);
  EXPECT_EQ(s.pool().info().extents.size(), before);
  expect_there(s, 0, count);
  ASSERT_TRUE(s.put(key_of(0), value_of(0))) << "in its place";
  ASSERT_TRUE(s.erase(key_of(1)));
  EXPECT_TRUE(s.put("more", value_of(0)));
}

TEST(RecordFrames, AnEmptyOneIsGivenBackAndItsSpaceIsForOthers) {
  StoreInRegion s(2 << 20, in_frames());
  const int count = fill_up(s);
  const uint64_t largest = s.pool().largest_free_extent();
  ASSERT_FALSE(s.pool().allocate_extent(persist::ExtentKind::kLog, kFrameBytes / 2));
  erase(s, 0, count);
  const size_t before = extents(s);
  EXPECT_GT(give_back(s), 2);
  EXPECT_LT(extents(s), before - 2);
  EXPECT_GT(s.pool().largest_free_extent(), largest);
  const auto log = s.pool().allocate_extent(persist::ExtentKind::kLog, kFrameBytes / 2);
  ASSERT_TRUE(log);
  // And the other way round.
  const int fewer = fill_up(s);
  EXPECT_LT(fewer, count);
  ASSERT_TRUE(s.pool().free_extent(*log));
  EXPECT_TRUE(s.put("one more", value_of(0)));
  s.reopen();
  expect_there(s, 0, fewer);
}

TEST(RecordFrames, WhatWasMadeWithThePoolStays) {
  StoreInRegion s(2 << 20, in_frames());
  const int count = fill(s, 3);
  erase(s, 0, count);
  give_back(s);
  EXPECT_EQ(extents(s), 1u);
  EXPECT_FALSE(s.store().arena().empty_frame(0));
  EXPECT_TRUE(s.put("first", value_of(0)));
}

TEST(RecordFrames, OneWithARecordIsNotGivenBack) {
  StoreInRegion s(2 << 20, in_frames());
  const int count = fill(s, 3);
  erase(s, 0, count - 1);
  give_back(s);
  EXPECT_EQ(extents(s), 2u);
  expect_there(s, count - 1, count);
}

TEST(RecordFrames, OneThatIsAskedForByNameAsToBeKeptIsNotNamed) {
  StoreInRegion s(2 << 20, in_frames());
  erase(s, 0, fill(s, 2));
  ASSERT_EQ(s.store().arena().empty_frame(0), 1u);
  EXPECT_FALSE(s.store().arena().empty_frame(2));
}

TEST(RecordFrames, OneIsNamedWhenHalfAFrameIsFreeElsewhere) {
  StoreInRegion s(2 << 20, in_frames());
  const int last = fill(s, 2) - 1;  // alone in the second one
  std::map<uint64_t, std::vector<int>> keys_in;
  for (int i = 0; i < last; ++i) keys_in[s.get(key_of(i))->reply.slot / kChunkBytes].push_back(i);
  ASSERT_EQ(keys_in.size(), 3u) << "chunks";
  ASSERT_TRUE(s.erase(key_of(last)));
  EXPECT_FALSE(s.store().arena().empty_frame(0)) << "the first one is full";
  for (const int i : keys_in[0]) ASSERT_TRUE(s.erase(key_of(i)));
  EXPECT_FALSE(s.store().arena().empty_frame(0)) << "a quarter";
  for (const int i : keys_in[2]) ASSERT_TRUE(s.erase(key_of(i)));
  EXPECT_EQ(s.store().arena().empty_frame(0), 1u);
  ASSERT_TRUE(s.put("one more", value_of(0)));
  EXPECT_FALSE(s.store().arena().empty_frame(0));
  ASSERT_TRUE(s.erase("one more"));
  s.reopen();
  EXPECT_EQ(extents(s), 1u);
}

TEST(RecordFrames, NoSlotOfOneThatIsSetAsideIsHandedOutWhileThereIsOtherRoom) {
  StoreInRegion s(2 << 20, in_frames());
  const int count = fill(s, 3);
  erase(s, 0, count);
  SlabArena& arena = s.store().arena();
  const auto frame = arena.empty_frame(0);
  ASSERT_TRUE(frame);
  arena.set_aside(*frame);
  EXPECT_NE(arena.empty_frame(0), frame);
  const uint64_t used = arena.used_slots();
  // More than lies in front of it.
  for (int i = 0; i < count / 2; ++i) ASSERT_TRUE(s.put(key_of(i), value_of(i)));
  EXPECT_GT(arena.used_slots(), used);
  EXPECT_TRUE(arena.is_aside(*frame));
  arena.take_in_again(*frame);
  EXPECT_EQ(arena.empty_frame(0), frame) << "no slot of it was used";
}

TEST(RecordFrames, NoSlabIsMadeInOneThatIsSetAside) {
  StoreInRegion s(2 << 20, in_frames());
  erase(s, 0, fill(s, 3));
  SlabArena& arena = s.store().arena();
  const auto frame = arena.empty_frame(0);
  ASSERT_TRUE(frame);
  arena.set_aside(*frame);
  const auto slabs = [&] {
    int count = 0;
    arena.for_each_slab([&](const SlabArena::Slab& slab) {
      count += slab.first_chunk * kChunkBytes / kFrameBytes == *frame;
    });
    return count;
  };
  ASSERT_EQ(slabs(), 1) << "of one record, with free chunks behind it";
  ASSERT_TRUE(s.put("small", "small"));  // of a size that has no slab yet
  EXPECT_EQ(slabs(), 1);
  EXPECT_TRUE(arena.is_aside(*frame));
}

TEST(RecordFrames, OneThatIsSetAsideIsNoRoomForWhichAnotherMayGo) {
  StoreInRegion s(2 << 20, in_frames());
  const int count = fill(s, 3);
  std::map<uint64_t, std::vector<int>> keys_in;  // by chunks
  for (int i = 0; i < count; ++i) keys_in[s.get(key_of(i))->reply.slot / kChunkBytes].push_back(i);
  for (const auto& [chunk, keys] : keys_in) {
    if (chunk < 2) continue;  // half of the first frame and more stays
    for (const int i : keys) ASSERT_TRUE(s.erase(key_of(i)));
  }
  SlabArena& arena = s.store().arena();
  ASSERT_EQ(arena.empty_frame(0), 2u);
  arena.set_aside(2);
  EXPECT_FALSE(arena.empty_frame(0)) << "a quarter is free beside the other one";
  arena.take_in_again(2);
  EXPECT_EQ(arena.empty_frame(0), 2u);
}

TEST(RecordFrames, OneThatIsSetAsideIsUsedBeforeThePoolGivesMore) {
  StoreInRegion s(2 << 20, in_frames());
  const int count = fill(s, 3);
  erase(s, 0, count);
  SlabArena& arena = s.store().arena();
  const auto frame = arena.empty_frame(0);
  ASSERT_TRUE(frame);
  arena.set_aside(*frame);
  for (int i = 0; i < count; ++i) ASSERT_TRUE(s.put(key_of(i), value_of(i)));
  EXPECT_FALSE(arena.is_aside(*frame));
  EXPECT_EQ(extents(s), 3u);
  expect_there(s, 0, count);
  // For slots of another size, too.
  erase(s, 0, count);
  arena.set_aside(*frame);
  for (int i = 0; arena.is_aside(*frame); ++i) ASSERT_TRUE(s.put(key_of(i), "small"));
  EXPECT_EQ(extents(s), 3u);
}

TEST(RecordFrames, TheVersionsOfOneMayBeLookedAtInSteps) {
  StoreInRegion s(2 << 20, in_frames());
  const int count = fill(s, 3);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < count; ++i) ASSERT_TRUE(s.put(key_of(i), value_of(i + round)));
  }
  erase(s, 0, count);
  SlabArena& arena = s.store().arena();
  const auto frame = arena.empty_frame(0);
  ASSERT_TRUE(frame);
  const uint64_t highest = arena.highest_version(*frame);
  EXPECT_GE(highest, 5u);
  arena.set_aside(*frame);
  unsigned steps = 1;
  while (!arena.look_at_versions(*frame, 1)) ++steps;
  EXPECT_EQ(steps, arena.frames().memory(*frame).size() / kChunkBytes);
  EXPECT_EQ(arena.highest_version(*frame), highest);
  EXPECT_TRUE(s.store().give_back_frame(*frame).value());
  EXPECT_EQ(s.store().catalog().header().freed_version, highest);
}

TEST(RecordFrames, OneStaysWhileNoOtherRoomIsAsLargeAsARecordHasBeen) {
  constexpr uint64_t kLargeFrame = 1 << 20;
  StoreInRegion s(12 << 20, in_frames(kLargeFrame, 1 << 20));
  int large = 0;
  while (extents(s) < 2) ASSERT_TRUE(s.put(key_of(large++), std::string(300 << 10, 'l')));
  erase(s, 0, large);
  std::map<uint64_t, std::string> by_slot;
  for (int i = 0; extents(s) < 3; ++i) {
    const std::string key = "small" + std::to_string(i);
    ASSERT_TRUE(s.put(key, std::string(70 << 10, 's')));
    by_slot[s.get(key)->reply.slot] = key;
  }
  // Half of the first frame becomes free, in pieces for what is small.
  int in_first = 0;
  for (const auto& [slot, key] : by_slot) {
    const bool stays = slot < kLargeFrame && in_first++ % 2 == 1;
    if (stays) continue;
    ASSERT_TRUE(s.erase(key));
  }
  give_back(s);
  EXPECT_EQ(extents(s), 2u);
  ASSERT_TRUE(s.put("large", std::string(300 << 10, 'l')));
  EXPECT_EQ(extents(s), 2u);
}

// A client of lock discipline rnic can write any version into a lock word or a redo record.
TEST(RecordFrames, OneWhoseVersionsAClientHasUsedUpStays) {
  StoreInRegion s(2 << 20, in_frames());
  const int count = fill(s, 2);
  const SlotOffset slot{s.get(key_of(count - 1))->reply.slot};
  erase(s, 0, count);
  ASSERT_EQ(s.store().arena().empty_frame(0), 1u);
  constexpr uint64_t kForged = kMaxRecordVersion - 1;
  s.store().words().store(slot, LockWord::unlocked(kForged));
  bool withdrawn = false;
  const auto freed = s.store().give_back_frame(1, [&] { withdrawn = true; });
  ASSERT_TRUE(freed);
  EXPECT_FALSE(*freed);
  EXPECT_FALSE(withdrawn);
  EXPECT_FALSE(s.store().arena().empty_frame(0)) << "it would be looked at again and again";
  build_record({s.store().arena().at(slot), record_bytes(3, 0)}, slot, s.table(), kForged,
               RecordState::kTombstone, "key", {});
  s.reopen();
  EXPECT_EQ(extents(s), 2u);
  EXPECT_EQ(s.store().catalog().header().freed_version, 0u);
  const int again = fill(s, 4);
  expect_there(s, 0, again);
}

TEST(RecordFrames, InAPoolWhoseExtentsStayNoneIsNamed) {
  StoreInRegion s(2 << 20, in_frames());
  persist::PoolHeader header;
  std::memcpy(&header, s.pool().memory().at(0), sizeof header);
  header.padding_off &= ~persist::kExtentsComeBack;
  header.crc = 0;
  header.crc = base::crc32c(std::as_bytes(std::span(&header, 1)));
  std::memcpy(s.pool().memory().at(0), &header, sizeof header);
  s.reopen();
  erase(s, 0, fill(s, 2));
  EXPECT_FALSE(s.store().arena().empty_frame(0));
  s.reopen();
  EXPECT_EQ(extents(s), 2u);
}

// Calls `before_third` before the third word changes.
class ThirdSwap final : public WordChanger {
 public:
  ThirdSwap(Store& store, std::function<void(SlotOffset)> before_third)
      : store_(store), before_third_(std::move(before_third)) {}
  base::Task<Result<bool>> compare_swap(SlotOffset slot, LockWord expected,
                                        LockWord desired) override {
    if (++swaps_ == 3) before_third_(slot);
    if (!(store_.words().load(slot) == expected)) co_return false;
    store_.words().store(slot, desired);
    co_return true;
  }
  base::Task<void> pause() override { co_return; }

 private:
  Store& store_;
  std::function<void(SlotOffset)> before_third_;
  int swaps_ = 0;
};

// The server answers others while an RNIC changes a word.
TEST(RecordFrames, TheFrameOfADroppedTableMayGoWhileItsSlotsAreFreed) {
  StoreInRegion s(2 << 20, in_frames());
  const int count = fill(s, 2);
  const TableId table = *s.store().create_table("dropped");
  for (const char* key : {"a", "b"}) {
    ASSERT_TRUE(s.commit(s.transaction().write(WriteKind::kPut, table, key, value_of(0))));
  }
  ASSERT_EQ(extents(s), 2u);
  erase(s, 0, count);
  ASSERT_TRUE(s.store().drop_table(table));
  ThirdSwap swaps(s.store(), [&](SlotOffset second) {
    s.store().arena().free_slot(second);
    EXPECT_EQ(give_back(s), 1);
  });
  TableDrop::Cursor cursor;
  auto freed = s.store().free_dropped(&swaps, table, cursor);
  freed.start();
  ASSERT_TRUE(freed.done());
  EXPECT_TRUE(freed.take());
  EXPECT_TRUE(cursor.done);
  EXPECT_EQ(extents(s), 1u);
}

// A client that knows a slot of an extent that has gone must not take a later record for the one
// that it has seen.
TEST(RecordFrames, TheVersionsOfASlotDoNotFallWhenItsFrameGetsAnotherExtent) {
  for (const bool restart : {false, true}) {
    StoreInRegion s(2 << 20, in_frames());
    const int count = fill(s, 2);
    for (int i = 0; i < 30; ++i) ASSERT_TRUE(s.put(key_of(count - 1), value_of(i)));
    const GetReply old = s.get(key_of(count - 1))->reply;
    erase(s, 0, count);
    ASSERT_EQ(give_back(s), 1);
    if (restart) s.reopen();
    const int again = fill(s, 2);
    bool met = false;
    for (int i = 0; i < again; ++i) {
      const GetReply now = s.get(key_of(i))->reply;
      if (now.slot / kFrameBytes != old.slot / kFrameBytes) continue;
      met = true;
      EXPECT_GT(now.version, old.version + 1) << "the erase had one, too";
    }
    EXPECT_TRUE(met);
  }
}

TEST(RecordFrames, ARedoRecordOfAFrameThatHasGoneIsNotPutAnywhere) {
  StoreInRegion s(2 << 20, in_frames());
  const int count = fill(s, 2);
  erase(s, 0, count);  // redo records of the last erases are in the log
  ASSERT_EQ(give_back(s), 1);
  s.reopen();
  EXPECT_EQ(s.store().live_records(), 0u);
  EXPECT_TRUE(check_store(s.pool())->sound());
}

TEST(RecordFrames, RunsOfChunksDoNotCrossFromOneExtentToAnother) {
  StoreInRegion s(8 << 20, in_frames(kFrameBytes, 512 << 10));
  const std::string large(120'000, 'l');  // three chunks, and a frame has three
  int count = 0;
  while (s.put(key_of(count), large)) ++count;
  EXPECT_GT(count, 10);
  s.reopen();
  for (int i = 0; i < count; ++i) EXPECT_EQ(s.get(key_of(i))->value, large);
}

TEST(RecordFrames, ALargerRecordThanAFrameDoesNotFit) {
  StoreInRegion s(4 << 20, in_frames());
  const size_t before = s.pool().info().extents.size();
  EXPECT_EQ(s.put("large", std::string(300'000, 'l')).code(), ErrorCode::kFull);
  EXPECT_EQ(s.pool().info().extents.size(), before);
}

TEST(RecordFrames, RoomForTheFirstRingsIsLeft) {
  crash::PageBytes region(2 << 20);
  const auto pool = std::move(
      *persist::Pool::in_region(region.bytes(), persist::Domain::kMemoryController, true));
  ASSERT_TRUE(format_store(*pool, in_frames()));
  const auto store = std::move(*Store::open(*pool));
  const TableId table = *store->create_table("t");
  const uint64_t first = store->begin_session().value();
  Status status;
  for (uint64_t i = 1; status; ++i) {
    const auto message =
        TransactionMessage(first + i)
            .write(WriteKind::kPut, table, key_of(static_cast<int>(i)), value_of(0))
            .message();
    status = store->commit(*decode_commit(StoreInRegion::kClient, message));
  }
  EXPECT_EQ(status.code(), ErrorCode::kFull);
  EXPECT_TRUE(store->make_ring()) << "so that a client can come and delete";
}

TEST(RecordFrames, AnExtentThatSaysNotWhereItBelongsIsDamage) {
  StoreInRegion s(2 << 20, in_frames());
  fill(s, 2);
  const auto& all = s.pool().info().extents;
  const auto later = std::find_if(all.rbegin(), all.rend(), [](const auto& extent) {
    return extent.kind == persist::ExtentKind::kRecords;
  });
  std::byte* const at = s.pool().memory().at(later->offset);
  FrameHeader header;
  std::memcpy(&header, at, sizeof header);
  FrameProgress progress;
  std::memcpy(&progress, at + kFrameProgressOffset, sizeof progress);
  const auto refused = [&] {
    const auto opened = TableCatalog::load(s.pool());
    return RecordFrames::open(s.pool(), opened->header()).code() == ErrorCode::kBadPool;
  };
  EXPECT_FALSE(refused());
  for (size_t byte = 0; byte < kFrameProgressOffset + sizeof progress; ++byte) {
    at[byte] ^= std::byte{0x10};
    EXPECT_TRUE(refused()) << byte;
    at[byte] ^= std::byte{0x10};
  }
  EXPECT_FALSE(refused());
  progress.chunks = header.chunks + 1;
  progress.crc = base::crc32c(std::as_bytes(std::span(&progress.chunks, 1)), header.crc);
  std::memcpy(at + kFrameProgressOffset, &progress, sizeof progress);
  EXPECT_TRUE(refused()) << "more chunks than the frame has";
}

// Earlier releases gave one extent to records. Its runs of chunks go on where frames end.
TEST(RecordFrames, OfAConvertedPoolTheFirstOnesAreTheExtentThatRecordsHad) {
  StoreInRegion s(20 << 20, in_frames(32 << 20, 512 << 10));
  const std::string large(150'000, 'l');  // three chunks
  int count = 0;
  for (; count < 50; ++count) ASSERT_TRUE(s.put(key_of(count), large));
  const uint64_t slot = s.get(key_of(count - 1))->reply.slot;
  ASSERT_TRUE(s.store().close());
  for (uint64_t copy = 0; copy < 2; ++copy) {
    CatalogHeader header = catalog_copy(s.pool(), copy);
    header.version = kFirstVersionWithFrames - 1;
    store_catalog_copy(s.pool(), copy, header);
  }
  ASSERT_TRUE(convert_pool(s.pool()));
  s.reopen();
  EXPECT_EQ(s.store().arena().frames().frame_bytes(), kLeastFrameBytes);
  EXPECT_GT(slot, kLeastFrameBytes);
  EXPECT_EQ(s.get(key_of(count - 1))->reply.slot, slot);
  for (; s.put(key_of(count), large); ++count) {
  }
  s.reopen();
  for (int i = 0; i < count; ++i) EXPECT_EQ(s.get(key_of(i))->value, large);
  EXPECT_TRUE(check_store(s.pool())->sound());
}

TEST(LockWords, EachSlotHasAWordOfItsOwnWithinTheTable) {
  constexpr uint64_t kSpace = 2 * kWordGroupSlotBytes;
  std::vector<bool> taken(lock_table_bytes(kSpace) / 8);
  for (uint64_t slot = 0; slot < kSpace; slot += 64) {
    const uint64_t at = lock_word_offset(slot);
    ASSERT_LT(at / 8, taken.size());
    ASSERT_EQ(at % 8, 0u);
    ASSERT_FALSE(taken[at / 8]) << slot;
    taken[at / 8] = true;
  }
}

TEST(LockWords, ThoseOfSlotsOfOneSizeShareAsFewPagesAsTheyNeed) {
  for (const uint64_t bytes : {128u, 512u, 1024u, 4096u}) {
    std::set<uint64_t> pages;
    uint64_t slots = 0;
    for (uint64_t chunk = 0; chunk < kWordGroupSlotBytes; chunk += kChunkBytes) {
      for (uint64_t at = kSlabHeaderBytes; at + bytes <= kChunkBytes; at += bytes, ++slots) {
        pages.insert(lock_word_offset(chunk + at) / 4096);
      }
    }
    EXPECT_EQ(pages.size(), slots * 8 / 4096) << bytes;
  }
}

}  // namespace
}  // namespace pmstore::internal
