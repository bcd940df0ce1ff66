// Staging: a ring of bytes from which chunks are taken and given back in the same order.
//
// Invariants: released_ <= taken_ <= released_ + capacity_; chunk `n` lies in one piece. Both count
// bytes for ever, also those left over at the end of the ring when a chunk did not fit there.
// Threads: one. Plain arithmetic: who owns the bytes is the caller's business.
#pragma once

#include <cstdint>
#include <optional>

#include "base/check.h"

namespace pmstore::log::internal {

class Staging {
 public:
  explicit Staging(uint64_t capacity) : capacity_(capacity) {}

  struct Chunk {
    uint64_t offset;   // in the ring
    uint64_t release;  // for give_back()
  };
  uint64_t capacity() const { return capacity_; }

  // Nothing when there is no room until more is given back. `bytes` <= capacity().
  std::optional<Chunk> take(uint64_t bytes) {
    PMSTORE_CHECK(bytes <= capacity_, "such a chunk never fits");
    if (taken_ == released_) taken_ = released_ = 0;  // empty: any chunk fits at the start
    const uint64_t at = taken_ % capacity_;
    const uint64_t skipped = at + bytes > capacity_ ? capacity_ - at : 0;
    if (taken_ + skipped + bytes - released_ > capacity_) return std::nullopt;
    const uint64_t begin = taken_ + skipped;
    taken_ = begin + bytes;
    PMSTORE_CHECK(begin % capacity_ + bytes <= capacity_ && taken_ - released_ <= capacity_,
                  "a chunk would overwrite one that is in use");
    return Chunk{begin % capacity_, taken_};
  }

  // Gives back this chunk and all before it.
  void give_back(const Chunk& chunk) {
    PMSTORE_CHECK(chunk.release > released_ && chunk.release <= taken_,
                  "chunks come back in the order they were taken");
    released_ = chunk.release;
  }

 private:
  const uint64_t capacity_;
  uint64_t taken_ = 0;
  uint64_t released_ = 0;
};

}  // namespace pmstore::log::internal
