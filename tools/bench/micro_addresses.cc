#include "tools/bench/micro_addresses.h"

#include <algorithm>

#include "base/check.h"

namespace pmstore::tools {
namespace {

// Aligned requests lie like records, one after the other. Others begin at any multiple of 8, or,
// one after the other, right behind their predecessor.
uint64_t stride_of(const MicroPoint& point) {
  if (micro_unit(point) != 8) return micro_bytes(point);
  if (point.pattern == MicroPattern::kRandom) return 8;
  return persist::round_up(micro_bytes(point), 8);
}

}  // namespace

MicroAddresses::MicroAddresses(const MicroPoint& point, uint64_t stream, uint64_t streams)
    : random_(base::mix64(point.seed) + stream),
      random_places_(point.pattern == MicroPattern::kRandom),
      stride_(stride_of(point)) {
  PMSTORE_CHECK(stream < streams, "a stream without a part would take another one's");
  const uint64_t bytes = micro_bytes(point);
  const auto fitting = [&](uint64_t room) { return (room - bytes) / stride_ + 1; };
  if (point.single_dimm) {
    slots_per_stripe_ = fitting(kStripeBytes);
    slots_ = slots_per_stripe_ * (point.range_bytes / (kStripeBytes * kInterleavedDimms));
  } else {
    slots_per_stripe_ = 0;
    slots_ = fitting(point.range_bytes);
  }
  // More streams than slots share them.
  const uint64_t parts = std::min(streams, slots_);
  const uint64_t part = stream % parts;
  const uint64_t each = slots_ / parts;
  first_slot_ = part * each;
  end_slot_ = part + 1 == parts ? slots_ : first_slot_ + each;
  next_slot_ = first_slot_;
}

}  // namespace pmstore::tools
