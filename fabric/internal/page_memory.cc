#include "fabric/internal/page_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace pmstore::fabric::internal {

Result<PageMemory> PageMemory::create(size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    return make_error(ErrorCode::kIo, "no memory for " + std::to_string(bytes) + " bytes of rings (" +
                                          std::strerror(errno) + "); use smaller rings");
  }
  PageMemory memory;
  memory.memory_ = {static_cast<std::byte*>(at), bytes};
  return memory;
}

PageMemory::PageMemory(PageMemory&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}

PageMemory& PageMemory::operator=(PageMemory&& other) noexcept {
  std::swap(memory_, other.memory_);
  return *this;
}

PageMemory::~PageMemory() {
  if (!memory_.empty()) munmap(memory_.data(), memory_.size());
}

}  // namespace pmstore::fabric::internal
