#include "pmstore/shard/shared_pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace pmstore::internal {

Result<std::span<std::byte>> map_pages(size_t bytes, PagesUse use) {
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) {
    return make_error(ErrorCode::kIo, "cannot map " + std::to_string(bytes) + " bytes of memory: " +
                                          std::strerror(errno) + "; use a smaller pool");
  }
  // The fewer pages, the fewer accesses wait for the translation of their address. Without effect
  // where the system gives none.
  if (use == PagesUse::kFromTheBegin) madvise(pages, bytes, MADV_HUGEPAGE);
  return std::span(static_cast<std::byte*>(pages), bytes);
}

void unmap_pages(std::span<std::byte> pages) {
  if (!pages.empty()) munmap(pages.data(), pages.size());
}

void release_pages(std::span<std::byte> pages) {
  const int released = madvise(pages.data(), pages.size(), MADV_DONTNEED);
  PMSTORE_CHECK(released == 0, "pages of a mapping of one's own can be given back");
}

}  // namespace pmstore::internal
