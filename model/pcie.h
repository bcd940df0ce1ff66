// PcieLink and RootPort: the path between a device and its socket.
//
// PcieLink, modelled: latency and bandwidth of each direction, packets of at most max_payload_bytes
// with a header each. RootPort, modelled: posted writes become visible in the order in which they
// came (no relaxed ordering), reads wait for the writes before them, and the root complex works on
// a bounded number of lines and gives credit back as they become visible. Left out: completions
// split at 64-byte read boundaries, flow control of headers and data apart, NoSnoop, TPH. One
// thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/parameters.h"
#include "model/picoseconds.h"
#include "model/queue.h"

namespace pmstore::model {

class PcieLink {
 public:
  explicit PcieLink(const PcieParameters& parameters, const Now* now = nullptr)
      : latency_ps_(to_ps(parameters.latency_ns)),
        ps_per_byte_(1000 / parameters.bytes_per_ns),
        header_bytes_(static_cast<uint64_t>(parameters.header_bytes)),
        payload_bytes_(static_cast<uint64_t>(parameters.max_payload_bytes)),
        to_host_(now),
        to_device_(now) {}

  uint64_t latency_ps() const { return latency_ps_; }
  // The device sends `bytes` (0: only a request). Gives the time at which the last one is at the
  // root complex.
  uint64_t to_host(uint64_t at_ps, uint64_t bytes) { return send(to_host_, at_ps, bytes); }
  // The host sends `bytes`. Gives the time at which the device has the last one.
  uint64_t to_device(uint64_t at_ps, uint64_t bytes) { return send(to_device_, at_ps, bytes); }
  // Transaction packets so far, both directions.
  uint64_t packets() const { return packets_; }

 private:
  uint64_t send(Server& direction, uint64_t at_ps, uint64_t bytes) {
    const uint64_t packets = bytes == 0 ? 1 : (bytes + payload_bytes_ - 1) / payload_bytes_;
    packets_ += packets;
    const auto sent = static_cast<double>(bytes + packets * header_bytes_);
    return direction.take(at_ps, static_cast<uint64_t>(sent * ps_per_byte_)) + latency_ps_;
  }

  uint64_t latency_ps_;
  double ps_per_byte_;
  uint64_t header_bytes_, payload_bytes_;
  uint64_t packets_ = 0;
  Server to_host_, to_device_;
};

class RootPort {
 public:
  explicit RootPort(const PcieParameters& parameters)
      : lines_(static_cast<size_t>(parameters.posted_lines)) {}

  // The time at which the root complex begins with a line that has arrived.
  uint64_t begin(uint64_t at_ps) const { return lines_.room_at(at_ps); }
  // The line begun last is in its target at `done_ps`. Gives the time at which it is visible.
  uint64_t end(uint64_t done_ps) {
    visible_ps_ = std::max(visible_ps_, done_ps);
    lines_.enter(visible_ps_);
    return visible_ps_;
  }
  // The time at which all writes that have arrived are visible.
  uint64_t visible_ps() const { return visible_ps_; }

 private:
  Window lines_;
  uint64_t visible_ps_ = 0;
};

}  // namespace pmstore::model
