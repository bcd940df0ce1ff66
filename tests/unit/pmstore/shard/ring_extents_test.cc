// Rings of clients that are made when they are needed, and given back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "log/ring_layout.h"
#include "pmstore/check.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

// A store without any session.
class RingExtents : public ::testing::Test {
 protected:
  void SetUp() override { make(4); }
  void make(uint32_t rings) {
    store_.reset();
    pool_.reset();
    region_ = crash::PageBytes(8 << 20);
    pool_ = std::move(*persist::Pool::in_region(region_.bytes(), kDomain, true));
    ASSERT_TRUE(format_store(*pool_, {rings, kRingBytes, 0, 0}));
    open();
  }
  void open() {
    auto opened = Store::open(*pool_);
    ASSERT_TRUE(opened) << opened.error().to_string();
    store_ = std::move(*opened);
  }
  // As after an end of the process.
  void restart() {
    store_.reset();
    pool_ = std::move(*persist::Pool::in_region(region_.bytes(), kDomain, false));
    open();
  }
  size_t extents() const {
    const auto& all = pool_->info().extents;
    return static_cast<size_t>(std::count_if(all.begin(), all.end(), [](const auto& extent) {
      return extent.kind == persist::ExtentKind::kRings;
    }));
  }
  uint32_t ring_of(uint64_t client) {
    const uint32_t index = store_->make_ring().value();
    EXPECT_TRUE(store_->take_ring(index, client, 0, 0));
    return index;
  }
  // From here on nobody owns the ring.
  void leave(uint32_t index) {
    ASSERT_TRUE(store_->take_ring(index, {}, 0, 0));
    ASSERT_TRUE(store_->give_back_ring(index));
  }

  static constexpr uint64_t kOne = 5;
  static constexpr uint64_t kNext = 6;
  static constexpr uint64_t kRingBytes = 64 << 10;
  static constexpr persist::Domain kDomain = persist::Domain::kMemoryController;
  crash::PageBytes region_{8 << 20};
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<Store> store_;
};

TEST_F(RingExtents, AreMadeWhenNeededAndGivenBackWhenNobodyOwnsThem) {
  EXPECT_EQ(store_->rings().count(), 0u);
  EXPECT_EQ(extents(), 0u);
  const uint64_t room = pool_->largest_free_extent();
  const uint32_t first = ring_of(kOne);
  const uint32_t second = ring_of(kNext);
  EXPECT_NE(first, second);
  EXPECT_EQ(extents(), 2u);
  leave(first);
  EXPECT_FALSE(store_->rings().has(first));
  EXPECT_TRUE(store_->rings().has(second));
  leave(second);
  EXPECT_EQ(extents(), 0u);
  EXPECT_EQ(pool_->largest_free_extent(), room);
}

TEST_F(RingExtents, AreNoMoreThanThePoolWasMadeFor) {
  for (uint64_t client = 1; client <= 4; ++client) ring_of(client);
  const auto one_more = store_->make_ring();
  ASSERT_EQ(one_more.code(), ErrorCode::kFull);
  EXPECT_NE(one_more.error().message.find("--rings"), std::string::npos)
      << one_more.error().message;
  restart();
  EXPECT_EQ(store_->rings().count(), 4u);
  EXPECT_EQ(store_->make_ring().code(), ErrorCode::kFull);
}

TEST_F(RingExtents, HaveRoomThatNothingElseOfThePoolTakes) {
  for (const uint32_t rings : {1u, 3u, 33u, 64u}) {
    make(rings);
    while (store_->rings().count() < rings) ring_of(kOne + store_->rings().count());
    EXPECT_LE(extents(), 32u);
  }
}

TEST_F(RingExtents, StayWhileOneOfTheirRingsHasAnOwner) {
  make(64);  // two in an extent
  const uint32_t first = ring_of(kOne);
  ASSERT_EQ(extents(), 1u);
  const uint32_t second = first + 1;
  ASSERT_TRUE(store_->take_ring(second, kNext, 0, 0));
  leave(first);
  EXPECT_TRUE(store_->rings().has(first));
  leave(second);
  EXPECT_FALSE(store_->rings().has(first));
  EXPECT_EQ(extents(), 0u);
}

