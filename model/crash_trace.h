// Trace: the steps of a program on a persistent memory, with the moments of its acknowledgements.
// CrashRecorder makes it, CrashStates replays it. A plain value.
//
// Mutants: without(n) is the trace of a program that lacks one flush, drain, fence or msync; of a
// non-temporal store it keeps the store and removes the flush.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/nvm_observer.h"
#include "persist/domain.h"

namespace pmstore::model {

enum class EventKind : uint8_t {
  kStore,
  kFlush,
  kDrain,
  kMark,
  kDmaWrite,
  kPacket,
  kProcessEnd,
  kFence,  // eADR only
  kSync,   // an msync, where there is no persistence domain
};

struct Event {
  EventKind kind;
  bool non_temporal = false;           // kStore
  Landing landing = Landing::kMemory;  // kDmaWrite
  Packet packet = Packet::kArrived;    // kPacket
  uint32_t qp = 0;                     // kPacket
  uint64_t offset = 0;                 // in the memory
  uint64_t bytes = 0;                  // kDrain: of these only (another machine's); 0: of all
  std::vector<std::byte> data;         // kStore, kDmaWrite

  bool writes() const { return kind == EventKind::kStore || kind == EventKind::kDmaWrite; }
};

struct Trace {
  persist::Domain domain = persist::Domain::kMemoryController;
  std::vector<std::byte> initial;  // all of it durable
  std::vector<Event> events;

  Trace without(size_t event) const;
  // The flushes (non-temporal stores too), drains, fences and msyncs, to be left out one by one;
  // not those that find nothing to do (no store to flush, nothing flushed to drain): without them
  // it is the same run.
  std::vector<size_t> barriers() const;
  // "event 12 of 40: flush of 64 bytes at 4096"
  std::string describe(size_t event) const;
};

}  // namespace pmstore::model
