#include "pmstore/shard/scan_cursors.h"

#include "base/check.h"
#include "base/random.h"

namespace pmstore::internal {

namespace {

constexpr unsigned kSlotBits = 32;

constexpr uint32_t number_of(uint64_t bits) {
  const auto number = static_cast<uint32_t>(bits);
  return number == 0 ? 1 : number;
}

}  // namespace

ScanCursors::ScanCursors(uint64_t seed) : number_(number_of(base::mix64(seed))) {}

Result<uint64_t> ScanCursors::position(uint64_t cursor) {
  if (cursor == 0) return uint64_t{0};
  if (cursor >> kSlotBits != number_) {
    return make_error(ErrorCode::kTrimmed,
                      "the server has moved records, or has started, since the scan began; begin "
                      "the scan again");
  }
  ++pages_;
  return cursor & UINT32_MAX;
}

uint64_t ScanCursors::cursor(uint64_t position) {
  if (position == 0) return 0;
  PMSTORE_CHECK(position <= UINT32_MAX, "the number of a slot, divided by 64, has 32 bits");
  ++pages_;
  open_ = true;
  return uint64_t{number_} << kSlotBits | position;
}

void ScanCursors::records_move() {
  if (!open_) return;
  number_ = number_of(uint64_t{number_} + 1);
  open_ = false;
}

}  // namespace pmstore::internal
