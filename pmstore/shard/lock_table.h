// LockTable: the DRAM lock words of all slots, one per 64 B of slot space, laid out so that the
// words of slots are dense (pmstore/layout/lock_word.h).
//
// store() is allowed before any connection is accepted, and under LockDiscipline::kCpu; under kRnic
// only RNIC atomics change a word (see WordChanger). load() is allowed from any thread.
// Memory: 1/8 of slot space in addresses; pages become resident when a word of a slot in them is
// used, about 8 bytes per slot. An RNIC pins all pages that it registers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "pmstore/layout/lock_word.h"
#include "pmstore/types.h"

namespace pmstore::internal {

class LockTable {
 public:
  // Io when the operating system has not enough memory.
  static Result<LockTable> create(uint64_t slot_space_bytes);
  LockTable(LockTable&& other) noexcept;
  ~LockTable();

  LockWord load(SlotOffset slot) const { return {__atomic_load_n(word(slot), __ATOMIC_ACQUIRE)}; }
  void store(SlotOffset slot, LockWord value) {
    __atomic_store_n(word(slot), value.bits, __ATOMIC_RELEASE);
  }
  // Inline, because g++ 12 takes a call of a function that only prefetches for one without effect.
  [[gnu::always_inline]] void prefetch(SlotOffset slot) const { __builtin_prefetch(word(slot)); }
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit LockTable(std::span<std::byte> bytes) : bytes_(bytes) {}
  uint64_t* word(SlotOffset slot) const {
    return reinterpret_cast<uint64_t*>(bytes_.data() + lock_word_offset(raw(slot)));
  }
  std::span<std::byte> bytes_;
};

}  // namespace pmstore::internal
