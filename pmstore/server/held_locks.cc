#include "pmstore/server/held_locks.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "pmstore/layout/lock_word.h"

namespace pmstore::internal {

void HeldLocks::request_ends(uint64_t begun) {
  PMSTORE_CHECK(begun <= look_, "a request ends behind its beginning");
  unsigned& under_way = begun == look_ ? begun_since_ : begun_before_;
  PMSTORE_CHECK(under_way > 0, "each request ends once");
  --under_way;
}

HeldLocks::Looks HeldLocks::look(std::span<const SlotOffset> listed, const LockTable& words,
                                 uint16_t owner, uint64_t slot_space_bytes) {
  PMSTORE_CHECK(owner != 0, "owner 0 is an unlocked word's");
  const bool excused = begun_before_ > 0;
  begun_before_ += std::exchange(begun_since_, 0);
  ++look_;
  std::map<SlotOffset, Held> held;
  Looks most;
  for (const SlotOffset slot : listed) {
    // The client has written the list, so an entry may say anything.
    if (raw(slot) >= slot_space_bytes || raw(slot) % 64 != 0) continue;
    const LockWord word = words.load(slot);
    if (!word.is_locked() || word.owner() != owner) continue;
    const auto before = held_.find(slot);
    const bool same = before != held_.end() && before->second.bits == word.bits;
    Looks looks = same ? before->second.looks : Looks{};
    ++(excused ? looks.excused : looks.counted);
    held.insert_or_assign(slot, Held{word.bits, looks});
    most = {std::max(most.counted, looks.counted), std::max(most.excused, looks.excused)};
  }
  held_ = std::move(held);
  return most;
}

}  // namespace pmstore::internal
