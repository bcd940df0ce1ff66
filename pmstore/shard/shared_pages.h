// Zeroed anonymous memory whose pages become resident when they are used: for what clients access
// one-sided.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"

namespace pmstore::internal {

// Memory of small pages, also where the system gives huge ones unasked: of a huge page all becomes
// resident, and is zeroed in one go, at the first use of any byte. Io when the operating system
// refuses. Release with unmap_pages().
Result<std::span<std::byte>> map_pages(size_t bytes);
void unmap_pages(std::span<std::byte> pages);
// Whole pages of such memory that are in use, or come into use now, may be huge ones: what was used
// before is put together by the system in its own time. The fewer pages, the fewer accesses wait
// for the translation of their address. Without effect where the system has no huge pages.
void join_pages(std::span<std::byte> pages);
// Whole pages of such memory go back to the system: they stay mapped, are zero, and are small ones
// again. No device may have pinned them.
void release_pages(std::span<std::byte> pages);

}  // namespace pmstore::internal
