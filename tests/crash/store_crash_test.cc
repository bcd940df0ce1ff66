// The one-server commit under power cuts at every moment: after recovery the store has the content
// after some whole number of transactions, at least all acknowledged ones. Every flush and drain
// that is not provably redundant is needed for that.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pmstore/check.h"
#include "tests/crash/crash_image.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {
namespace {

using crash::CrashImage;
using crash::CrashRecorder;
using crash::CrashSearch;
using crash::Trace;

using Content = std::map<std::string, std::string>;

constexpr uint64_t kRegionBytes = 1 << 20;

Content content_of(const Store& store, TableId table, const std::vector<std::string>& keys) {
  Content content;
  for (const std::string& key : keys) {
    const auto got = get_from(store, table, key);
    if (got && got->found()) content[key] = got->value;
  }
  return content;
}

// Runs transactions while recording, and keeps what the store held after each.
class Recording {
 public:
  Recording() : store_(kRegionBytes, {1, 16 << 10}) {
    PMSTORE_CHECK(store_.put("z", "0").has_value(), "an empty store takes a record");
    keys_.push_back("z");
    states_.push_back({{"z", "0"}});
    recorder_.emplace(store_.pool().memory());
  }
  void commit(const std::vector<std::pair<std::string, std::optional<std::string>>>& writes) {
    auto t = store_.transaction();
    Content after = states_.back();
    for (const auto& [key, value] : writes) {
      if (std::find(keys_.begin(), keys_.end(), key) == keys_.end()) keys_.push_back(key);
      if (value) {
        t.write(WriteKind::kPut, store_.table(), key, *value);
        after[key] = *value;
      } else {
        t.write(WriteKind::kErase, store_.table(), key, {});
        after.erase(key);
      }
    }
    const Status status = store_.commit(t);
    PMSTORE_CHECK(status.has_value(), "the script's transactions commit");
    states_.push_back(after);
    recorder_->mark();
  }
  // The process dies when the redo record of these updates is in the CPU's caches only; the next
  // one finds it there, and the power may go at any moment of its start.
  void die_with_a_record_in_the_caches(
      const std::vector<std::pair<std::string, std::string>>& updates) {
    store_.land(updates);
    Content after = states_.back();
    for (const auto& [key, value] : updates) after[key] = value;
    states_.push_back(after);
    store_.restart();
    PMSTORE_CHECK(content_of(store_.store(), store_.table(), keys_) == after,
                  "the caches have survived");
    recorder_->mark();
  }
  Trace take() { return recorder_->take(); }
  bool in_ring(uint64_t offset) {
    return offset >= store_.ring().data_offset() &&
           offset < store_.ring().offset() + store_.ring().bytes();
  }
  uint64_t records_offset() { return store_.store().arena().pool_offset(SlotOffset{0}); }
  bool in_log_header(const crash::Event& event) {
    const uint64_t log = store_.store().catalog().header().log_offset;
    return event.kind == crash::EventKind::kFlush && event.offset >= log &&
           event.offset < log + log::kRingHeaderBytes;
  }

  // Recovers an image after `marks` acknowledged transactions; gives its error, if any.
  std::optional<std::string> check(CrashImage& image, size_t marks) const {
    auto pool = persist::Pool::in_region(image.bytes(), persist::Domain::kMemoryController, false);
    if (!pool) return pool.error().to_string();
    image.watch((*pool)->memory());
    const auto checked = check_store(**pool);
    if (!checked) return checked.error().to_string();
    if (!checked->sound()) return "check: " + checked->problems.front();
    auto store = Store::open(**pool);
    if (!store) return store.error().to_string();
    const Content found = content_of(**store, store_table(), keys_);
    const bool as_before = found == states_[marks];
    const bool one_more = marks + 1 < states_.size() && found == states_[marks + 1];
    if (!as_before && !one_more) {
      return fmt::format("{} keys after {} transactions, not what was committed", found.size(),
                         marks);
    }
    if (checked->live_records != found.size()) return "the check counts other records";
    if ((*store)->recovery().damaged_records != 0) return "damaged records";
    return work_on(**store, found);
  }

 private:
  // It must go on: a new transaction, over a key that is there or not, and an erase.
  std::optional<std::string> work_on(Store& store, const Content& found) const {
    auto message = TransactionMessage(900)
                       .write(WriteKind::kPut, store_table(), keys_.front(), "new")
                       .message();
    if (!store.commit(*decode_commit(StoreInRegion::kClient, message))) return "no new commit";
    if (get_from(store, store_table(), keys_.front())->value != "new")
      return "the new value is not read";
    for (const auto& [key, value] : found) {
      if (key != keys_.front() && get_from(store, store_table(), key)->value != value) {
        return "another record changed";
      }
    }
    return std::nullopt;
  }
  TableId store_table() const { return TableId{1}; }

