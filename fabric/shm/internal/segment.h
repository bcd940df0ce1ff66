// Segment: the memory of one shm connection, mapped, and the bells that wake its ends.
//
// The end that dials creates a segment: a memfd that nobody can make smaller, so that no access to
// it raises a signal, and an eventfd for each end. It sends the descriptors to the listener, which
// checks them and maps the same memory. Memory and descriptors go when both have closed theirs, in
// whatever way; there is no name to be removed.
//
// One thread.
#pragma once

#include <array>
#include <cstddef>

#include "base/file_descriptor.h"
#include "base/result.h"
#include "fabric/shm/internal/ring.h"

namespace pmstore::fabric::shm {

class Segment {
 public:
  // The descriptors of a segment: the memory, the bell of the end that dialed, the listener's.
  static constexpr size_t kDescriptors = 3;
  using Descriptors = std::array<base::FileDescriptor, kDescriptors>;

  // At the end that dials. Io without memory or descriptors.
  static Result<Segment> create();
  // At the listener: what a peer has sent. Protocol when that is no segment, Io when it cannot be
  // mapped.
  static Result<Segment> adopt(Descriptors descriptors);

  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  // For this end. They borrow the segment.
  RingWriter writer() const { return {state(dialed_ ? 0 : 1), ring(dialed_ ? 0 : 1)}; }
  RingReader reader() const { return {state(dialed_ ? 1 : 0), ring(dialed_ ? 1 : 0)}; }

  // For the listener; until close_memory().
  bool holds_memory() const { return bool(descriptors_[0]); }
  std::array<int, kDescriptors> descriptors() const;
  // The memory stays mapped; its descriptor is not needed any more.
  void close_memory() { descriptors_[0].reset(); }
  // Becomes readable each time the peer rings.
  int own_bell() const { return descriptors_[dialed_ ? 1 : 2].get(); }
  // Wakes the peer. One system call.
  void ring_peer() const;

 private:
  // The state, then each ring twice.
  static constexpr size_t kMappedBytes = kStateBytes + 4 * size_t{kRingBytes};

  Segment(Descriptors descriptors, bool dialed);
  Status map();
  RingState& state(size_t i) const { return reinterpret_cast<RingState*>(memory_)[i]; }
  std::byte* ring(size_t i) const { return memory_ + kStateBytes + i * 2 * size_t{kRingBytes}; }

  Descriptors descriptors_;
  bool dialed_;
  std::byte* memory_ = nullptr;
};

}  // namespace pmstore::fabric::shm
