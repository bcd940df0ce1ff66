// A store whose orderly stop leaves a checkpoint, and what a test knows of its content.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/page_bytes.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::internal {

// Runs the parts of a job backwards, so that nothing relies on their order.
class ThreeWorkers final : public base::Workers {
 public:
  size_t count() const override { return 3; }
  void run(const std::function<void(size_t worker)>& work) override {
    for (size_t i = 3; i > 0; --i) work(i - 1);
  }
};

// A pool with room for extents beside the records, and what a test knows of its content.
class CheckpointTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kClient = 77;
  static constexpr uint64_t kRegionBytes = 1 << 20;

  void SetUp() override { make_pool(8); }

  void make_pool(uint32_t rings, uint64_t region_bytes = kRegionBytes) {
    store_.reset();
    pool_.reset();
    region_ = model::PageBytes(region_bytes);
    pool_ = *persist::Pool::in_region(region_.bytes(), kDomain, true);
    const FormatOptions format{.rings = rings,
                               .ring_bytes = 32 << 10,
                               .identity = 5,
                               .log_bytes = 0,
                               .shard_log_bytes = 32 << 10};
    ASSERT_TRUE(format_store(*pool_, format));
    start();
    hash_ = *store_->create_table("h");
    ordered_ = *store_->create_table("o", TableKind::kOrdered);
  }
  // The next process, on what this one leaves; with `stop`, in order.
  void restart(bool stop = true) {
    if (stop) {
      ASSERT_TRUE(store_->close());
    }
    store_.reset();
    pool_ = *persist::Pool::in_region(region_.bytes(), kDomain, false);
    start();
  }
  void start() {
    ThreeWorkers workers;
    auto opened = Store::open(*pool_, {.workers = &workers});
    ASSERT_TRUE(opened) << opened.error().message;
    store_ = std::move(*opened);
    sequence_ = store_->begin_session().value();
  }
  void put(TableId table, const std::string& key, const std::string& value) {
    const Status done = write(WriteKind::kPut, table, key, value);
    ASSERT_TRUE(done) << done.error().message;
    content_[{table, key}] = value;
  }
  void erase(TableId table, const std::string& key) {
    ASSERT_TRUE(write(WriteKind::kErase, table, key, {}));
    content_.erase({table, key});
  }
  void erase_if_there(TableId table, const std::string& key) {
    if (content_.contains({table, key})) erase(table, key);
  }
  Status write(WriteKind kind, TableId table, std::string_view key, std::string_view value) {
    TransactionMessage message(sequence_++);
    message.write(kind, table, key, value);
    const auto bytes = message.message();
    return store_->commit(*decode_commit(kClient, bytes));
  }
  // Records of several sizes in both tables, free slots, slots that were used again.
  void fill(int keys = 40) {
    for (int i = 0; i < keys; ++i) {
      put(hash_, fmt::format("h{}", i), std::string(static_cast<size_t>(i % 7) * 40, 'a'));
      put(ordered_, fmt::format("o{:05}", i * 7 % keys), std::string(20, 'b'));
    }
    for (int i = 0; i < keys; i += 3) erase(hash_, fmt::format("h{}", i));
    for (int i = 1; i < keys; i += 5) erase(ordered_, fmt::format("o{:05}", i));
    for (int i = 0; i < keys; i += 2) put(hash_, fmt::format("h{}", i), std::string(30, 'c'));
  }
  // What differs from the content, or nothing.
  std::string difference(const Store& store) const {
    for (const auto& [at, value] : content_) {
      const auto got = get_from(store, at.first, at.second);
      if (!got) return at.second + ": " + got.error().message;
      if (!got->found() || got->value != value) return at.second + ": another value";
    }
    if (store.live_records() != content_.size()) return "other records";
    std::vector<std::string> keys, expected;
    store_of(store).index().ordered(ordered_)->walk(
        {}, OrderedIndex::Direction::kForward, [](OrderedIndex::Leaf) { return true; },
        [&](OrderedIndex::LeafKey key, OrderedIndex::Entry) {
          TreeNode::KeyRoom room;
          keys.emplace_back(key.in(room));
          return true;
        });
    for (const auto& [at, value] : content_) {
      if (at.first == ordered_) expected.push_back(at.second);
    }
    return keys == expected ? "" : "other keys in order";
  }
  static Store& store_of(const Store& store) { return const_cast<Store&>(store); }
  std::optional<persist::Extent> extent() const {
    for (const persist::Extent& each : pool_->info().extents) {
      if (each.kind == persist::ExtentKind::kCheckpoint) return each;
    }
    return std::nullopt;
  }
  static std::vector<uint64_t> words_of(const Store& store) {
    std::vector<uint64_t> all;
    SlabArena& arena = store_of(store).arena();
    arena.for_each_slab([&](const SlabArena::Slab& slab) {
      for (uint32_t i = 0; i < slots_per_slab(slab.size_class); ++i) {
        all.push_back(store_of(store).words().load(arena.slot_of(slab, i)).bits);
      }
    });
    return all;
  }
  // Versions of all slots, and the order in which free ones are handed out.
  static std::vector<uint64_t> state(const Store& store) {
    std::vector<uint64_t> all = words_of(store);
    SlabArena& arena = store_of(store).arena();
    arena.for_each_free_slot([&](SlotOffset slot) { all.push_back(raw(slot)); });
    all.push_back(arena.used_slots());
    return all;
  }

  static constexpr auto kDomain = persist::Domain::kMemoryController;
  model::PageBytes region_;
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<Store> store_;
  TableId hash_{}, ordered_{};
  uint64_t sequence_ = 0;
  std::map<std::pair<TableId, std::string>, std::string> content_;
};

}  // namespace pmstore::internal
