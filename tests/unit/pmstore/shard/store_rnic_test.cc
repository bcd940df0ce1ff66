// The server's part of lock discipline rnic against clients that do what they may not: a client can
// lock any word and write anything into its own ring.
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/executor.h"
#include "tests/crash/crash_image.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

constexpr uint64_t kRnicRegionBytes = 4 << 20;
constexpr uint16_t kOwner = 3;

class Words final : public WordChanger {
 public:
  explicit Words(Store& store) : store_(store) {}
  base::Task<Result<bool>> compare_swap(SlotOffset slot, LockWord expected,
                                        LockWord desired) override {
    if (before) before(slot);
    if (!(store_.words().load(slot) == expected)) co_return false;
    store_.words().store(slot, desired);
    co_return true;
  }
  base::Task<void> pause() override { co_return; }
  std::function<void(SlotOffset)> before;

 private:
  Store& store_;
};

class StoreRnic : public ::testing::Test {
 protected:
  template <typename T>
  T run(base::Task<T> task) {
    return executor_.run(std::move(task));
  }
  Result<ReserveReply> reserve(std::string_view key) {
    return run(s_.store().reserve(words_, kOwner, s_.table(), key, 10, false));
  }
  std::span<const std::byte> redo(SlotOffset slot, uint64_t version, RecordState state,
                                  std::string_view key, std::string_view value) {
    ShardRedoBuilder builder(room_, StoreInRegion::kClient, s_.store().catalog().header().epoch);
    builder.add(slot, s_.table(), version, state, key, value);
    return builder.finish();
  }
  void lock(SlotOffset slot) {
    const uint64_t version = s_.store().words().load(slot).version();
    s_.store().words().store(slot, LockWord::locked(version, kOwner));
  }

  base::VirtualClock clock_;
  Executor executor_{clock_};
  StoreInRegion s_{kRnicRegionBytes};
  Words words_{s_.store()};
  std::vector<std::byte> room_ = std::vector<std::byte>(64 << 10);
};

// Its swaps take effect at once; the completion of the second one comes later than the others'.
class SlowWords final : public WordChanger {
 public:
  SlowWords(Store& store, Executor& executor) : store_(store), executor_(executor) {}
  base::Task<Result<bool>> compare_swap(SlotOffset slot, LockWord expected,
                                        LockWord desired) override {
    const bool same = store_.words().load(slot) == expected;
    if (same) store_.words().store(slot, desired);
    const int turns = ++calls_ == 2 ? 4 : 1;
    for (int i = 0; i < turns; ++i) co_await executor_.yield();
    co_return same;
  }
  base::Task<void> pause() override { co_return; }

 private:
  Store& store_;
  Executor& executor_;
  int calls_ = 0;
};

// A client takes the versions before and after for its own change. What a split has moved out of it
// may change in its new bucket, which the client must notice.
TEST_F(StoreRnic, ReservationTellsOfItsOwnChangeOfTheBucketAndNotOfASplit) {
  const HashIndex& index = s_.store().index().hash();
  for (uint64_t i = 0; index.size() < HashIndex::kLeastBuckets * HashIndex::kGrowAbove; ++i) {
    ASSERT_TRUE(reserve("k" + std::to_string(i)));
  }
  ASSERT_EQ(index.splits(), 0u);
  // The first bucket is the first one that splits.
  std::string key;
  for (int i = 0; key.empty(); ++i) {
    const std::string each = "of bucket 0: " + std::to_string(i);
    if (index.bucket_of(hash_key(s_.table(), each)) == 0) key = each;
  }
  const auto reserved = reserve(key);
  ASSERT_TRUE(reserved);
  ASSERT_EQ(index.splits(), 1u);
  EXPECT_EQ(reserved->bucket, 0u);
  EXPECT_EQ(reserved->bucket_version_after, reserved->bucket_version_before + 2);
  EXPECT_GT(index.version(0), reserved->bucket_version_after);
}

