#include "pmstore/server/held_locks.h"

#include <algorithm>
#include <utility>

#include "pmstore/layout/lock_word.h"

namespace pmstore::internal {

uint64_t HeldLocks::look(std::span<const SlotOffset> listed, const LockTable& words, uint16_t owner,
                         uint64_t slot_space_bytes, uint64_t now_ns) {
  std::map<SlotOffset, Held> held;
  uint64_t oldest_ns = now_ns;
  for (const SlotOffset slot : listed) {
    // The client has written the list, so an entry may say anything.
    if (raw(slot) >= slot_space_bytes || raw(slot) % 64 != 0) continue;
    const LockWord word = words.load(slot);
    if (!word.is_locked() || word.owner() != owner) continue;
    const auto before = held_.find(slot);
    const bool same = before != held_.end() && before->second.bits == word.bits;
    const uint64_t since_ns = same ? before->second.since_ns : now_ns;
    held.insert_or_assign(slot, Held{word.bits, since_ns});
    oldest_ns = std::min(oldest_ns, since_ns);
  }
  held_ = std::move(held);
  return oldest_ns;
}

}  // namespace pmstore::internal
