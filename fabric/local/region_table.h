// RegionTable: the memory that one local device has registered, found by key in O(1) from any
// thread.
//
// A key is 48 unguessable bits over a 16-bit slot number, so that a lookup is one array access and
// one comparison. Registering and withdrawing happen on the device's thread; lookups come from the
// threads of the peers. A lookup that races with a withdrawal gives the old region or none, never a
// mixture.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "fabric/batch.h"
#include "fabric/memory_region.h"

namespace pmstore::fabric {

enum class AccessFault : uint8_t {
  kNone,
  kUnknownKey,
  kOutOfBounds,
  kNotGranted,
  kMisaligned,
};

inline bool is_atomic(OpCode op) { return op == OpCode::kCompareSwap || op == OpCode::kFetchAdd; }

// What a request needs the region to grant.
inline Access right_for(OpCode op) {
  if (op == OpCode::kRead) return Access::kRemoteRead;
  return is_atomic(op) ? Access::kRemoteAtomic : Access::kRemoteWrite;
}

namespace internal {

// Does it to the word at `target`, which is aligned; gives what was there.
inline uint64_t execute_atomic(const WorkRequest& request, std::byte* target) {
  auto* word = reinterpret_cast<uint64_t*>(target);
  if (request.op == OpCode::kFetchAdd) {
    return __atomic_fetch_add(word, request.compare_or_add, __ATOMIC_SEQ_CST);
  }
  uint64_t old = request.compare_or_add;
  __atomic_compare_exchange_n(word, &old, request.swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return old;
}

}  // namespace internal

class RegionTable {
 public:
  static constexpr size_t kMaxRegions = 16384;

  RegionTable();
  RegionTable(const RegionTable&) = delete;
  RegionTable& operator=(const RegionTable&) = delete;

  // The key of the new entry, or 0 when kMaxRegions are registered.
  uint64_t add(std::span<std::byte> memory, Access access);
  void remove(uint64_t key);

  // The number of a key's entry: small, unlike the key the same in every run.
  static uint32_t slot_of(uint64_t key) { return static_cast<uint32_t>(key & kSlotMask); }

  struct Found {
    std::byte* data;
    AccessFault fault;
  };
  // The memory behind [address, address + bytes), if the key is valid, the range inside its region
  // and `right` granted.
  Found find(uint64_t key, uint64_t address, uint64_t bytes, Access right) const {
    const uint64_t slot = key & kSlotMask;
    if (slot >= kMaxRegions) return {nullptr, AccessFault::kUnknownKey};
    const Entry* chunk = chunks_[slot / kChunkEntries].load(std::memory_order_acquire);
    if (chunk == nullptr) return {nullptr, AccessFault::kUnknownKey};
    const Entry& entry = chunk[slot % kChunkEntries];
    if (key == 0 || entry.key.load(std::memory_order_acquire) != key) {
      return {nullptr, AccessFault::kUnknownKey};
    }
    const uint64_t base = entry.address.load(std::memory_order_acquire);
    const uint64_t size = entry.bytes.load(std::memory_order_acquire);
    const auto access = static_cast<Access>(entry.access.load(std::memory_order_acquire));
    // A field of a later region in this slot was stored after the key had been cleared.
    if (entry.key.load(std::memory_order_relaxed) != key) {
      return {nullptr, AccessFault::kUnknownKey};
    }
    if (address < base || bytes > size || address - base > size - bytes) {
      return {nullptr, AccessFault::kOutOfBounds};
    }
    if (!has(access, right)) return {nullptr, AccessFault::kNotGranted};
    return {reinterpret_cast<std::byte*>(address), AccessFault::kNone};
  }

 private:
  struct Entry {
    std::atomic<uint64_t> key{0};  // 0: free
    std::atomic<uint64_t> address{0};
    std::atomic<uint64_t> bytes{0};
    std::atomic<uint32_t> access{0};
  };
  static constexpr uint64_t kSlotMask = 0xffff;
  static constexpr size_t kChunkEntries = 64;
  static constexpr size_t kChunks = kMaxRegions / kChunkEntries;

  Entry& entry(size_t slot) { return owned_[slot / kChunkEntries][slot % kChunkEntries]; }

  std::atomic<Entry*> chunks_[kChunks];
  std::vector<std::unique_ptr<Entry[]>> owned_;
  std::vector<uint32_t> free_slots_;
  uint64_t key_counter_;
};

}  // namespace pmstore::fabric
