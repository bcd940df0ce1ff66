// Zeroed anonymous memory whose pages become resident when they are used: for what clients access
// one-sided.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"

namespace pmstore::internal {

// Io when the operating system refuses. Release with unmap_pages().
Result<std::span<std::byte>> map_pages(size_t bytes);
void unmap_pages(std::span<std::byte> pages);

}  // namespace pmstore::internal