TEST_F(StoreRnic, SlotThatIsReleasedTwiceAtATimeIsFreedOnce) {
  SlowWords slow(s_.store(), executor_);
  const auto alice = reserve("alice");
  ASSERT_TRUE(alice);
  auto first = s_.store().release(slow, kOwner, SlotOffset{alice->slot});
  auto second = s_.store().release(slow, kOwner, SlotOffset{alice->slot});
  first.start();
  second.start();
  while (!first.done()) executor_.run_once();
  ASSERT_FALSE(second.done());
  constexpr uint16_t kAnother = 9;
  const auto bob = run(s_.store().reserve(words_, kAnother, s_.table(), "bob", 10, false));
  ASSERT_TRUE(bob) << bob.error().to_string();
  ASSERT_EQ(bob->slot, alice->slot);
  while (!second.done()) executor_.run_once();
  const auto carol = run(s_.store().reserve(words_, 4, s_.table(), "carol", 10, false));
  ASSERT_TRUE(carol) << carol.error().to_string();
  EXPECT_NE(carol->slot, bob->slot);
  ShardRedoBuilder builder(room_, StoreInRegion::kClient, s_.store().catalog().header().epoch);
  builder.add(SlotOffset{bob->slot}, s_.table(), bob->version + 1, RecordState::kLive, "bob", "5");
  ASSERT_TRUE(run(s_.store().apply(words_, kAnother, builder.finish())));
  const auto found = s_.get("bob");
  ASSERT_TRUE(found) << "an acknowledged insert of another client is lost";
  EXPECT_EQ(found->value, "5");
}

TEST_F(StoreRnic, OfARedoRecordThatIsMalformedNothingIsPutInPlace) {
  ASSERT_TRUE(s_.put("alice", "1"));
  const SlotOffset slot{s_.get("alice")->reply.slot};
  const uint64_t version = s_.get("alice")->reply.version;
  lock(slot);
  ShardRedoBuilder builder(room_, StoreInRegion::kClient, s_.store().catalog().header().epoch);
  builder.add(slot, s_.table(), version + 1, RecordState::kLive, "alice", "2");
  builder.add(SlotOffset{raw(slot) + 64}, s_.table(), 7, RecordState::kLive, "zed", "2");
  const auto entry = builder.finish();
  room_[entry.size() - 20] ^= std::byte{1};  // the second record fails its checksum
  const Status applied = run(s_.store().apply(words_, kOwner, entry));
  ASSERT_FALSE(applied);
  EXPECT_EQ(applied.code(), ErrorCode::kProtocol);
  EXPECT_TRUE(s_.store().words().load(slot).is_locked()) << "the first record is to be seen";
}

// Nobody has logged in an epoch that has not begun.
TEST_F(StoreRnic, RedoRecordOfALaterEpochIsNone) {
  ASSERT_TRUE(s_.put("alice", "1"));
  const SlotOffset slot{s_.get("alice")->reply.slot};
  const uint64_t version = s_.get("alice")->reply.version;
  lock(slot);
  const uint64_t epoch = s_.store().catalog().header().epoch;
  ShardRedoBuilder builder(room_, StoreInRegion::kClient, epoch + 1);
  builder.add(slot, s_.table(), version + 1, RecordState::kLive, "alice", "2");
  EXPECT_EQ(run(s_.store().apply(words_, kOwner, builder.finish())).code(), ErrorCode::kProtocol);
  EXPECT_EQ(s_.get("alice").code(), ErrorCode::kConflict) << "still locked";
}

TEST_F(StoreRnic, ReservedSlotIsAppliedOnce) {
  const auto reply = reserve("alice");
  ASSERT_TRUE(reply);
  const auto entry =
      redo(SlotOffset{reply->slot}, reply->version + 1, RecordState::kLive, "alice", "90");
  ASSERT_TRUE(run(s_.store().apply(words_, kOwner, entry)));
  ASSERT_TRUE(run(s_.store().apply(words_, kOwner, entry)));
  EXPECT_EQ(s_.get("alice")->value, "90");
  EXPECT_EQ(s_.store().live_records(), 1u);
}

