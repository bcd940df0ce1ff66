#include "fabric/local/region_table.h"

#include <sys/random.h>

#include "base/check.h"
#include "base/random.h"

namespace pmstore::fabric {

namespace {

// Unguessable per process and per table; without the kernel's help still different for each table.
uint64_t secret() {
  static std::atomic<uint64_t> tables{1};
  uint64_t value = 0;
  if (getrandom(&value, sizeof(value), GRND_NONBLOCK) != sizeof(value)) {
    value = reinterpret_cast<uintptr_t>(&value);
  }
  return base::mix64(value ^ base::mix64(tables.fetch_add(1, std::memory_order_relaxed)));
}

}  // namespace

RegionTable::RegionTable() : key_counter_(secret()) {
  for (auto& chunk : chunks_) chunk.store(nullptr, std::memory_order_relaxed);
}

uint64_t RegionTable::add(std::span<std::byte> memory, Access access) {
  if (free_slots_.empty()) {
    if (owned_.size() == kChunks) return 0;
    const size_t first = owned_.size() * kChunkEntries;
    owned_.push_back(std::make_unique<Entry[]>(kChunkEntries));
    chunks_[owned_.size() - 1].store(owned_.back().get(), std::memory_order_release);
    for (size_t i = kChunkEntries; i > 0; --i) {
      free_slots_.push_back(static_cast<uint32_t>(first + i - 1));
    }
  }
  const uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  uint64_t key = 0;
  while ((key & ~kSlotMask) == 0) {
    key = (base::mix64(++key_counter_) & ~kSlotMask) | slot;
  }
  Entry& to = entry(slot);
  to.address.store(reinterpret_cast<uintptr_t>(memory.data()), std::memory_order_release);
  to.bytes.store(memory.size(), std::memory_order_release);
  to.access.store(static_cast<uint32_t>(access), std::memory_order_release);
  to.key.store(key, std::memory_order_release);
  return key;
}

void RegionTable::remove(uint64_t key) {
  const auto slot = static_cast<uint32_t>(key & kSlotMask);
  Entry& from = entry(slot);
  PMSTORE_CHECK(from.key.load(std::memory_order_relaxed) == key, "a region is withdrawn once");
  from.key.store(0, std::memory_order_release);
  free_slots_.push_back(slot);
}

}  // namespace pmstore::fabric
