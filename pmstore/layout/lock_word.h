// LockWord: the 8-byte DRAM word of a record slot: locked | owner | version (rule H8).
//
// Bit 63: locked. Bits 48-62: the owner number of the session that holds the lock (0: the server,
// or unlocked). Bits 0-47: the version, which only grows: by update, delete, reuse of the slot, and
// over a crash.
#pragma once

#include <cstdint>

namespace pmstore {

struct LockWord {
  static constexpr uint64_t kLockedBit = uint64_t{1} << 63;
  static constexpr uint64_t kVersionMask = (uint64_t{1} << 48) - 1;
  static constexpr uint16_t kMaxOwner = 0x7fff;

  uint64_t bits = 0;

  static constexpr LockWord unlocked(uint64_t version) { return {version & kVersionMask}; }
  static constexpr LockWord locked(uint64_t version, uint16_t owner) {
    return {kLockedBit | (static_cast<uint64_t>(owner) << 48) | (version & kVersionMask)};
  }
  constexpr bool is_locked() const { return (bits & kLockedBit) != 0; }
  constexpr uint16_t owner() const { return static_cast<uint16_t>((bits >> 48) & kMaxOwner); }
  constexpr uint64_t version() const { return bits & kVersionMask; }
  constexpr bool operator==(const LockWord&) const = default;
};

// Where the word of the slot at `slot_offset` lies in the lock table: one word per 64 B of records,
// but not in their order. Slots begin at the same places of all chunks (64 KiB) that are slabs of
// one size. So the words of 512 chunks for one place share a page, and pages for places where no
// slot begins are never touched: the table takes about 8 bytes of memory per slot. Within its page
// a word is shifted by its place, because words at the same offset of all pages would compete for a
// few sets of the processor's caches.
inline constexpr uint64_t kWordGroupSlotBytes = 32 << 20;  // of slot space
inline constexpr uint64_t kWordGroupBytes = kWordGroupSlotBytes / 64 * 8;
constexpr uint64_t lock_word_offset(uint64_t slot_offset) {
  constexpr uint64_t kChunks = 512;
  const uint64_t place = (slot_offset >> 6) & 1023;
  const uint64_t shifted = (slot_offset >> 16) + 8 * (place + (place >> 4));
  return (slot_offset >> 25) * kWordGroupBytes + place * kChunks * 8 + shifted % kChunks * 8;
}
static_assert(lock_word_offset(kWordGroupSlotBytes) == kWordGroupBytes && lock_word_offset(0) == 0);
// The size of the table for so many bytes of slot space.
constexpr uint64_t lock_table_bytes(uint64_t slot_bytes) {
  return (slot_bytes + kWordGroupSlotBytes - 1) / kWordGroupSlotBytes * kWordGroupBytes;
}

}  // namespace pmstore
