// FramePool: recycles coroutine frames, so that starting a Task costs a few instructions, not a
// malloc.
//
// Per thread, one free list per 64-byte size class up to 2 KiB, each bounded to kKept frames.
// Beyond either limit, operator new/delete are used. A thread may free a frame that another thread
// has allocated.
#pragma once

#include <cstddef>

namespace pmstore::base {

class FramePool {
 public:
  static void* allocate(size_t bytes);
  static void release(void* frame, size_t bytes) noexcept;

 private:
  static constexpr size_t kClassBytes = 64;
  static constexpr size_t kClasses = 32;
  static constexpr size_t kKept = 256;
  struct FreeFrame {
    FreeFrame* next;
  };
  struct PerThread {
    FreeFrame* heads[kClasses] = {};
    size_t counts[kClasses] = {};
    ~PerThread();
  };
  static thread_local PerThread lists_;
};

}  // namespace pmstore::base
