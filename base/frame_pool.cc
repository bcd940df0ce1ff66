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
  if (FreeFrame* frame = lists_.heads[index]; frame != nullptr) {
    lists_.heads[index] = frame->next;
    --lists_.counts[index];
    ASAN_UNPOISON_MEMORY_REGION(frame, (index + 1) * kClassBytes);
    return frame;
  }
  return ::operator new((index + 1) * kClassBytes);
}

[[gnu::hot]] void FramePool::release(void* frame, size_t bytes) noexcept {
  const size_t index = (bytes + kClassBytes - 1) / kClassBytes - 1;
  if (index >= kClasses || lists_.counts[index] >= kKept) {
    ::operator delete(frame);
    return;
  }
  auto* node = static_cast<FreeFrame*>(frame);
  node->next = lists_.heads[index];
  lists_.heads[index] = node;
  ++lists_.counts[index];
  // The address sanitizer is told that the frame is dead, as it would be after a free. (Without the
  // sanitizer this is nothing.)
  ASAN_POISON_MEMORY_REGION(node + 1, (index + 1) * kClassBytes - sizeof(FreeFrame));
}

}  // namespace pmstore::base
