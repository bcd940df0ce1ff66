#include "pmstore/shard/shared_pages.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace pmstore::internal {

Result<std::span<std::byte>> map_pages(size_t bytes) {
  void* pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) {
    return make_error(ErrorCode::kIo, "cannot map " + std::to_string(bytes) + " bytes of memory: " +
                                          std::strerror(errno) + "; use a smaller pool");
  }
  madvise(pages, bytes, MADV_NOHUGEPAGE);  // fails where the kernel knows no huge pages
  return std::span(static_cast<std::byte*>(pages), bytes);
}

void unmap_pages(std::span<std::byte> pages) {
  if (!pages.empty()) munmap(pages.data(), pages.size());
}

void join_pages(std::span<std::byte> pages) {
  madvise(pages.data(), pages.size(), MADV_HUGEPAGE);  // fails as above
}

void release_pages(std::span<std::byte> pages) {
  const int released = madvise(pages.data(), pages.size(), MADV_DONTNEED);
  PMSTORE_CHECK(released == 0, "pages of a mapping of one's own can be given back");
  madvise(pages.data(), pages.size(), MADV_NOHUGEPAGE);
}

}  // namespace pmstore::internal
