// Logs that lie in several extents of the pool: one-sided appends and READs in each, and an extent
// that goes back to the pool under its readers.
#include "tests/scenario/log/log_scenario.h"

namespace pmstore::scenario {
namespace {

class LogsByNeed : public LogScenario {
 protected:
  void SetUp() override {
    LogScenario::SetUp();
    setup_.area_kib = 64;
    start_server();
  }
  // Gives how many entries it has appended and read again.
  uint64_t use(uint64_t log, uint64_t entries) {
    auto producer = produce(*client_, log);
    if (producer == nullptr) return 0;
    for (uint64_t i = 1; i <= entries; ++i) EXPECT_TRUE(append(*producer, text(i, 100 + 10 * i)));
    EXPECT_TRUE(run(producer->close()));
    return read_all(*client_, log).size();
  }
};
PMSTORE_LOGS_SCENARIOS(LogsByNeed);

TEST_P(LogsByNeed, ProducersAndReadersReachEachExtent) {
  const auto in_area = make("in-area", 32 << 10);
  const auto in_room = make("in-room", 100 << 10);
  const auto stays = connect();
  EXPECT_EQ(use(in_area.id, 20), 20u);
  EXPECT_EQ(use(in_room.id, 40), 40u);
  EXPECT_EQ(read_all(*stays, in_area.id).size(), 20u);
  EXPECT_EQ(read_all(*stays, in_room.id).size(), 40u);
}

TEST_P(LogsByNeed, AReaderOfAnExtentThatWasGivenBackIsToldAndTheOthersGoOn) {
  const auto in_area = make("in-area", 32 << 10);
  for (uint64_t turn = 0; turn < 3; ++turn) {
    const auto in_room = make("in-room", 100 << 10);
    ASSERT_EQ(use(in_room.id, 10), 10u);
    const auto from = reader(*client_, in_room.id);
    const auto other = connect();
    const auto from_area = reader(*other, in_area.id);
    ASSERT_TRUE(run(other->erase(in_room.id)));
    const auto gone = read(*from);
    ASSERT_FALSE(gone);
    EXPECT_EQ(gone.code(), ErrorCode::kInvalidArgument) << gone.error().to_string();
    EXPECT_TRUE(share(*client_, in_area.id, text(turn + 1, 50)));
    for (uint64_t i = 1; i <= turn + 1; ++i) {
      const auto entry = read(*from_area);
      ASSERT_TRUE(entry) << entry.error().to_string();
      EXPECT_TRUE(is_text(i, entry->payload));
    }
  }
}

}  // namespace
}  // namespace pmstore::scenario
