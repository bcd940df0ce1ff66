// RingWriter and RingReader: the two ends of a ring of bytes in a segment: one process writes, the
// other reads. No system calls, no locks.
//
// The bytes are mapped twice in a row, so that any kRingBytes of them are contiguous, wherever they
// begin. Each end keeps its own position in its own memory and believes only what the other says
// about the other's, after a check: a peer that forges the words, or writes its ring while it is
// read, can change the bytes that arrive and nothing else. Bytes are published after they were
// written, so a peer that is killed in the middle leaves none of them.
//
// Threads: one for each object. Both borrow the segment.
//
// Invariants, mod 2^64:
//   writer: head_ <= published_ <= tail_ <= head_ + kRingBytes
//   reader: published_ <= head_ <= tail_ <= published_ + kRingBytes
#pragma once

#include <algorithm>
#include <cstring>
#include <span>

#include "base/bulk_copy.h"
#include "base/check.h"
#include "fabric/shm/internal/segment_layout.h"

namespace pmstore::fabric::shm {

class RingWriter {
 public:
  RingWriter() = default;
  // `bytes` is mapped twice.
  RingWriter(RingState& state, std::byte* bytes) : state_(&state), bytes_(bytes) {}

  // How many bytes fit, as far as is known.
  size_t room() const { return kRingBytes - static_cast<size_t>(tail_ - head_); }
  // Looks how far the reader has come. False: it has not come there.
  [[nodiscard]] bool look() {
    const uint64_t head = state_->head.load(std::memory_order_acquire);
    if (head - head_ > published_ - head_) return false;
    head_ = head;
    return true;
  }
  // The reader has moved since the last look.
  bool has_news() const { return state_->head.load(std::memory_order_relaxed) != head_; }

  // Copies as much as there is room for and gives how much; not published yet.
  size_t append(const void* from, size_t bytes) {
    PMSTORE_CHECK(tail_ - head_ <= kRingBytes, "what was not read is not overwritten");
    const size_t taken = std::min(bytes, room());
    std::memcpy(bytes_ + tail_ % kRingBytes, from, taken);
    tail_ += taken;
    return taken;
  }
  // The same from memory that others may be writing; there is room.
  void append_shared(const std::byte* from, size_t bytes) {
    PMSTORE_CHECK(bytes <= room(), "the caller has looked for room");
    base::copy_bulk_from_shared(bytes_ + tail_ % kRingBytes, from, bytes);
    tail_ += bytes;
  }
  // Shows the reader all that was appended. False: nothing was, since the last time.
  bool publish() {
    if (published_ == tail_) return false;
    PMSTORE_CHECK(tail_ - published_ <= tail_ - head_, "what was read had been published");
    published_ = tail_;
    state_->tail.store(tail_, std::memory_order_release);
    return true;
  }
  size_t unpublished() const { return static_cast<size_t>(tail_ - published_); }
  // Nothing is published afterwards.
  void end(RingEnd how) {
    state_->end.store(static_cast<uint32_t>(how), std::memory_order_release);
  }

  uint64_t written() const { return tail_; }
  RingState& state() { return *state_; }

 private:
  RingState* state_ = nullptr;
  std::byte* bytes_ = nullptr;
  uint64_t tail_ = 0;
  uint64_t published_ = 0;
  uint64_t head_ = 0;  // of the reader, as last seen
};

class RingReader {
 public:
  RingReader() = default;
  // `bytes` is mapped twice.
  RingReader(RingState& state, const std::byte* bytes) : state_(&state), bytes_(bytes) {}

  // Looks how much has been written. False: that was not written.
  [[nodiscard]] bool look() {
    const uint64_t tail = state_->tail.load(std::memory_order_acquire);
    if (tail - tail_ > kRingBytes - (tail_ - published_)) return false;
    tail_ = tail;
    return true;
  }
  // front()[0, available()) after a look(), without that: nothing of it is seen yet. Empty as well
  // when look() would say that it was not written.
  std::span<const std::byte> ahead() const {
    const uint64_t bytes = state_->tail.load(std::memory_order_acquire) - head_;
    return {front(), bytes > kRingBytes ? 0 : static_cast<size_t>(bytes)};
  }
  // The writer has moved since the last look, or has ended.
  bool has_news() const {
    return state_->tail.load(std::memory_order_relaxed) != tail_ ||
           state_->end.load(std::memory_order_relaxed) != 0;
  }
  // Not kOpen: what a look() after this call finds is the last. A value that is no RingEnd counts
  // as kClosed.
  RingEnd end() const {
    const uint32_t end = state_->end.load(std::memory_order_acquire);
    if (end == static_cast<uint32_t>(RingEnd::kRefused)) return RingEnd::kRefused;
    return end == 0 ? RingEnd::kOpen : RingEnd::kClosed;
  }

  // The bytes that have been seen and not consumed: front()[0, available()). The peer may still
  // change them: copy a field before you check and use it.
  size_t available() const { return static_cast<size_t>(tail_ - head_); }
  const std::byte* front() const { return bytes_ + head_ % kRingBytes; }
  void consume(size_t bytes) {
    PMSTORE_CHECK(bytes <= available(), "only what has been seen is consumed");
    head_ += bytes;
  }
  // Gives the writer the room of what was consumed. False: nothing was, since the last time.
  bool publish() {
    if (published_ == head_) return false;
    PMSTORE_CHECK(head_ - published_ <= tail_ - published_, "only what was seen is given back");
    published_ = head_;
    state_->head.store(head_, std::memory_order_release);
    return true;
  }
  size_t unpublished() const { return static_cast<size_t>(head_ - published_); }

  uint64_t consumed() const { return head_; }
  RingState& state() { return *state_; }

 private:
  RingState* state_ = nullptr;
  const std::byte* bytes_ = nullptr;
  uint64_t head_ = 0;
  uint64_t published_ = 0;
  uint64_t tail_ = 0;  // of the writer, as last seen
};

}  // namespace pmstore::fabric::shm
