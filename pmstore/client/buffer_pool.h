// BufferPool: a bounded number of registered buffers, one for each one-sided operation under way.
//
// A buffer comes with a Batch and a Completion, so that an operation needs no memory of its own
// that an RNIC could reach. Invariants: an operation holds at most one buffer, so an operation that
// waits for a buffer waits for another that gives its buffer back; each buffer is free, leased or
// abandoned; a buffer that is leased or free has no request under way. Threads: one. The device is
// borrowed; the pool outlives the connections that use its buffers.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/batch.h"
#include "fabric/connection.h"
#include "fabric/device.h"

namespace pmstore::internal {

// Largest slot that is read or written one-sided; larger ones go through the server's CPU.
inline constexpr uint32_t kMaxOneSidedSlotBytes = 16384;

struct OpBuffer {
  // The record's image, then words: CAS results, lock words, bucket versions.
  static constexpr uint32_t kWordsOffset = kMaxOneSidedSlotBytes;
  static constexpr uint32_t kWords = 1024;
  static constexpr uint32_t kBytes = kWordsOffset + kWords * 8;

  uint32_t number = 0;  // in its pool
  uint64_t uses = 0;    // odd: an operation has it, or what it began is under way
  std::byte* data = nullptr;
  const fabric::MemoryRegion* region = nullptr;
  fabric::Batch batch;
  // Of the last signaled doorbell of `batch`. Here, not in a coroutine's frame, so that a coroutine
  // that is destroyed while it waits leaves nothing behind that a completion could still reach.
  fabric::Completion completion;
  // Work without a completion is under way since the last signaled doorbell.
  bool unsignaled = false;

  bool under_way() const { return unsignaled || (!completion.idle() && !completion.done()); }

  fabric::LocalBuffer at(uint32_t offset, uint32_t bytes) const {
    PMSTORE_CHECK(offset <= kBytes && bytes <= kBytes - offset, "a piece lies in its buffer");
    return {data + offset, bytes, region};
  }
  fabric::LocalBuffer word_at(size_t index) const {
    return at(kWordsOffset + static_cast<uint32_t>(index) * 8, 8);
  }
  uint64_t word(size_t index) const {
    PMSTORE_CHECK(index < kWords, "a word lies in its buffer");
    return reinterpret_cast<const uint64_t*>(data + kWordsOffset)[index];
  }
};

class BufferPool;

// The right to use one buffer. Move-only.
class BufferLease {
 public:
  BufferLease() = default;
  BufferLease(BufferPool& pool, OpBuffer& buffer) : pool_(&pool), buffer_(&buffer) {}
  BufferLease(BufferLease&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)),
        buffer_(std::exchange(other.buffer_, nullptr)) {}
  BufferLease& operator=(BufferLease&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  inline ~BufferLease();
  explicit operator bool() const { return buffer_ != nullptr; }
  OpBuffer& operator*() const { return *buffer_; }
  OpBuffer* operator->() const { return buffer_; }

 private:
  BufferPool* pool_ = nullptr;
  OpBuffer* buffer_ = nullptr;
};

class BufferPool {
 public:
  // Allocates and registers `count` buffers. Io as Device::register_memory().
  static Result<std::unique_ptr<BufferPool>> create(fabric::Device& device, size_t count);
  ~BufferPool();

  // Empty when all buffers are in use or reserved for operations that have waited.
  BufferLease try_take() {
    if (!abandoned_.empty()) [[unlikely]]
      reclaim();
    if (free_.size() <= waiting_.chosen()) return {};
    OpBuffer* buffer = free_.back();
    free_.pop_back();
    ++buffer->uses;
    return {*this, *buffer};
  }
  // Waits until a buffer is free. Buffers go to the callers in the order of their calls, except
  // while a buffer is abandoned.
  base::Task<BufferLease> take();
  size_t free_buffers() const { return free_.size(); }

  // OpBuffer::uses of each.
  std::vector<uint64_t> uses() const;
  // Whether every operation that had a buffer at that moment has given it back, and what it had
  // begun has ended.
  bool have_ended(const std::vector<uint64_t>& uses);

 private:
  friend class BufferLease;
  class Polling;
  explicit BufferPool(base::Executor& executor) : executor_(executor), waiting_(executor) {}
  void give_back(OpBuffer& buffer) {
    if (buffer.under_way()) [[unlikely]] {
      abandoned_.push_back(&buffer);
    } else {
      // create() reserves room for all buffers; nothing else makes the list larger.
      PMSTORE_CHECK(free_.size() < free_.capacity(), "a buffer is given back once");
      ++buffer.uses;
      free_.push_back(&buffer);  // last in, first out: the same cache lines again
    }
    // Also when the buffer is abandoned: the waiter then polls until the buffer's request ends.
    if (waiting_.waiting() > 0) waiting_.notify_one();
  }

  struct FreeMemory {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, FreeMemory> memory_;
  std::unique_ptr<fabric::MemoryRegion> region_;
  std::vector<OpBuffer> buffers_;
  // Frees the abandoned buffers whose requests have ended by now.
  void reclaim();

  std::vector<OpBuffer*> free_;
  // Given back by a coroutine that was destroyed while a request was under way: the RNIC may still
  // reach them. The end of unsignaled work is not known; such a buffer stays here until the
  // connection ends.
  std::vector<OpBuffer*> abandoned_;
  base::Executor& executor_;
  base::WaitList waiting_;
};

BufferLease::~BufferLease() {
  if (buffer_ != nullptr) pool_->give_back(*buffer_);
}

}  // namespace pmstore::internal
