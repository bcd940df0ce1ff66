#include "pmstore/shard/reservations.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pmstore::internal {

void Reservations::add(SlotOffset slot, Reservation reservation) {
  reservation.number = ++last_number_;
  const bool added = by_slot_.emplace(raw(slot), std::move(reservation)).second;
  PMSTORE_CHECK(added, "a slot that is reserved is not free, so it is not handed out again");
}

void Reservations::remove(SlotOffset slot) {
  PMSTORE_CHECK(by_slot_.erase(raw(slot)) == 1, "a reservation is removed once");
}

bool Reservations::any_in(TableId table) const {
  return std::any_of(by_slot_.begin(), by_slot_.end(),
                     [&](const auto& entry) { return entry.second.table == table; });
}

std::vector<SlotOffset> Reservations::of_owner(uint16_t owner) const {
  std::vector<SlotOffset> slots;
  for (const auto& [slot, reservation] : by_slot_) {
    if (reservation.owner == owner) slots.push_back(static_cast<SlotOffset>(slot));
  }
  return slots;
}

}  // namespace pmstore::internal
