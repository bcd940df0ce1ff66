// Capabilities: the orders and atomics that a connection guarantees. Counters: the requests that it
// has posted.
#pragma once

#include <cstdint>

namespace pmstore::fabric {

enum class AtomicScope : uint8_t {
  kNone,    // no remote atomics
  kDevice,  // atomic against remote atomics of the same device only (verbs: IBV_ATOMIC_HCA)
  kGlobal,  // atomic against the target's CPU as well
};

struct Capabilities {
  AtomicScope atomics = AtomicScope::kNone;
  // Requests of one connection take effect at the target in posting order, as verbs' RC promises:
  bool read_after_read = false;    // a READ sees no earlier memory than a READ or atomic before it
  bool read_after_write = false;   // a READ sees the WRITEs posted before it
  bool write_after_write = false;  // also WRITE-with-immediate after WRITE
  // An atomic takes effect after earlier WRITEs, READs and atomics.
  bool atomic_after_write = false;
  // Never guaranteed: that the 64-byte lines of one request take effect at one moment or in some
  // order; that a WRITE waits for READs and atomics posted before it; that a WRITE has taken effect
  // when its completion is delivered (a READ posted behind the WRITE tells that).

  // True: a CPU writes the target's memory (local, software RNIC, tcp and shm), so data is in that
  // CPU's cache when it is acknowledged. False: a device writes it through PCIe.
  bool cpu_moves_data = true;
  // With cpu_moves_data: it is the CPU of the end that posts, so that a request is a load or a
  // store and needs nothing of the peer (local).
  bool poster_moves_data = false;
  bool native_flush = false;
  uint32_t max_inline_bytes = 0;
};

// Totals since the connection was made; one thread writes.
struct Counters {
  uint64_t doorbells = 0;      // posts of a chain to the device
  uint64_t work_requests = 0;  // WQEs posted
  uint64_t completions = 0;    // CQEs taken for own work requests
  uint64_t round_trips = 0;    // waits for the peer: Connection::wait and RPC calls
  uint64_t bytes_written = 0;
  uint64_t bytes_read = 0;
  uint64_t immediates_received = 0;  // messages that needed this side's CPU
  uint64_t server_messages = 0;      // RPC requests sent: each costs the server's CPU

  Counters& operator+=(const Counters& o) {
    doorbells += o.doorbells;
    work_requests += o.work_requests;
    completions += o.completions;
    round_trips += o.round_trips;
    bytes_written += o.bytes_written;
    bytes_read += o.bytes_read;
    immediates_received += o.immediates_received;
    server_messages += o.server_messages;
    return *this;
  }
  Counters operator-(const Counters& o) const {
    return {doorbells - o.doorbells,
            work_requests - o.work_requests,
            completions - o.completions,
            round_trips - o.round_trips,
            bytes_written - o.bytes_written,
            bytes_read - o.bytes_read,
            immediates_received - o.immediates_received,
            server_messages - o.server_messages};
  }
};

}  // namespace pmstore::fabric
