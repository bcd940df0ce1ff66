#include "fs/local_data_space.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tests/unit/fs/data/area_pool.h"
#include "tests/unit/persist/scratch.h"

namespace pmstore::fs {
namespace {

using base::Task;

class LocalDataSpaceTest : public testing::TestWithParam<persist::Domain> {
 protected:
  LocalDataSpaceTest() : pool_(GetParam()) { start(); }
  void start() {
    space_.reset();
    pool_.reopen();
    space_.emplace(executor_, FileArea::open(pool_.pool()).value());
  }
  template <typename T>
  T run(Task<T> task) {
    return executor_.run(std::move(task));
  }
  AreaRange allocate(uint64_t units) {
    const auto range = space_->allocate(0, units * kUnitBytes, units * kUnitBytes);
    EXPECT_TRUE(range) << range.error().to_string();
    return range.value();
  }
  std::vector<std::byte> read(const AreaRange& range) {
    std::vector<std::byte> bytes(range.bytes);
    EXPECT_TRUE(run(space_->read(range, bytes)));
    return bytes;
  }
  static std::vector<std::byte> some(size_t bytes) {
    std::vector<std::byte> made(bytes);
    for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(1 + i % 251);
    return made;
  }
  static bool is_zero(const std::vector<std::byte>& bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
  }

