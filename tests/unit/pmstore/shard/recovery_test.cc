// The power goes while a store starts that the process before left in the CPU's caches.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pmstore/layout/shard_record.h"
#include "pmstore/shard/shard_log.h"
#include "tests/crash/crash_image.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

using crash::CrashImage;
using crash::CrashRecorder;
using crash::CrashSearch;

// As StoreInRegion::land(), but the process has died when it had stored the record in the shard log
// and flushed nothing of it.
void land_in_shard_log(StoreInRegion& s,
                       const std::vector<std::pair<std::string, std::string>>& updates) {
  const TableCatalog& catalog = s.store().catalog();
  auto log = catalog.open_log();
  PMSTORE_CHECK(log.has_value() && walk_shard_log(*log, catalog), "the log is whole");
  std::vector<std::byte> entry(log::entry_room(16 << 10));
  const std::span<std::byte> room = std::span(entry).subspan(sizeof(log::EntryHeader));
  ShardRedoBuilder redo(room, StoreInRegion::kClient, catalog.header().epoch);
  for (const auto& [key, value] : updates) {
    const GetReply at = get_from(s.store(), s.table(), key)->reply;
    redo.add(SlotOffset{at.slot}, s.table(), at.version + 1, RecordState::kLive, key, value);
  }
  const size_t bytes = redo.finish().size();
  const log::RingPosition& position = log->position();
  const log::PlannedEntry plan = log::plan_entry(position, bytes, true).value();
  PMSTORE_CHECK(plan.pad_bytes == 0, "the test leaves room before the wrap");
  log::seal_entry(entry, plan, position, bytes, first_sequence_of(1) + 100);
  persist::Memory& memory = s.pool().memory();
  memory.store(memory.at(log->data_offset()) + plan.lsn % position.data_bytes, entry.data(),
               plan.bytes);
}

class Recoveries : public ::testing::Test {
 protected:
  static constexpr const char* kSmall = "alice";  // a record of one line
  static constexpr const char* kLarge = "bob";    // of many

  void SetUp() override {
    ASSERT_TRUE(s_.put(kSmall, "before"));
    ASSERT_TRUE(s_.put(kLarge, large('b')));
    recorder_.emplace(s_.pool().memory());
  }
  // The next process starts on what is in the caches. The power goes at any moment of its start,
  // and the one after it finds both records as before, or both as after.
  void expect_whole_transactions_when_the_power_goes_in_a_start() {
    s_.restart();
    ASSERT_EQ(get_from(s_.store(), s_.table(), kLarge)->value, large('a'));
    CrashSearch search;
    const auto complaint =
        search.run(recorder_->take(), [&](CrashImage& image, size_t) { return check(image); });
    EXPECT_FALSE(complaint) << *complaint;
    EXPECT_GT(search.images_seen, 100u);
  }
  static std::string large(char fill) { return std::string(1500, fill); }

  StoreInRegion s_{1 << 20, {1, 16 << 10}};

 private:
  std::optional<std::string> check(CrashImage& image) const {
    auto pool = persist::Pool::in_region(image.bytes(), persist::Domain::kMemoryController, false);
    if (!pool) return pool.error().to_string();
    image.watch((*pool)->memory());
    auto store = Store::open(**pool);
    if (!store) return store.error().to_string();
    const auto small = get_from(**store, s_.table(), kSmall);
    const auto big = get_from(**store, s_.table(), kLarge);
    if (!small || !big || !small->found() || !big->found()) return "a record is gone";
    if (small->value == "before" && big->value == large('b')) return std::nullopt;
    if (small->value == "after" && big->value == large('a')) return std::nullopt;
    return "half of a transaction";
  }

  std::optional<CrashRecorder> recorder_;
};

TEST_F(Recoveries, ApplyFromARingOnlyWhatIsDurableThere) {
  s_.land({{kSmall, "after"}, {kLarge, large('a')}});
  expect_whole_transactions_when_the_power_goes_in_a_start();
}

TEST_F(Recoveries, ApplyFromTheShardLogOnlyWhatIsDurableThere) {
  land_in_shard_log(s_, {{kSmall, "after"}, {kLarge, large('a')}});
  expect_whole_transactions_when_the_power_goes_in_a_start();
}

}  // namespace
}  // namespace pmstore::internal
