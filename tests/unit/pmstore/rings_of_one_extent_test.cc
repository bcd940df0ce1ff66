// Lock discipline rnic: redo rings share an extent, which stays as long as one has an owner.
#include <algorithm>
#include <cstring>
#include <memory>

#include "persist/zero_ahead.h"
#include "tests/unit/persist/scratch.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore {
namespace {

// Four rings in two extents of a file, whose free space had other data.
class RingsOfOneExtent : public testing::ServerFixture {
 protected:
  RingsOfOneExtent() { server_options_.discipline = LockDiscipline::kRnic; }
  void SetUp() override {
    format_.rings = 4;
    format_.ring_bytes = 3 << 20;
    persist::PoolOpenOptions options;
    options.assume_domain = persist::Domain::kMemoryController;
    pool_ =
        persist::Pool::create(scratch_.path("pool"), 3 * persist::kMinPoolBytes, options).value();
    ASSERT_TRUE(format_store(*pool_, format_));
    const uint64_t most = pool_->largest_free_extent();
    const auto used = pool_->allocate_extent(persist::ExtentKind::kLog, most).value();
    std::memset(pool_->memory().at(used.offset), 7, used.bytes);
    ASSERT_TRUE(pool_->free_extent(used));
    start();
  }
  void TearDown() override {
    ServerFixture::TearDown();
    server_.reset();
    pool_.reset();
  }
  size_t extents() const {
    const auto& all = pool_->info().extents;
    return static_cast<size_t>(std::count_if(all.begin(), all.end(), [](const auto& extent) {
      return extent.kind == persist::ExtentKind::kRings;
    }));
  }

  persist::Scratch scratch_;
};

TEST_F(RingsOfOneExtent, ARingThatBecomesFreeWhileSpaceIsZeroedForAnotherIsTaken) {
  auto stays = connect();
  auto goes = connect();
  auto comes = connect();
  const TableId table = *run(stays->open_table("t", true));
  ASSERT_TRUE(run(stays->put(table, "a", "value")));
  ASSERT_TRUE(run(goes->put(table, "b", "value")));
  ASSERT_EQ(extents(), 1u);
  Task<Status> put = comes->put(table, "c", "value");
  put.start();
  constexpr int kFewerTurnsThanParts = 8;
  for (int turn = 0; turn < kFewerTurnsThanParts; ++turn) executor_.run_once();
  ASSERT_FALSE(put.done());
  run(goes->close());
  EXPECT_TRUE(finish(std::move(put)));
  EXPECT_EQ(extents(), 1u) << "the one that became free";
  run(comes->close());
  run(stays->close());
}

}  // namespace
}  // namespace pmstore
