#include "base/frame_pool.h"

#include <sanitizer/asan_interface.h>

#include <new>

namespace pmstore::base {

thread_local FramePool::PerThread FramePool::lists_;

FramePool::PerThread::~PerThread() {
  for (size_t i = 0; i < kClasses; ++i) {
    while (heads[i] != nullptr) {
      FreeFrame* frame = heads[i];
      heads[i] = frame->next;
      ASAN_UNPOISON_MEMORY_REGION(frame, (i + 1) * kClassBytes);
      ::operator delete(frame);
    }
    counts[i] = kKept;  // A frame released later on this thread goes straight back.
  }
}

[[gnu::hot]] void* FramePool::allocate(size_t bytes) {
  const size_t index = (bytes + kClassBytes - 1) / kClassBytes - 1;
  if (index >= kClasses) return ::operator new(bytes);
  PerThread& mine = lists_;  // each look asks whether this thread has it already
  FreeFrame* const frame = mine.heads[index];
  if (frame == nullptr) return ::operator new((index + 1) * kClassBytes);
  mine.heads[index] = frame->next;
  --mine.counts[index];
  ASAN_UNPOISON_MEMORY_REGION(frame, (index + 1) * kClassBytes);
  return frame;
}

[[gnu::hot]] void FramePool::release(void* frame, size_t bytes) noexcept {
  const size_t index = (bytes + kClassBytes - 1) / kClassBytes - 1;
  if (index >= kClasses) return ::operator delete(frame);
  PerThread& mine = lists_;
  if (mine.counts[index] >= kKept) return ::operator delete(frame);
  auto* node = static_cast<FreeFrame*>(frame);
  node->next = mine.heads[index];
  mine.heads[index] = node;
  ++mine.counts[index];
  // The address sanitizer is told that the frame is dead, as it would be after a free. (Without the
  // sanitizer this is nothing.)
  ASAN_POISON_MEMORY_REGION(node + 1, (index + 1) * kClassBytes - sizeof(FreeFrame));
}

}  // namespace pmstore::base
