// RecordedStore: the steps of the runs of store_run.h. A store in a plain region, whose every step
// is recorded, with what a power cut may leave of it.
//
// Each step says first what may be found until it is over, and sets a mark when it is. Threads:
// one.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "model/crash_recorder.h"
#include "model/page_bytes.h"
#include "persist/pool.h"
#include "pmstore/shard/store.h"
#include "tests/crash/recorded_run.h"
#include "tests/crash/restarted_store.h"
#include "tests/crash/store_run.h"

namespace pmstore::crash {

class RecordedStore : public RecordedRun {
 public:
  Result<std::unique_ptr<Restarted>> restart(std::span<std::byte> memory) const override {
    return RestartedStore::open(memory, domain_, history_);
  }

  // A start of a store takes about 100 us, of a large one more.
  // Without a persistence domain more lines are in doubt for longer.
  uint64_t samples() const override {
    if (size_ == StoreSize::kLargeFrames) return 8;
    if (size_ == StoreSize::kLarge || domain_ == persist::Domain::kNone) return 16;
    return size_ == StoreSize::kFrames ? 48 : 64;
  }
  uint64_t most_exhaustive() const override {
    return domain_ == persist::Domain::kNone ? 256 : UINT64_MAX;
  }
  uint64_t death_every() const override {
    return size_ == StoreSize::kLarge || size_ == StoreSize::kLargeFrames ? 64 : 16;
  }

 protected:
  static constexpr uint32_t kClients = 2;

  // Formats the region, and opens the store in it.
  RecordedStore(const std::string& scenario, uint64_t seed, persist::Domain domain, StoreSize size,
                const persist::PaddingRules& padding);
  // No step may follow.
  void end_recording();

  // The server's process dies, and another one starts.
  void restart_process();
  // The same, when the store was closed before.
  void close_and_restart();
  // The table is dropped with its records, and another one gets its name.
  void recreate_table();
  // Extents without records go back to the pool.
  void give_frames_back();
  // Records leave slabs of which little is used.
  void move_records();
  // Where the second frame will be taken, a log has had what looks like slabs of that frame, with
  // records; so it is from the begin of a run of large frames on. Does nothing while the frame is
  // there.
  void leave_forged_slabs();
  bool has_frame_over_forged_slabs() const;
  // The medium loses one copy of each header of a slab, and then they are looked at.
  enum class Copy { kOlder, kNewest };
  void mend_headers(Copy lost);
  // Another client comes for one that is gone.
  void change_client(uint32_t client);
  void commit(const std::vector<KeyWrite>& writes);
  KeyWrite write(const char* key, size_t bytes) {
    // Different in each transaction.
    std::string value = fmt::format("{}.", history_.transactions.size());
    value.resize(std::max(bytes, value.size()), key[0]);
    return {key, std::move(value)};
  }
  // Of two chunks; if the second one is `chunk`, its first bytes there are a header.
  KeyWrite write_large(const char* key, uint32_t chunk);
  static KeyWrite erase(const char* key) { return {key, std::nullopt}; }

  StoreSize size() const { return size_; }
  internal::Store& store() { return *store_; }
  const StoreContent& now() const { return now_; }
  // All but the last one are drawn from.
  const std::vector<std::string>& keys() const { return history_.keys; }
  Random& random() { return random_; }

 private:
  void format();
  void open();
  persist::Extent forge_slabs();
  // Where the keys of these writes are now, with their versions.
  std::vector<std::pair<uint64_t, uint64_t>> places_of(const std::vector<KeyWrite>& writes) const;

  persist::Domain domain_;
  StoreSize size_;
  Random random_;
  model::PageBytes region_;
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<internal::Store> store_;
  std::optional<model::CrashRecorder> recorder_;
  std::array<uint64_t, kClients> clients_ = {kStoreClient, kStoreClient + 1};
  std::array<uint64_t, kClients> first_{};  // their transaction numbers
  uint64_t forged_at_ = 0;                  // in the pool
  StoreContent now_;
  // Slots and versions of moved records and their tombstones, since the last transaction.
  std::vector<std::pair<uint64_t, uint64_t>> moved_;
  StoreHistory history_;
};

}  // namespace pmstore::crash
