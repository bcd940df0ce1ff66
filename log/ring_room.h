// RingRoom: memory in which a ring will be, and how far it is erased. So a large ring is made in
// several turns of an executor: first its header is erased, durably, so that no crash leaves a
// header over entries that are half gone; then the data area, from its beginning, in parts.
//
// Invariant: no data is erased before the header. Threads: one. The memory is borrowed, and only
// this object stores to it while it lives.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/result.h"
#include "log/ring.h"
#include "persist/memory.h"

namespace pmstore::log {

class RingRoom {
 public:
  // Whatever lies there. InvalidArgument, and the arguments: as Ring::format().
  static Result<RingRoom> at(persist::Memory& memory, uint64_t offset, uint64_t bytes,
                             uint32_t salt);
  // All of it is zero, durably: the room is erased. Io: drain().
  static Result<RingRoom> zeroed(persist::Memory& memory, uint64_t offset, uint64_t bytes,
                                 uint32_t salt);

  // Zeroes what is not zero: the header when nothing was erased yet, then at most `most_bytes` of
  // data. Durable on return. True: more is left. Io: drain().
  Result<bool> erase_some(uint64_t most_bytes);
  bool is_erased() const { return erased_.has_value() && data_ == ring_.position().data_bytes; }

 private:
  friend class Ring;  // begins in it
  explicit RingRoom(Ring ring) : ring_(std::move(ring)) {}

  Ring ring_;
  std::optional<persist::Persisted> erased_;  // of what was erased so far; nothing: none
  uint64_t data_ = 0;                         // so much of the data area is erased
};

}  // namespace pmstore::log
