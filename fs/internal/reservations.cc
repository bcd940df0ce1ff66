#include "fs/internal/reservations.h"

#include "base/check.h"

namespace pmstore::fs::internal {

uint64_t Reservations::begin(OpenOwner owner, Ino ino, uint64_t from, uint64_t to) {
  PMSTORE_CHECK(from < to, "a reservation has room");
  if (files_.size() >= kMost && !files_.contains(ino)) files_.clear();
  files_[ino] = {owner, ++last_, from, to};
  PMSTORE_CHECK(files_.size() <= kMost, "reservations are bounded");
  return last_;
}

bool Reservations::end(OpenOwner owner, Ino ino, uint64_t id, uint64_t size) {
  const auto found = files_.find(ino);
  if (found == files_.end()) return false;
  const Reserved& reserved = found->second;
  if (reserved.owner != owner || reserved.id != id) return false;
  const bool fits = reserved.from < size && size <= reserved.to;
  files_.erase(found);
  return fits;
}

void Reservations::take_back(Ino ino) { files_.erase(ino); }

void Reservations::take_back_all_of(OpenOwner owner) {
  std::erase_if(files_, [owner](const auto& each) { return each.second.owner == owner; });
}

}  // namespace pmstore::fs::internal
