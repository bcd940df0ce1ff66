// Trace: what was done to a persistent memory, step by step, and when something was acknowledged.
// Made by CrashRecorder, replayed by CrashStates. A plain value.
//
// Mutants: without(n) is what a program that lacks that flush, drain, fence or msync would have
// done; of a non-temporal store it leaves the store and takes the flush.
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
