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

// Where the word of the slot at `slot_offset` lies in the lock table: one word per 64 B of records.
constexpr uint64_t lock_word_offset(uint64_t slot_offset) { return slot_offset / 64 * 8; }

}  // namespace pmstore
