// MemorySystem: the memory side of one modelled host: PCIe root complex, last-level cache with DDIO
// ways, socket interconnect, memory controllers, Optane DIMMs and DRAM.
//
// It moves no bytes: it computes the time of each access and keeps the hardware's counters. The
// caller gives the time of each access, roughly in increasing order; an access reserves the
// resources behind it, so that later accesses queue. Times are ps since the start of the
// simulation. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "model/dimm_counters.h"
#include "model/parameters.h"
#include "model/placement.h"

namespace pmstore::model {

struct MemoryOptions {
  uint32_t sockets = 1;
  bool ddio = true;   // device writes may allocate in the last-level cache (H3 switches it off)
  uint64_t seed = 1;  // of what leaves the caches
};

class MemorySystem {
 public:
  MemorySystem(const Parameters& parameters, const MemoryOptions& options);
  ~MemorySystem();

  Placement& placement();
  void set_ddio(bool enabled);
  bool ddio() const;

  // ---- devices; `socket` is the socket of the device's root port ----

  struct DeviceWrite {
    uint64_t visible_ps;   // other devices and CPUs see it; a READ behind it waits for this
    uint64_t accepted_ps;  // the root complex has given back the credits: the device may send more
    bool in_cache;         // it is in the last-level cache now, else in the memory controller
  };
  // A posted write whose last byte reaches the root complex at `at_ps`. Writes of one socket's
  // devices become visible in the order of the calls.
  DeviceWrite device_write(uint32_t socket, uint64_t at_ps, const void* destination,
                           uint32_t bytes);
  // The time at which the data is at the root complex. Waits for the writes before it.
  uint64_t device_read(uint32_t socket, uint64_t at_ps, const void* source, uint32_t bytes);

  // ---- CPUs; `core` is a number of the host, core / cores_per_socket its socket ----
  // Each gives the time at which the core can continue; a store continues before its line has come.

  uint64_t cpu_load(uint32_t core, uint64_t at_ps, const void* source, uint32_t bytes);
  // Reads a message that a device has just written, after its completion. A completion that is in
  // the cache costs nothing here: the caller charges it.
  uint64_t cpu_receive(uint32_t core, uint64_t at_ps, const void* message, uint32_t bytes);
  // Through the cache: a line that is not there is read first (read for ownership).
  uint64_t cpu_store(uint32_t core, uint64_t at_ps, const void* destination, uint32_t bytes);
  uint64_t cpu_store_non_temporal(uint32_t core, uint64_t at_ps, const void* destination,
                                  uint32_t bytes);
  // clwb of every line of the range.
  uint64_t cpu_flush(uint32_t core, uint64_t at_ps, const void* source, uint32_t bytes);
  // sfence: until all that this core flushed or streamed is in the memory controller.
  uint64_t cpu_drain(uint32_t core, uint64_t at_ps);

  // ---- counters ----

  size_t dimms() const;  // of all sockets
  const DimmCounters& dimm(size_t index) const;
  DimmCounters all_dimms() const;
  // The counters of dimm() if its combining buffer were written to the media now.
  DimmCounters settled_dimm(size_t index) const;
  // Lines of NVM that were written and are in a cache: no DIMM has counted them yet.
  uint64_t dirty_nvm_lines() const;
  // Writes back every dirty line that is still in a cache or a combining buffer, for the counters
  // at the end of a measurement; takes no time.
  void settle();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pmstore::model
