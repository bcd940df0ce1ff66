// Link: the two directions between one RNIC and the others, and the switch between them.
//
// Modelled: bandwidth of each direction, packets of at most mtu_bytes with a header each, one
// latency for both transceivers, cables and the cut-through switch: the last byte arrives one
// latency after it was sent, unless other senders' packets arrive at the same time. Left out: loss
// (so there is no retransmission), the switch's own buffers, routing and priorities (it has full
// bisection; packets that a full receiver does not take wait there, lossless), pause frames, links
// of different speeds. One thread.
#pragma once

#include <cstdint>

#include "model/queue.h"
#include "model/rnic_parameters.h"

namespace pmstore::model {

class Link {
 public:
  // Both are borrowed.
  Link(const LinkParameters& parameters, const Now* now);

  uint64_t latency_ps() const;
  // Sends from `at_ps` on (0 bytes: only a header). Gives the time at which the last byte is at the
  // other end, if no other sender's bytes arrive there.
  uint64_t send(uint64_t at_ps, uint64_t payload_bytes);
  // The last byte would arrive at `at_ps`. Gives the time at which it does, behind the bytes of
  // other senders.
  uint64_t receive(uint64_t at_ps, uint64_t payload_bytes);

 private:
  uint64_t wire_ps(uint64_t payload_bytes) const;

  const LinkParameters& parameters_;
  Server out_, in_;
};

}  // namespace pmstore::model