  StoreInRegion store_;
  std::optional<CrashRecorder> recorder_;
  std::vector<Content> states_;
  std::vector<std::string> keys_;
};

void run(Recording& recording) {
  const auto value = [](char fill, size_t bytes) { return std::string(bytes, fill); };
  recording.commit({{"z", value('1', 10)}, {"b", value('1', 200)}});  // a new slab
  recording.commit({{"z", value('2', 10)}, {"c", value('2', 60)}});   // another
  recording.commit({{"b", value('3', 200)}, {"c", std::nullopt}});
  recording.commit(
      {{"c", value('4', 60)}, {"z", value('4', 100)}});  // reuses a slot; moves a record
  recording.commit({{"z", std::nullopt}, {"b", value('5', 100)}});
  recording.commit({{"d", value('5', 1500)}, {"c", value('5', 50)}});
  // Wraps the ring, with truncation on the way; each small record is in one entry only, so what is
  // still in the ring is needed.
  for (char i = 0; i < 14; ++i) {
    const char fill = static_cast<char>('a' + i);
    recording.commit({{"d", value(fill, 1500)}, {std::string("s") + fill, value(fill, 80)}});
  }
}

TEST(StoreCrash, EveryAcknowledgedTransactionSurvivesWhole) {
  Recording recording;
  run(recording);
  const Trace trace = recording.take();
  CrashSearch search;
  search.images_per_point = 40;
  const auto complaint = search.run(
      trace, [&](CrashImage& image, size_t marks) { return recording.check(image, marks); });
  EXPECT_FALSE(complaint) << *complaint;
  EXPECT_GT(search.images_seen, 3000u);
  RecordProperty("images", static_cast<int>(search.images_seen));
  std::printf("store crash: %llu images over %zu events\n",
              static_cast<unsigned long long>(search.images_seen), trace.events.size());
}

// Records that recovery puts in place must not outlive their redo record.
TEST(StoreCrash, ARedoRecordThatIsOnlyInTheCachesIsDurableBeforeItIsApplied) {
  const auto value = [](char fill, size_t bytes) { return std::string(bytes, fill); };
  Recording recording;
  recording.commit({{"z", value('1', 30)}, {"b", value('1', 1500)}, {"c", value('1', 60)}});
  recording.die_with_a_record_in_the_caches(
      {{"z", value('2', 30)}, {"b", value('2', 1500)}, {"c", value('2', 60)}});
  recording.commit({{"z", value('3', 30)}, {"b", value('3', 1500)}});
  const Trace trace = recording.take();
  const auto check = [&](CrashImage& image, size_t marks) { return recording.check(image, marks); };
  CrashSearch search;
  search.images_per_point = 150;
  const auto complaint = search.run(trace, check);
  EXPECT_FALSE(complaint) << *complaint;
  // Without the flush of what the walk has found, it would be noticed.
  size_t flushes = 0;
  for (const size_t barrier : trace.barriers()) {
    const crash::Event& event = trace.events[barrier];
    if (event.kind != crash::EventKind::kFlush || !recording.in_ring(event.offset)) continue;
    ++flushes;
    CrashSearch mutant;
    mutant.images_per_point = 150;
    mutant.first_event = barrier;
    EXPECT_TRUE(mutant.run(trace.without(barrier), check)) << trace.describe(barrier);
  }
  EXPECT_GT(flushes, 0u);
}

// Leaves out one flush or drain after the other. Provably redundant, and so not expected to be
// missed: the flush inside a non-temporal store of a record in place, and the flush of the same
// record at truncation: each of the two covers the lines of the other. Nor is the new start of the
// log, while no entry lies where older ones were: the drain of the next entry covers it. (That it
// is needed where one does, the scenarios "ring" and "store" of the explorer show.)
TEST(StoreCrash, EveryFlushAndDrainIsNeeded) {
  Recording recording;
  run(recording);
  const Trace trace = recording.take();
  std::vector<std::string> not_missed;
  size_t tried = 0;
  for (const size_t barrier : trace.barriers()) {
    const crash::Event& event = trace.events[barrier];
    const bool in_place = event.offset >= recording.records_offset();
    if (in_place && event.bytes >= 200) continue;
    if (recording.in_log_header(event)) continue;
    if (barrier > 0 && recording.in_log_header(trace.events[barrier - 1])) continue;
    ++tried;
    CrashSearch search;
    search.images_per_point = 130;  // each of 31 lines alone, and all but each

    search.first_event = barrier;
    const auto complaint = search.run(trace.without(barrier), [&](CrashImage& image, size_t marks) {
      return recording.check(image, marks);
    });
    if (!complaint) not_missed.push_back(trace.describe(barrier));
  }
  EXPECT_EQ(not_missed, std::vector<std::string>());
  EXPECT_GT(tried, 40u);
  std::printf("store crash: %zu mutants, %zu not caught\n", tried, not_missed.size());
}

}  // namespace
}  // namespace pmstore::internal