TEST_F(RingExtents, WithoutAnOwnerAreGoneAfterARestart) {
  const uint32_t owned = ring_of(kOne);
  ASSERT_TRUE(store_->make_ring());  // the process ends before anybody takes it
  restart();
  EXPECT_EQ(extents(), 1u);
  ASSERT_EQ(store_->rings().count(), 1u);
  EXPECT_EQ(store_->rings().at(owned).owner(), kOne);
  // And one that was left, but not given back.
  ASSERT_TRUE(store_->take_ring(owned, {}, 0, 0));
  restart();
  EXPECT_EQ(extents(), 0u);
  EXPECT_EQ(store_->rings().count(), 0u);
}

// The space of a new ring is zeroed ahead, in parts, and not a second time.
TEST_F(RingExtents, ANewRingIsZeroedOnce) {
  make(1);
  leave(ring_of(kOne));
  const auto step = [&] { return store_->zero_ahead_of_rings(16 << 10).value(); };
  int steps = 1;
  while (step()) ++steps;
  EXPECT_EQ(steps, static_cast<int>(kRingBytes / (16 << 10)));
  EXPECT_EQ(extents(), 0u);
  const persist::Memory& memory = pool_->memory();
  const uint64_t before = memory.stats().flushed_lines;
  const uint32_t index = store_->make_ring().value();
  ASSERT_TRUE(store_->take_ring(index, kOne, 0, 0));
  EXPECT_LT(memory.stats().flushed_lines - before, kRingBytes / persist::kLineBytes / 2);
  EXPECT_FALSE(step()) << "there is no further ring";
  // That of another client, which may have written to it.
  const uint64_t taken = memory.stats().flushed_lines;
  ASSERT_TRUE(store_->take_ring(index, kNext, 0, 0));
  EXPECT_GE(memory.stats().flushed_lines - taken, kRingBytes / persist::kLineBytes - 16);
}

// The memory is that of the client before, with whatever it has written there.
TEST_F(RingExtents, TheNextOwnerFindsNothingOfTheClientBefore) {
  make(1);  // so that its entry in the table of extents is used again
  const uint32_t ring = ring_of(kOne);
  const uint64_t offset = store_->rings().at(ring).offset();
  const uint32_t salt = store_->rings().at(ring).position().salt;
  const uint64_t session = store_->session_sequence(ring);
  std::memset(pool_->memory().at(store_->rings().at(ring).data_offset()), 0x5a, kRingBytes / 2);
  leave(ring);
  const uint32_t next = ring_of(kNext);
  const log::Ring& taken = store_->rings().at(next);
  ASSERT_EQ(taken.offset(), offset) << "the test needs the same memory";
  EXPECT_NE(taken.position().salt, salt);
  EXPECT_GT(store_->session_sequence(next), session);
  const auto data =
      pool_->memory().mapping().subspan(taken.data_offset(), taken.position().data_bytes);
  EXPECT_TRUE(std::all_of(data.begin(), data.end(), [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(store_->outcome({kOne, session}, false, 0).code(), ErrorCode::kOutcomeExpired);
}

// Nothing but the catalog remembers the numbers of sessions whose rings are gone.
TEST_F(RingExtents, NumbersOfSessionsAreNotUsedAgainWhenTheirRingsAreGone) {
  const uint32_t ring = ring_of(kOne);
  const uint64_t first = store_->session_sequence(ring);
  leave(ring);
  restart();
  EXPECT_GT(store_->session_sequence(ring_of(kOne)), first);
}

TEST_F(RingExtents, WithADamagedRingAreRefused) {
  const uint64_t offset = store_->rings().at(ring_of(kOne)).offset();
  store_.reset();
  ASSERT_TRUE(check_startable(*pool_));
  std::memset(pool_->memory().at(offset), 0x5a, 2 * log::kRingHeaderCopyStride);
  EXPECT_EQ(check_startable(*pool_).code(), ErrorCode::kBadPool);
  EXPECT_EQ(Store::open(*pool_).code(), ErrorCode::kBadPool);
}

TEST_F(RingExtents, OfAnotherSizeThanTheCatalogSaysAreDamage) {
  ASSERT_TRUE(pool_->allocate_extent(persist::ExtentKind::kRings, kRingBytes + 256));
  store_.reset();
  const auto refused = Store::open(*pool_);
  EXPECT_EQ(refused.code(), ErrorCode::kBadPool);
}

}  // namespace
}  // namespace pmstore::internal
