// Zeroed anonymous memory whose pages become resident when they are used: for what clients access
// one-sided.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace pmstore::internal {

// Memory that is used from its begin on gets huge pages, where the system has them; used here and
// there, it would become resident as a whole.
enum class PagesUse : uint8_t { kFromTheBegin, kAnywhere };
// Io when the operating system refuses. Release with unmap_pages().
Result<std::span<std::byte>> map_pages(size_t bytes, PagesUse use);
void unmap_pages(std::span<std::byte> pages);
// Whole pages of such memory go back to the system: they stay mapped, and are zero. No device may
// have pinned them.
void release_pages(std::span<std::byte> pages);

}  // namespace pmstore::internal
