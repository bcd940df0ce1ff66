// The regions of memory that grows, as a server gives them out.
#include "pmstore/server/region_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "fabric/device.h"
#include "pmstore/server/pinned_memory.h"

namespace pmstore::internal {
namespace {

class RegionTableTest : public ::testing::Test {
 protected:
  static constexpr size_t kPieceBytes = 4096;

  void SetUp() override {
    memory_.resize(kPieceBytes * 200);
    table_.add(RegionKind::kBuckets, {fabric::Access::kRemoteRead, [&] { return end_; },
                                      [&](uint32_t number) {
                                        if (number == gap_) return std::span<std::byte>();
                                        return std::span(memory_).subspan(number * kPieceBytes,
                                                                          kPieceBytes);
                                      }});
  }
  void provide_from(uint32_t first) {
    executor_.run(table_.provide_from(RegionKind::kBuckets, first));
  }
  std::vector<NumberedRegion> answer(uint32_t first, size_t room_bytes = 4096) {
    std::vector<std::byte> room(room_bytes);
    const auto bytes = table_.answer(RegionKind::kBuckets, first, room);
    EXPECT_TRUE(bytes);
    MessageReader reader(std::span<const std::byte>(room).first(*bytes));
    const auto reply = reader.get<RegionsReply>();
    std::vector<NumberedRegion> regions;
    for (uint32_t i = 0; i < reply.count; ++i) regions.push_back(reader.get<NumberedRegion>());
    EXPECT_TRUE(reader.complete());
    return regions;
  }

  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  std::unique_ptr<fabric::Device> device_ = *fabric::open_device(fabric::Scheme::kLocal, executor_);
  std::vector<std::byte> memory_;
  uint32_t end_ = 5;
  uint32_t gap_ = 1000;
  RegionTable table_{executor_, *device_};
};

TEST_F(RegionTableTest, PieceHasItsRegionFromTheFirstQuestionOn) {
  EXPECT_EQ(answer(0).size(), 0u);
  provide_from(3);
  EXPECT_EQ(table_.registered(), 2u) << "those in front were not asked for";
  const auto regions = answer(3);
  ASSERT_EQ(regions.size(), 2u);
  EXPECT_EQ(regions[0].number, 3u);
  EXPECT_EQ(regions[1].number, 4u);
  EXPECT_EQ(regions[0].region.bytes, kPieceBytes);
  provide_from(0);
  EXPECT_EQ(table_.registered(), 5u);
  EXPECT_EQ(answer(3)[0].region.address, regions[0].region.address) << "it is registered once";
  end_ = 6;
  provide_from(0);
  EXPECT_EQ(answer(0).size(), 6u);
}

TEST_F(RegionTableTest, NumberWithoutMemoryIsLeftOut) {
  gap_ = 2;
  provide_from(1);
  const auto regions = answer(1);
  ASSERT_EQ(regions.size(), 3u);
  EXPECT_EQ(regions[0].number, 1u);
  EXPECT_EQ(regions[1].number, 3u);
}

TEST_F(RegionTableTest, OneAnswerIsBounded) {
  end_ = 200;
  provide_from(10);
  EXPECT_EQ(table_.registered(), kMostRegionsInReply);
  EXPECT_EQ(answer(10).size(), kMostRegionsInReply);
  EXPECT_EQ(answer(10, sizeof(RegionsReply) + 2 * sizeof(NumberedRegion) + 31).size(), 2u);
  std::array<std::byte, sizeof(RegionsReply) - 1> little;
  EXPECT_EQ(table_.answer(RegionKind::kBuckets, 0, little).code(), ErrorCode::kTooLarge);
}

TEST_F(RegionTableTest, OthersGoOnBetweenTwoPieces) {
  end_ = 8;
  size_t most_in_a_turn = 0;
  const auto watch = [&]() -> base::Task<void> {
    for (size_t seen = 0; seen < 8;) {
      most_in_a_turn = std::max(most_in_a_turn, table_.registered() - seen);
      seen = table_.registered();
      co_await executor_.yield();
    }
  };
  base::Task<void> watching = watch();
  watching.start();
  provide_from(0);
  EXPECT_EQ(most_in_a_turn, 1u);
}

TEST_F(RegionTableTest, TaskThatIsDestroyedLeavesTheRestToTheNext) {
  {
    base::Task<void> gone = table_.provide_from(RegionKind::kBuckets, 0);
    gone.start();
  }
  provide_from(0);
  EXPECT_EQ(answer(0).size(), 5u);
}

TEST_F(RegionTableTest, KindWithoutASourceHasNoPieces) {
  executor_.run(table_.provide_from(RegionKind::kRecords, 0));
  std::array<std::byte, 64> room;
  EXPECT_EQ(*table_.answer(RegionKind::kRecords, 0, room), sizeof(RegionsReply));
  EXPECT_FALSE(RegionTable::is_kind(RegionKind{0}));
  EXPECT_FALSE(RegionTable::is_kind(RegionKind{kRegionKinds + 1}));
}

TEST(PinnedMemory, IsAlsoThatOfASoftwareRnic) {
  service::Endpoint endpoint;
  endpoint.uri.scheme = fabric::Scheme::kVerbs;
  endpoint.capabilities.cpu_moves_data = true;
  EXPECT_TRUE(pins_memory(endpoint));
  endpoint.uri.scheme = fabric::Scheme::kTcp;
  EXPECT_FALSE(pins_memory(endpoint));
  endpoint.uri.scheme = fabric::Scheme::kLocal;  // of the model
  endpoint.capabilities.cpu_moves_data = false;
  EXPECT_TRUE(pins_memory(endpoint));
}

}  // namespace
}  // namespace pmstore::internal