TEST_F(StoreRnic, FreeSlotThatAClientHasLockedIsNeitherWrittenNorFreed) {
  ASSERT_TRUE(s_.put("alice", "1"));
  ASSERT_TRUE(s_.put("bob", "1"));
  const SlotOffset slot{s_.get("bob")->reply.slot};
  ASSERT_TRUE(s_.erase("bob"));
  const uint64_t version = s_.store().words().load(slot).version();
  for (const RecordState state : {RecordState::kTombstone, RecordState::kLive}) {
    lock(slot);
    const auto entry = redo(slot, version + 1, state, "mallory", {});
    ASSERT_TRUE(run(s_.store().apply(words_, kOwner, entry)));
    EXPECT_FALSE(s_.get("mallory")->found());
    s_.store().words().store(slot, LockWord::unlocked(version));
  }
  // It is handed out once.
  ASSERT_TRUE(s_.put("carol", "1"));
  ASSERT_TRUE(s_.put("dave", "1"));
  EXPECT_NE(s_.get("carol")->reply.slot, s_.get("dave")->reply.slot);
  EXPECT_EQ(s_.get("carol")->value, "1");
}

TEST_F(StoreRnic, SlotOfAnotherKeyIsNotWritten) {
  ASSERT_TRUE(s_.put("alice", "1"));
  const SlotOffset slot{s_.get("alice")->reply.slot};
  const uint64_t version = s_.get("alice")->reply.version;
  lock(slot);
  for (const RecordState state : {RecordState::kTombstone, RecordState::kLive}) {
    ASSERT_TRUE(
        run(s_.store().apply(words_, kOwner, redo(slot, version + 1, state, "mallory", {}))));
  }
  s_.store().words().store(slot, LockWord::unlocked(version));
  EXPECT_EQ(s_.get("alice")->value, "1");
  EXPECT_FALSE(s_.get("mallory")->found());
}

TEST_F(StoreRnic, WordOfAFreeSlotThatAClientHasLockedCostsTheSlotNotTheServer) {
  ASSERT_TRUE(s_.put("alice", "1"));
  words_.before = [this](SlotOffset slot) { lock(slot); };
  const auto refused = reserve("bob");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), ErrorCode::kConflict);
  words_.before = {};
  EXPECT_FALSE(s_.store().failed());
  EXPECT_FALSE(s_.get("bob")->found());
  const auto reply = reserve("bob");
  ASSERT_TRUE(reply) << reply.error().to_string();
  ASSERT_TRUE(run(s_.store().release(words_, kOwner, SlotOffset{reply->slot})));
  EXPECT_TRUE(s_.put("bob", "2"));
}

TEST_F(StoreRnic, OfAClientThatIsGoneTheLocksThatItAnnouncedAreFreedAndNoOthersAreLookedAt) {
  for (const char* key : {"alice", "bob", "carol"}) ASSERT_TRUE(s_.put(key, "1"));
  const auto slot_of = [&](const char* key) { return SlotOffset{s_.get(key)->reply.slot}; };
  const SlotOffset alice = slot_of("alice");
  const SlotOffset bob = slot_of("bob");
  const SlotOffset carol = slot_of("carol");
  lock(alice);
  lock(bob);
  const LockWord of_another = LockWord::locked(s_.store().words().load(carol).version(), 9);
  s_.store().words().store(carol, of_another);
  const SlotOffset beyond{s_.store().arena().slot_space_bytes()};
  const SlotOffset announced[] = {
      alice, alice, carol, beyond, SlotOffset{~uint64_t{63}}, SlotOffset{raw(bob) + 32}};
  ASSERT_TRUE(run(s_.store().resolve(words_, kOwner, s_.ring(), announced)));
  EXPECT_FALSE(s_.store().words().load(alice).is_locked());
  EXPECT_TRUE(s_.store().words().load(bob).is_locked()) << "the cost follows the list";
  EXPECT_EQ(s_.store().words().load(carol), of_another);
}

