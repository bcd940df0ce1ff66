#include "pmstore/shard/lock_table.h"

#include <utility>

#include "pmstore/shard/shared_pages.h"

namespace pmstore::internal {

Result<LockTable> LockTable::create(uint64_t slot_space_bytes) {
  auto pages = map_pages(lock_table_bytes(slot_space_bytes));
  if (!pages) return pages.error();
  return LockTable(*pages);
}

LockTable::LockTable(LockTable&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

LockTable::~LockTable() { unmap_pages(bytes_); }

}  // namespace pmstore::internal
