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

// The whole pages of `memory` cost nothing until they are touched again; what was in them is lost.
void give_back_pages(std::span<std::byte> memory);

}  // namespace pmstore::fabric::internal