// An image larger than its slot, at the end of the memory: its lines are not all there.
TEST_F(StoreRnic, ImageThatDoesNotFitItsSlotIsNotFlushedEither) {
  ASSERT_TRUE(s_.put("alice", "1"));
  const SlotOffset slot{s_.get("alice")->reply.slot};
  log::Ring& ring = s_.ring();
  const auto entry = redo(slot, 9, RecordState::kLive, "alice", std::string(20 << 10, 'x'));
  ASSERT_TRUE(ring.append(1000, entry));
  const auto flushed = s_.pool().memory().stats().flushed_lines;
  ASSERT_TRUE(s_.store().truncate_through(ring, UINT64_MAX));
  EXPECT_LT(s_.pool().memory().stats().flushed_lines - flushed, 20u);
  EXPECT_EQ(s_.get("alice")->value, "1");
}

// The earlier owner of a ring knows its salt, may write anywhere in it, and can guess the
// incarnation of the next owner and the length of what that one logs first.
TEST_F(StoreRnic, WhatAClientHasForgedInItsRingIsNotTheNextClients) {
  ASSERT_TRUE(s_.put("alice", "1"));
  ASSERT_TRUE(s_.put("bob", "1"));
  log::Ring& ring = s_.ring();
  const uint64_t before = ring.position().tail_lsn;
  const GetReply bob = s_.get("bob")->reply;
  const auto bobs = [&](uint64_t version, const char* value) {
    return redo(SlotOffset{bob.slot}, version, RecordState::kLive, "bob", value);
  };
  ASSERT_TRUE(ring.append(1000, bobs(bob.version + 1, "2")));
  log::RingPosition forged = ring.position();
  forged.tail_lsn += forged.tail_lsn - before;
  forged.incarnation += 2;
  const GetReply alice = s_.get("alice")->reply;
  const auto payload =
      redo(SlotOffset{alice.slot}, alice.version + 1, RecordState::kLive, "alice", "stolen");
  std::vector<std::byte> entry(log::entry_room(payload.size()));
  std::copy(payload.begin(), payload.end(), entry.begin() + sizeof(log::EntryHeader));
  const log::PlannedEntry plan = log::plan_entry(forged, payload.size(), false).value();
  log::seal_entry(entry, plan, forged, payload.size(), uint64_t{1} << 40);
  std::byte* const data = s_.pool().memory().at(ring.data_offset());
  s_.pool().memory().store(data + plan.lsn % forged.data_bytes, entry.data(), plan.bytes);

  ASSERT_TRUE(s_.store().take_ring(0, 99, 0, 0));
  ASSERT_EQ(ring.position().incarnation, forged.incarnation) << "guessed";
  ASSERT_TRUE(ring.append(uint64_t{forged.incarnation} << 32, bobs(bob.version + 2, "3")));
  ASSERT_EQ(ring.position().tail_lsn, plan.lsn) << "guessed";
  s_.reopen();
  EXPECT_EQ(s_.get("bob")->value, "3");
  EXPECT_EQ(s_.get("alice")->value, "1");
}

// The first swap is lost, and has had no effect.
class WordsThatFailOnce final : public WordChanger {
 public:
  explicit WordsThatFailOnce(Words& words) : words_(words) {}
  base::Task<Result<bool>> compare_swap(SlotOffset slot, LockWord expected,
                                        LockWord desired) override {
    if (!std::exchange(failed_, true)) co_return make_error(ErrorCode::kDisconnected, "loopback");
    co_return co_await words_.compare_swap(slot, expected, desired);
  }
  base::Task<void> pause() override { co_return; }

 private:
  Words& words_;
  bool failed_ = false;
};

TEST_F(StoreRnic, EraseThatIsNotUnlockedYetIsFinishedThoughAnotherClientWasResolved) {
  ASSERT_TRUE(s_.put("alice", "1"));
  const GetReply alice = s_.get("alice")->reply;
  const uint64_t used = s_.store().arena().used_slots();
  const SlotOffset slot{alice.slot};
  lock(slot);
  const auto entry = redo(slot, alice.version + 1, RecordState::kTombstone, "alice", {});
  WordsThatFailOnce fails(words_);
  ASSERT_FALSE(run(s_.store().apply(fails, kOwner, entry)));
  constexpr uint16_t kAnother = 9;
  ASSERT_TRUE(run(s_.store().resolve(words_, kAnother, s_.ring(), {})));
  ASSERT_TRUE(run(s_.store().apply(fails, kOwner, entry)));
  EXPECT_EQ(s_.store().words().load(slot), LockWord::unlocked(alice.version + 1));
  EXPECT_EQ(s_.store().arena().used_slots(), used - 1);
}

