// FrameWalk: looks at frames that have arrived and have not been taken, to tell receivers of the
// requests among them (Receiver::on_waiting()). It decides nothing: a frame that is not whole, or
// makes no sense, ends the walk, and is judged when it is taken.
//
// Borrows the bytes, which the peer may change meanwhile; they begin with a frame.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/atomic_copy.h"
#include "fabric/internal/frame.h"

namespace pmstore::fabric::internal {

class FrameWalk {
 public:
  explicit FrameWalk(std::span<const std::byte> bytes) : rest_(bytes) {}

  // There is more than the first frame, as far as the beginning of its header says.
  bool may_have_two() const {
    if (rest_.size() < 2 * sizeof(FrameHeader)) return false;
    FrameHeader first{};
    base::copy_from_shared(&first, rest_.data(), offsetof(FrameHeader, channel));
    const size_t body = carries_body(first.kind) ? first.bytes : 0;
    return body <= rest_.size() - 2 * sizeof(FrameHeader);
  }
  // Goes to the next whole frame with an immediate. False: there is none.
  bool next() {
    while (rest_.size() >= sizeof(FrameHeader)) {
      base::copy_from_shared(&header_, rest_.data(), sizeof header_);
      const size_t body = carries_body(header_.kind) ? header_.bytes : 0;
      if (header_.kind < FrameKind::kWrite || header_.kind > FrameKind::kHandshake ||
          body > rest_.size() - sizeof header_) {
        return false;
      }
      body_ = rest_.subspan(sizeof header_, body);
      rest_ = rest_.subspan(sizeof header_ + body);
      if (header_.kind == FrameKind::kWriteImmediate) return true;
    }
    return false;
  }
  // After next() gave true.
  const FrameHeader& header() const { return header_; }
  std::span<const std::byte> body() const { return body_; }
  // What no next() has passed.
  std::span<const std::byte> rest() const { return rest_; }

 private:
  std::span<const std::byte> rest_;
  FrameHeader header_{};
  std::span<const std::byte> body_;
};

// Calls tell(header, body) for `most` requests at most. `alone`: none waits elsewhere, so that one
// is not told of unless there is a second one.
template <typename Tell>
size_t tell_of_requests(FrameWalk& walk, size_t most, bool alone, Tell&& tell) {
  if (most == 0 || (alone && !walk.may_have_two()) || !walk.next()) return 0;
  if (alone) {
    const FrameHeader header = walk.header();
    const std::span<const std::byte> body = walk.body();
    if (most == 1 || !walk.next()) return 0;
    tell(header, body);
    tell(walk.header(), walk.body());
  } else {
    tell(walk.header(), walk.body());
  }
  size_t told = alone ? 2 : 1;
  for (; told < most && walk.next(); ++told) tell(walk.header(), walk.body());
  return told;
}

}  // namespace pmstore::fabric::internal