  AreaPool pool_;
  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  std::optional<LocalDataSpace> space_;
};

INSTANTIATE_TEST_SUITE_P(Domains, LocalDataSpaceTest,
                         testing::Values(persist::Domain::kNone, persist::Domain::kMemoryController,
                                         persist::Domain::kCpuCache),
                         [](const auto& tested) {
                           return std::string(persist::domain_name(tested.param));
                         });

TEST_P(LocalDataSpaceTest, WhatIsAllocatedIsContiguousAndCounted) {
  const uint64_t all = space_->total_bytes();
  EXPECT_EQ(space_->free_bytes(), all);
  const AreaRange range = allocate(5);
  EXPECT_EQ(range.bytes, 5 * kUnitBytes);
  EXPECT_EQ(space_->free_bytes(), all - 5 * kUnitBytes);
  space_->give_back(range);
  EXPECT_EQ(space_->free_bytes(), all);
}

TEST_P(LocalDataSpaceTest, AFullAreaSaysWhatIsFree) {
  allocate(space_->total_bytes() / kUnitBytes - 1);
  const auto full = space_->allocate(0, 2 * kUnitBytes, 2 * kUnitBytes);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.code(), ErrorCode::kFull);
  EXPECT_NE(full.error().message.find("65536 bytes are free in all"), std::string::npos)
      << full.error().message;
}

TEST_P(LocalDataSpaceTest, ClaimsThatMeetOrLeadOutsideAreDamage) {
  EXPECT_TRUE(space_->claim({0, 4 * kUnitBytes, 4 * kUnitBytes}));
  EXPECT_EQ(space_->claim({0, 7 * kUnitBytes, 2 * kUnitBytes}).code(), ErrorCode::kDamaged);
  EXPECT_EQ(space_->claim({1, 0, kUnitBytes}).code(), ErrorCode::kDamaged);
  EXPECT_EQ(space_->claim({0, space_->total_bytes(), kUnitBytes}).code(), ErrorCode::kDamaged);
  EXPECT_EQ(space_->claim({0, kUnitBytes, UINT64_MAX - kUnitBytes + 1}).code(),
            ErrorCode::kDamaged);
  EXPECT_EQ(space_->claim({0, 100, kUnitBytes}).code(), ErrorCode::kDamaged);
  EXPECT_EQ(space_->claim({0, 0, 0}).code(), ErrorCode::kDamaged);
  EXPECT_TRUE(space_->claim({0, 0, 4 * kUnitBytes}));
}

TEST_P(LocalDataSpaceTest, AtAStartAllIsFreeThatNobodyClaims) {
  const AreaRange range = allocate(3);
  start();
  EXPECT_EQ(space_->free_bytes(), space_->total_bytes());
  EXPECT_TRUE(space_->claim(range));
  EXPECT_EQ(allocate(1).offset, range.offset + range.bytes);
}

TEST_P(LocalDataSpaceTest, BytesOfAnyAlignmentAreThereAfterAStart) {
  const AreaRange whole = allocate(6);
  const AreaRange part{0, whole.offset + 77, 4 * kUnitBytes + 13};  // several turns
  EXPECT_TRUE(run(space_->write(part, some(part.bytes))));
  start();
  EXPECT_TRUE(space_->claim(whole));
  EXPECT_EQ(read(part), some(part.bytes));
  EXPECT_TRUE(is_zero(read({0, whole.offset, 77})));
  EXPECT_TRUE(run(space_->zero({0, part.offset, 5 * kUnitBytes})));
  EXPECT_TRUE(is_zero(read(whole)));
}

TEST_P(LocalDataSpaceTest, LargeWorkGivesWay) {
  const AreaRange range = allocate(20);
  auto zeroing = space_->zero(range);
  zeroing.start();
  EXPECT_FALSE(zeroing.done());
  run([](base::Executor& executor) -> Task<void> { co_await executor.yield(); }(executor_));
  EXPECT_FALSE(zeroing.done()) << "others have had a turn meanwhile";
  while (!zeroing.done()) executor_.run_once();
  EXPECT_TRUE(zeroing.take());
}

TEST_P(LocalDataSpaceTest, AWordChangesForItsRangeAndNoOther) {
  const AreaRange one = allocate(2);
  const AreaRange other = allocate(2);
  const uint64_t before = space_->generation(one);
  const uint64_t others = space_->generation(other);
  EXPECT_TRUE(run(space_->change_generations({one})));
  EXPECT_NE(space_->generation(one), before);
  EXPECT_EQ(space_->generation(other), others);
}

TEST_P(LocalDataSpaceTest, NoStartHasAWordOfAnEarlierOne) {
  std::vector<uint64_t> seen;
  for (int i = 0; i < 4; ++i) {
    const AreaRange range = allocate(1);
    for (int change = 0; change < 3; ++change) {
      seen.push_back(space_->generation(range));
      EXPECT_TRUE(run(space_->change_generations({range})));
    }
    start();
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
}

// ---- quarantine ----

class TestGate final : public QuarantineGate {
 public:
  explicit TestGate(base::Executor& executor) : opened_(executor) {}
  Task<Status> closed(AreaRange range) override {
    asked = range;
    while (!is_closed) co_await opened_.wait();
    co_return refusal;
  }
  void close() {
    is_closed = true;
    opened_.notify_all();
  }
  AreaRange asked;
  bool is_closed = false;
  Status refusal;

 private:
  base::WaitList opened_;
};

TEST_P(LocalDataSpaceTest, ARangeIsZeroedWhenNobodyCanWriteToItAnyMore) {
  TestGate gate(executor_);
  space_->set_gate(gate);
  const AreaRange range = allocate(2);
  EXPECT_TRUE(run(space_->write(range, some(range.bytes))));
  auto cleaning = space_->clean(range);
  cleaning.start();
  EXPECT_EQ(gate.asked, range);
  for (int i = 0; i < 100; ++i) executor_.run_once();
  EXPECT_FALSE(cleaning.done());
  // What a client with an old map still writes.
  EXPECT_TRUE(run(space_->write({0, range.offset + 5, 100}, some(100))));
  gate.close();
  while (!cleaning.done()) executor_.run_once();
  EXPECT_TRUE(cleaning.take());
  EXPECT_TRUE(is_zero(read(range)));
  const uint64_t before = space_->free_bytes();
  space_->release(range);
  EXPECT_EQ(space_->free_bytes(), before + range.bytes);
}

TEST_P(LocalDataSpaceTest, AGateThatGivesUpLeavesTheRangeAsItIs) {
  TestGate gate(executor_);
  gate.refusal = make_error(ErrorCode::kDisconnected, "stops");
  gate.close();
  space_->set_gate(gate);
  const AreaRange range = allocate(1);
  EXPECT_TRUE(run(space_->write(range, some(range.bytes))));
  EXPECT_EQ(run(space_->clean(range)).code(), ErrorCode::kDisconnected);
  EXPECT_EQ(read(range), some(range.bytes));
}

// A session may WRITE every unit: one that lies to the gate costs others nothing.
TEST_P(LocalDataSpaceTest, WhatIsWrittenBehindTheGateIsZeroedAgain) {
  TestGate gate(executor_);
  gate.close();
  space_->set_gate(gate);
  const AreaRange range = allocate(2);
  EXPECT_TRUE(run(space_->clean(range)));
  EXPECT_TRUE(run(space_->write(range, some(range.bytes))));
  space_->release(range);
  const AreaRange again = allocate(2);
  EXPECT_EQ(again, range);
  EXPECT_TRUE(is_zero(read(again)));
}

TEST_P(LocalDataSpaceTest, WhoWaitsMayBeDestroyed) {
  TestGate gate(executor_);
  space_->set_gate(gate);
  const AreaRange range = allocate(8);
  EXPECT_TRUE(run(space_->write(range, some(range.bytes))));
  {
    auto cleaning = space_->clean(range);
    cleaning.start();
  }
  {
    auto zeroing = space_->zero(range);
    zeroing.start();
    EXPECT_FALSE(zeroing.done());
  }
  const std::vector<std::byte> bytes(range.bytes);
  {
    auto writing = space_->write(range, bytes);
    writing.start();
    EXPECT_FALSE(writing.done());
  }
  gate.close();
  for (int i = 0; i < 10; ++i) executor_.run_once();
  EXPECT_TRUE(run(space_->clean(range)));
  EXPECT_TRUE(is_zero(read(range)));
}

// ---- a file with holes ----

class SparseSpaceTest : public testing::Test {
 protected:
  static constexpr uint64_t kAreaBytes = 200 << 20;
  SparseSpaceTest() {
    persist::PoolOpenOptions with;
    with.assume_domain = persist::Domain::kMemoryController;
    with.sparse = true;
    const auto fill = [](persist::Pool& pool) -> Status {
      PMSTORE_TRY_STATUS(pool.allocate_extent(persist::ExtentKind::kFileData, kAreaBytes));
      return FileArea::format(pool, kTestIdentity);
    };
    pool_ = persist::Pool::create(path_, kAreaBytes + (32 << 20), with, false, fill).value();
    space_.emplace(executor_, FileArea::open(*pool_).value());
  }
  uint64_t block_bytes() const {
    struct stat found {};
    EXPECT_EQ(::stat(path_.c_str(), &found), 0);
    return static_cast<uint64_t>(found.st_blocks) * 512;
  }

  persist::Scratch scratch_;
  std::string path_ = scratch_.path("pool");
  std::unique_ptr<persist::Pool> pool_;
  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  std::optional<LocalDataSpace> space_;
};

TEST_F(SparseSpaceTest, CleaningTakesNoBlocksForHoles) {
  const uint64_t all = space_->total_bytes();
  const AreaRange first = space_->allocate(0, 100 << 20, 100 << 20).value();
  const AreaRange written{0, first.offset + (70 << 20) + 12345, 3 * kUnitBytes};
  const std::vector<std::byte> old(written.bytes, std::byte{'o'});
  EXPECT_TRUE(executor_.run(space_->write(written, old)));
  space_.emplace(executor_, FileArea::open(*pool_).value());
  const uint64_t before = block_bytes();
  std::vector<AreaRange> ranges;
  while (const auto range = space_->take_unclean(0)) ranges.push_back(*range);
  EXPECT_EQ(space_->free_bytes(), 0u);
  for (const AreaRange& range : ranges) {
    EXPECT_LE(range.bytes, DataSpace::kMostUncleanBytes) << "a part of it is free soon";
    EXPECT_TRUE(executor_.run(space_->clean(range)));
    space_->release(range);
  }
  EXPECT_EQ(space_->free_bytes(), all);
  EXPECT_LE(block_bytes(), before + kUnitBytes);
  const AreaRange again = space_->allocate(0, all, all).value();
  std::vector<std::byte> bytes(written.bytes + 2 * kUnitBytes);
  const AreaRange around{0, written.offset - kUnitBytes, bytes.size()};
  EXPECT_TRUE(executor_.run(space_->read(around, bytes)));
  EXPECT_EQ(again.bytes, all);
  EXPECT_EQ(std::count(bytes.begin(), bytes.end(), std::byte{0}),
            static_cast<ptrdiff_t>(bytes.size()));
}

using LocalDataSpaceDeathTest = LocalDataSpaceTest;
INSTANTIATE_TEST_SUITE_P(Domains, LocalDataSpaceDeathTest, testing::Values(persist::Domain::kNone));

TEST_P(LocalDataSpaceDeathTest, FreeUnitsStayZero) {
  const AreaRange range = allocate(1);
  const AreaRange free{0, range.offset + range.bytes, kUnitBytes};
  const std::vector<std::byte> bytes(kUnitBytes);
  EXPECT_DEATH((void)run(space_->write(free, bytes)), "a free unit is zero");
  EXPECT_DEATH((void)run(space_->write({0, range.offset + 1, kUnitBytes}, bytes)),
               "a free unit is zero");
  EXPECT_DEATH((void)run(space_->change_generations({free})), "a free unit is zero");
  const std::vector<std::byte> data(kUnitBytes, std::byte{1});
  EXPECT_TRUE(run(space_->write(range, data)));
  EXPECT_DEATH(space_->release(range), "a unit that is free is zero");
}

}  // namespace
}  // namespace pmstore::fs
