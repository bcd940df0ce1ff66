#include "persist/found_pages.h"

#include <unistd.h>

#include <algorithm>

#include "base/check.h"

namespace pmstore::persist {

void make_dirty_again(const Memory& memory, std::byte* from, uint64_t bytes) {
  if (memory.domain() != Domain::kNone || bytes == 0) return;
  const auto offset = static_cast<uint64_t>(from - memory.mapping().data());
  PMSTORE_CHECK(memory.contains(offset, bytes), "only bytes of the memory were found in it");
  const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  // One byte of each page; the mapping begins with a page.
  for (uint64_t at = offset; at < offset + bytes; at = at / page_bytes * page_bytes + page_bytes) {
    __atomic_fetch_or(reinterpret_cast<unsigned char*>(memory.at(at)), 0, __ATOMIC_RELAXED);
  }
}

}  // namespace pmstore::persist
