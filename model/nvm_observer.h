// NvmObserver: told of every step on the persistent memory of one modelled host: those of its CPU
// (persist::Observer) and those of its devices.
//
// Each call is made before the step takes effect, in the order of the steps. So a recorder of the
// calls knows what remains after a power failure between any two of them (crash_states.h). Threads:
// those of the host, which borrows its observer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "persist/memory.h"

namespace pmstore::model {

// Where the bytes of a device's write are when it has taken effect.
enum class Landing : uint8_t {
  kLastLevelCache,  // DDIO on, or a software RNIC: as a store of the CPU without a flush
  kMemory,          // DDIO off: in the memory controller
};

// Steps without an effect on memory. A power failure before and after such a step differs for a
// host or its peers.
enum class Packet : uint8_t {
  kArrived,       // a request's bytes are in the RNIC's buffer: lost with the power
  kAcknowledged,  // the RNIC has answered the request
  kCompleted,     // the requester sees its completion
  kImmediate,     // the host sees an immediate or a message
};

class NvmObserver : public persist::Observer {
 public:
  // `bytes` at `source` are about to replace those at `destination`: the DMA write of one request,
  // or a part of it. May be called for addresses outside the persistent memory; they are ignored.
  // Crashes in the middle of the write are states too, each line by itself, so a caller need not
  // split it; it does where other things happen in between.
  virtual void on_dma_write(const void* destination, const void* source, size_t bytes,
                            Landing landing) = 0;
  // `bytes` of payload, on this queue pair.
  virtual void on_packet(Packet packet, uint32_t qp, size_t bytes) = 0;
  // The host's CPU has posted a WRITE with an immediate of these bytes: the peer may know their
  // content from now on.
  virtual void on_post(std::span<const std::byte> /*message*/) {}
};

}  // namespace pmstore::model
