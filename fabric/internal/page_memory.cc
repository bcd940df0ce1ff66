#include "fabric/internal/page_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

namespace pmstore::fabric::internal {

namespace {

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

// With the guards.
size_t mapped_bytes(size_t bytes) {
  const size_t page = page_bytes();
  return (bytes + page - 1) / page * page + 2 * page;
}

Error no_memory(size_t bytes) {
  return make_error(ErrorCode::kIo, "no memory for " + std::to_string(bytes) + " bytes of rings (" +
                                        std::strerror(errno) + "); use smaller rings");
}

}  // namespace

Result<PageMemory> PageMemory::create(size_t bytes) {
  const size_t mapped = mapped_bytes(bytes);
  void* at = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return no_memory(bytes);
  PageMemory memory;
  memory.memory_ = {static_cast<std::byte*>(at) + page_bytes(), bytes};
  if (mprotect(memory.memory_.data(), mapped - 2 * page_bytes(), PROT_READ | PROT_WRITE) != 0) {
    return no_memory(bytes);
  }
  return memory;
}

void give_back_pages(std::span<std::byte> memory) {
  const size_t page = page_bytes();
  const auto begin = (reinterpret_cast<uintptr_t>(memory.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(memory.data() + memory.size()) / page * page;
  if (begin >= end) return;
  // Without an effect, for instance on locked pages, they only stay.
  static_cast<void>(madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED));
}

PageMemory::PageMemory(PageMemory&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}

PageMemory& PageMemory::operator=(PageMemory&& other) noexcept {
  std::swap(memory_, other.memory_);
  return *this;
}

PageMemory::~PageMemory() {
  if (!memory_.empty()) munmap(memory_.data() - page_bytes(), mapped_bytes(memory_.size()));
}

}  // namespace pmstore::fabric::internal
