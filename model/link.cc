#include "model/link.h"

#include "model/picoseconds.h"

namespace pmstore::model {

Link::Link(const LinkParameters& parameters, const Now* now)
    : parameters_(parameters), out_(now), in_(now) {}

uint64_t Link::latency_ps() const { return to_ps(parameters_.latency_ns); }

uint64_t Link::send(uint64_t at_ps, uint64_t payload_bytes) {
  return out_.take(at_ps, wire_ps(payload_bytes)) + latency_ps();
}

uint64_t Link::receive(uint64_t at_ps, uint64_t payload_bytes) {
  const uint64_t duration_ps = wire_ps(payload_bytes);
  return in_.take(at_ps > duration_ps ? at_ps - duration_ps : 0, duration_ps);
}

uint64_t Link::wire_ps(uint64_t payload_bytes) const {
  const auto mtu = static_cast<uint64_t>(parameters_.mtu_bytes);
  const uint64_t packets = payload_bytes == 0 ? 1 : (payload_bytes + mtu - 1) / mtu;
  const double bytes =
      static_cast<double>(payload_bytes) + static_cast<double>(packets) * parameters_.header_bytes;
  return to_ps(bytes / parameters_.bytes_per_ns);
}

}  // namespace pmstore::model
