// ReservedRange: addresses without memory behind them, for a model that moves no bytes. One thread.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <span>

#include "base/check.h"

namespace pmstore::sim {

class ReservedRange {
 public:
  explicit ReservedRange(size_t bytes) : bytes_(bytes) {
    first_ = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    PMSTORE_CHECK(first_ != MAP_FAILED, "there are addresses");
  }
  ~ReservedRange() { munmap(first_, bytes_); }
  ReservedRange(const ReservedRange&) = delete;
  ReservedRange& operator=(const ReservedRange&) = delete;

  std::byte* at(size_t offset) const { return static_cast<std::byte*>(first_) + offset; }
  std::span<const std::byte> bytes() const { return {at(0), bytes_}; }

 private:
  size_t bytes_;
  void* first_;
};

}  // namespace pmstore::sim
