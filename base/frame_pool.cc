#include "base/frame_pool.h"

#include <new>

namespace pmstore::base {

thread_local FramePool::PerThread FramePool::lists_;

FramePool::PerThread::~PerThread() {
  for (size_t i = 0; i < kClasses; ++i) {
    while (heads[i] != nullptr) {
      FreeFrame* frame = heads[i];
      heads[i] = frame->next;
      ::operator delete(frame);
    }
    counts[i] = kKept;  // A frame released later on this thread goes straight back.
  }
}

void* FramePool::allocate(size_t bytes) {
  const size_t index = (bytes + kClassBytes - 1) / kClassBytes - 1;
  if (index >= kClasses) return ::operator new(bytes);
  if (FreeFrame* frame = lists_.heads[index]; frame != nullptr) {
    lists_.heads[index] = frame->next;
    --lists_.counts[index];
    return frame;
  }
  return ::operator new((index + 1) * kClassBytes);
}

void FramePool::release(void* frame, size_t bytes) noexcept {
  const size_t index = (bytes + kClassBytes - 1) / kClassBytes - 1;
  if (index >= kClasses || lists_.counts[index] >= kKept) {
    ::operator delete(frame);
    return;
  }
  auto* node = static_cast<FreeFrame*>(frame);
  node->next = lists_.heads[index];
  lists_.heads[index] = node;
  ++lists_.counts[index];
}

}  // namespace pmstore::base
