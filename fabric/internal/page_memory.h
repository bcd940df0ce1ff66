// PageMemory: zeroed, page-aligned anonymous memory between two guard pages. A page costs nothing
// until it is touched or registered with an RNIC.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"

namespace pmstore::fabric::internal {

class PageMemory {
 public:
  // Io when the kernel has no more.
  static Result<PageMemory> create(size_t bytes);
  PageMemory() = default;
  PageMemory(PageMemory&& other) noexcept;
  PageMemory& operator=(PageMemory&& other) noexcept;
  ~PageMemory();
  std::span<std::byte> bytes() const { return memory_; }
  std::byte* data() const { return memory_.data(); }

 private:
  std::span<std::byte> memory_;
};

}  // namespace pmstore::fabric::internal
