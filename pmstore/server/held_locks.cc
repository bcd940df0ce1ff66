#include "pmstore/server/held_locks.h"

#include <algorithm>
#include <utility>

#include "pmstore/layout/lock_word.h"

namespace pmstore::internal {

unsigned HeldLocks::look(std::span<const SlotOffset> listed, const LockTable& words, uint16_t owner,
                         uint64_t slot_space_bytes) {
  std::map<SlotOffset, Held> held;
  unsigned most = 0;
  for (const SlotOffset slot : listed) {
    // The client has written the list, so an entry may say anything.
    if (raw(slot) >= slot_space_bytes || raw(slot) % 64 != 0) continue;
    const LockWord word = words.load(slot);
    if (!word.is_locked() || word.owner() != owner) continue;
    const auto before = held_.find(slot);
    const bool same = before != held_.end() && before->second.bits == word.bits;
    const unsigned looks = same ? before->second.looks + 1 : 1;
    held.insert_or_assign(slot, Held{word.bits, looks});
    most = std::max(most, looks);
  }
  held_ = std::move(held);
  return most;
}

}  // namespace pmstore::internal
