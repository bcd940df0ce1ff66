#include "pmstore/server/lock_lists.h"

#include "base/atomic_copy.h"
#include "pmstore/shard/shared_pages.h"

namespace pmstore::internal {

Result<std::unique_ptr<LockLists>> LockLists::create() {
  auto pages = map_pages(kLockListsBytes);
  if (!pages) return pages.error();
  return std::unique_ptr<LockLists>(new LockLists(*pages));
}

LockLists::~LockLists() { unmap_pages(bytes_); }

std::vector<SlotOffset> LockLists::slots() const {
  std::vector<SlotOffset> slots;
  for (uint64_t list = 0; list < kLockLists; ++list) {
    for (uint64_t i = 0; i < kLocksPerList; ++i) {
      uint64_t entry;
      base::copy_from_shared(&entry, &bytes_[list * kLockListBytes + i * sizeof(entry)],
                             sizeof(entry));
      if (entry == 0) break;
      slots.push_back(slot_of_entry(entry));
    }
  }
  return slots;
}

}  // namespace pmstore::internal
