// Appending is on the path of every put: it must not allocate. Counts calls of operator new.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "log/ring.h"
#include "persist/memory.h"
#include "tests/crash/crash_image.h"

namespace {
std::atomic<uint64_t> allocations{0};
}  // namespace

// Not inlined, or the compiler takes malloc and free for a mismatched pair.
[[gnu::noinline]] void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace pmstore::log {
namespace {

TEST(RingAllocation, AppendsOfAllSizesAllocateNothing) {
  constexpr uint64_t kBytes = 1 << 20;
  crash::PageBytes region(kBytes);
  persist::Memory memory(region.bytes(), {.domain = persist::Domain::kMemoryController});
  Ring ring = Ring::format(memory, 0, kBytes, 1).value();
  const std::vector<std::byte> payload(3000);
  const uint64_t before = allocations.load();
  bool fine = true;
  for (size_t bytes = 0; bytes < payload.size(); bytes += 37) {
    const auto lsn = ring.append(bytes, std::span(payload).first(bytes));
    fine = fine && lsn && memory.drain();
    if (ring.position().free_bytes() < kBytes / 4)
      fine = fine && ring.truncate(*memory.drain(), *lsn, 0);
  }
  const uint64_t after = allocations.load();
  EXPECT_TRUE(fine);
  EXPECT_EQ(after - before, 0u);
  EXPECT_GT(before, 0u) << "the counter is not linked in";
}

}  // namespace
}  // namespace pmstore::log
