// Reservations: the slots that clients have reserved for new records (LockDiscipline::kRnic).
//
// A client that inserts a key, or moves a record into a larger slot, reserves a slot first. Until
// its redo record is applied, the slot holds no record of the key; for an insert the index shows
// the slot already, so that a second insert of the key meets the first one.
// Invariant: a slot has at most one reservation. Threads: one. DRAM only: a restart has none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "pmstore/types.h"

namespace pmstore::internal {

struct Reservation {
  uint16_t owner;  // of the lock word
  bool indexed;    // the index shows the slot for the key: an insert, not a move
  TableId table;
  std::string key;
  uint64_t sequence = 0;  // of the owner's transaction
  uint64_t number = 0;    // no two reservations have the same number
};

class Reservations {
 public:
  // CHECK: the slot has no reservation.
  void add(SlotOffset slot, Reservation reservation);
  // CHECK: the slot has a reservation.
  void remove(SlotOffset slot);
  // nullptr when the slot has none. Valid until the reservation is removed.
  const Reservation* at(SlotOffset slot) const {
    if (by_slot_.empty()) return nullptr;
    const auto found = by_slot_.find(raw(slot));
    return found == by_slot_.end() ? nullptr : &found->second;
  }
  bool any_in(TableId table) const;
  std::vector<SlotOffset> of_owner(uint16_t owner) const;
  uint64_t size() const { return by_slot_.size(); }

 private:
  std::unordered_map<uint64_t, Reservation> by_slot_;
  uint64_t last_number_ = 0;
};

}  // namespace pmstore::internal
