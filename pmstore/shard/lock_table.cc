#include "pmstore/shard/lock_table.h"

#include <utility>

#include "pmstore/shard/shared_pages.h"

namespace pmstore::internal {

Result<LockTable> LockTable::create(uint64_t records_bytes) {
  auto pages = map_pages(lock_word_offset(records_bytes), PagesUse::kFromTheBegin);
  if (!pages) return pages.error();
  return LockTable(*pages);
}

LockTable::LockTable(LockTable&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

LockTable::~LockTable() { unmap_pages(bytes_); }

}  // namespace pmstore::internal