// The words of a slab's new slots may never have been used; what the chunk held before was newer.
TEST_F(StoreRnic, InsertIntoAChunkThatHeldNewerRecordsIsThereAfterARestart) {
  ASSERT_TRUE(s_.put("first of its slab", "1"));
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(s_.put("newer", "1"));
  for (int i = 0; s_.store().arena().free_chunks() > 0; ++i) {
    ASSERT_TRUE(s_.put("filler" + std::to_string(i), std::string(20'000, 'f')));
  }
  const GetReply first = s_.get("first of its slab")->reply;
  const GetReply newer = s_.get("newer")->reply;
  ASSERT_TRUE(s_.erase("first of its slab"));
  ASSERT_TRUE(s_.erase("newer"));
  const std::string value(1000, 'v');
  const auto reserved = run(s_.store().reserve(words_, kOwner, s_.table(), "alice", 1000, false));
  ASSERT_TRUE(reserved) << reserved.error().to_string();
  ASSERT_EQ(reserved->slot, first.slot) << "another size in the same place";
  EXPECT_GT(reserved->version, newer.version);
  ASSERT_TRUE(run(s_.store().apply(words_, kOwner,
                                   redo(SlotOffset{reserved->slot}, reserved->version + 1,
                                        RecordState::kLive, "alice", value))));
  s_.reopen();
  EXPECT_EQ(s_.get("alice")->value, value);
}

// What a client has written into its ring when the server dies.
void land(StoreInRegion& s, std::span<const std::byte> redo) {
  std::vector<std::byte> entry(log::entry_room(redo.size()));
  std::memcpy(entry.data() + sizeof(log::EntryHeader), redo.data(), redo.size());
  const log::RingPosition& position = s.ring().position();
  const log::PlannedEntry plan = log::plan_entry(position, redo.size(), true).value();
  log::seal_entry(entry, plan, position, redo.size(), 1000);
  std::byte* const to = s.pool().memory().at(s.ring().data_offset() + plan.at);
  s.pool().memory().store(to, entry.data(), plan.bytes);
}

// After it, the next start has nothing to put in place.
TEST_F(StoreRnic, WhatAnOrderlyEndLeavesInTheRingsIsDurableInPlace) {
  // An insert, so that the shard's log says nothing of the slot.
  const auto alice = reserve("alice");
  ASSERT_TRUE(alice);
  const auto entry =
      redo(SlotOffset{alice->slot}, alice->version + 1, RecordState::kLive, "alice", "2");
  land(s_, entry);
  ASSERT_TRUE(s_.ring().walk([](const log::EntryView&) {}));  // its client has told its tail
  crash::CrashRecorder recorder(s_.pool().memory());          // what was stored before is durable
  ASSERT_TRUE(run(s_.store().apply(words_, kOwner, entry)));
  ASSERT_TRUE(s_.store().close());
  crash::CrashSearch search;
  const auto complaint = search.run(
      recorder.take(), [&](crash::CrashImage& image, size_t) -> std::optional<std::string> {
        auto pool =
            persist::Pool::in_region(image.bytes(), persist::Domain::kMemoryController, false);
        if (!pool) return pool.error().to_string();
        image.watch((*pool)->memory());
        const auto catalog = TableCatalog::load(**pool);
        if (!catalog) return catalog.error().to_string();
        const bool in_order = catalog->header().clean != 0;
        auto store = Store::open(**pool);
        if (!store) return store.error().to_string();
        // What the rings still had to put in place refuses the checkpoint; the start that reads all
        // records instead finds it done.
        const std::string& refused = (*store)->recovery().checkpoint_refused;
        if (in_order && !refused.empty()) return "not in place: " + refused;
        const auto found = get_from(**store, s_.table(), "alice");
        if (!found || !found->found()) return "the record is gone";
        if (found->value != "2") return "another value";
        return std::nullopt;
      });
  EXPECT_FALSE(complaint) << *complaint;
}

// Marks are the server's, in its own log.
TEST_F(StoreRnic, OfARingWithMarksNothingIsPutInPlace) {
  ASSERT_TRUE(s_.put("alice", "1"));
  const uint64_t epoch = s_.store().catalog().header().epoch;
  const auto mark = encode_mark({0, 1, {}}, epoch);
  EXPECT_EQ(run(s_.store().apply(words_, kOwner, mark)).code(), ErrorCode::kProtocol);
  land(s_, mark);
  ASSERT_TRUE(run(s_.store().resolve(words_, kOwner, s_.ring(), {})));
  ASSERT_TRUE(s_.store().truncate_through(s_.ring(), UINT64_MAX));
  land(s_, mark);
  s_.reopen();
  EXPECT_EQ(s_.store().recovery().foreign_entries, 1u);
  EXPECT_EQ(s_.get("alice")->value, "1");
}

TEST_F(StoreRnic, RedoRecordWithAVersionThatNoLockWordShowsIsRefused) {
  uint64_t logged = 0;  // and never truncated
  for (const uint64_t version : {uint64_t{1} << 48, (uint64_t{1} << 48) + 7, UINT64_MAX}) {
    ASSERT_TRUE(s_.put("alice", "1"));
    const SlotOffset slot{s_.get("alice")->reply.slot};
    const LockWord word = s_.store().words().load(slot);
    lock(slot);
    const auto forged = redo(slot, version, RecordState::kLive, "alice", "forged");
    Words words(s_.store());
    EXPECT_EQ(run(s_.store().apply(words, kOwner, forged)).code(), ErrorCode::kProtocol);
    s_.store().words().store(slot, word);
    land(s_, forged);
    s_.reopen();
    EXPECT_EQ(s_.store().recovery().foreign_entries, ++logged);
    EXPECT_EQ(s_.get("alice")->value, "1");
    ASSERT_TRUE(s_.put("alice", "2"));
    s_.reopen();
    EXPECT_EQ(s_.get("alice")->value, "2")
        << "an acknowledged commit is older than what was forged";
  }
}

TEST_F(StoreRnic, RecordWithTheHighestVersionIsReadAndNotWritten) {
  ASSERT_TRUE(s_.put("alice", "1"));
  const SlotOffset slot{s_.get("alice")->reply.slot};
  land(s_, redo(slot, kMaxRecordVersion, RecordState::kLive, "alice", "forged"));
  s_.reopen();
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(s_.get("alice")->value, "forged");
    EXPECT_EQ(s_.put("alice", "2").code(), ErrorCode::kFull);
    EXPECT_EQ(s_.put("alice", std::string(1000, 'v')).code(), ErrorCode::kFull) << "it would move";
    EXPECT_EQ(s_.erase("alice").code(), ErrorCode::kFull);
    EXPECT_EQ(s_.store().words().load(slot), LockWord::unlocked(kMaxRecordVersion));
    s_.reopen();
  }
}

TEST_F(StoreRnic, SlotWithTheHighestVersionIsNotUsedAgain) {
  ASSERT_TRUE(s_.put("alice", "1"));
  const SlotOffset slot{s_.get("alice")->reply.slot};
  land(s_, redo(slot, kMaxRecordVersion, RecordState::kTombstone, "alice", {}));
  for (const bool by_client : {false, true}) {
    s_.reopen();
    Words words(s_.store());
    const auto insert = [&]() -> Result<SlotOffset> {
      if (by_client) {
        PMSTORE_TRY(const ReserveReply reserved,
                    run(s_.store().reserve(words, kOwner, s_.table(), "bob", 10, false)));
        return SlotOffset{reserved.slot};
      }
      PMSTORE_TRY_STATUS(s_.put("bob", "1"));
      return SlotOffset{s_.get("bob")->reply.slot};
    };
    EXPECT_EQ(insert().code(), ErrorCode::kFull);
    const auto other = insert();
    ASSERT_TRUE(other) << other.error().to_string();
    EXPECT_NE(*other, slot);
    if (!by_client) {
      ASSERT_TRUE(s_.erase("bob"));
    }
  }
}

}  // namespace
}  // namespace pmstore::internal
