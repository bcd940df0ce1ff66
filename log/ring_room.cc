#include "log/ring_room.h"

#include <algorithm>
#include <utility>

namespace pmstore::log {

Result<RingRoom> RingRoom::at(persist::Memory& memory, uint64_t offset, uint64_t bytes,
                              uint32_t salt) {
  PMSTORE_TRY_STATUS(Ring::check_place(memory, offset, bytes));
  return RingRoom(Ring(memory, offset, bytes, salt));
}

Result<RingRoom> RingRoom::zeroed(persist::Memory& memory, uint64_t offset, uint64_t bytes,
                                  uint32_t salt) {
  PMSTORE_TRY(RingRoom room, at(memory, offset, bytes, salt));
  PMSTORE_TRY(room.erased_, memory.drain());
  room.data_ = room.ring_.position().data_bytes;
  return room;
}

Result<bool> RingRoom::erase_some(uint64_t most_bytes) {
  if (!erased_) {
    PMSTORE_TRY(erased_, ring_.erase_headers());
  }
  const uint64_t left = ring_.position().data_bytes - data_;
  const uint64_t end = data_ + std::min(left, most_bytes);
  PMSTORE_TRY(erased_, ring_.erase_data(*erased_, data_, end));
  data_ = end;
  return !is_erased();
}

}  // namespace pmstore::log
