// MicroAddresses: where the requests of one stream go, as offsets in the target memory.
//
// Streams are independent: each has its own random sequence, or, sequential, its own part of the
// range. A request never leaves the range; with one DIMM it never leaves a 4 KiB stripe of that
// DIMM, the first of every six. One thread.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "tools/bench/micro_point.h"

namespace pmstore::tools {

class MicroAddresses {
 public:
  // Requires check_point(point), and stream < streams.
  MicroAddresses(const MicroPoint& point, uint64_t stream, uint64_t streams);

  uint64_t next() {
    uint64_t slot;
    if (random_places_) {
      slot = random_.below(slots_);
    } else {
      slot = next_slot_;
      if (++next_slot_ == end_slot_) next_slot_ = first_slot_;
    }
    if (slots_per_stripe_ == 0) return slot * stride_;
    return slot / slots_per_stripe_ * (kStripeBytes * kInterleavedDimms) +
           slot % slots_per_stripe_ * stride_;
  }

  // How many different offsets there are.
  uint64_t slots() const { return slots_; }

 private:
  Random random_;
  bool random_places_;
  uint64_t stride_;
  uint64_t slots_;
  uint64_t slots_per_stripe_;  // 0: not confined to one DIMM
  uint64_t first_slot_;        // sequential: this stream's part
  uint64_t end_slot_;
  uint64_t next_slot_;
};

}  // namespace pmstore::tools
