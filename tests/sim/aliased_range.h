// AliasedRange: a large range of addresses with little memory behind it, the same pages again and
// again: for targets whose contents do not matter, far larger than a modelled cache. One thread.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <span>

#include "base/check.h"

namespace pmstore::sim {

class AliasedRange {
 public:
  static constexpr size_t kPieceBytes = size_t{64} << 20;

  // `bytes` is a multiple of kPieceBytes.
  explicit AliasedRange(size_t bytes) : bytes_(bytes) {
    const int file = memfd_create("aliased", MFD_CLOEXEC);
    PMSTORE_CHECK(file >= 0 && ftruncate(file, kPieceBytes) == 0, "there is memory");
    first_ = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    PMSTORE_CHECK(first_ != MAP_FAILED, "there are addresses");
    for (size_t offset = 0; offset < bytes; offset += kPieceBytes) {
      void* const piece = mmap(at(offset), kPieceBytes, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_FIXED | MAP_POPULATE, file, 0);
      PMSTORE_CHECK(piece != MAP_FAILED, "a piece is mapped");
    }
    close(file);
  }
  ~AliasedRange() { munmap(first_, bytes_); }
  AliasedRange(const AliasedRange&) = delete;
  AliasedRange& operator=(const AliasedRange&) = delete;

  std::byte* at(size_t offset) const { return static_cast<std::byte*>(first_) + offset; }
  std::span<std::byte> bytes() const { return {at(0), bytes_}; }

 private:
  size_t bytes_;
  void* first_;
};

}  // namespace pmstore::sim
