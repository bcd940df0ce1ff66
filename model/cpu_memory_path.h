// CpuMemoryPath: the transfers between one core and memory that are under way.
//
// Modelled: a number of fill buffers, which bounds how many lines a core can have under way; when
// the lines that it owns, streams or writes back have arrived. Stores do not make the core wait as
// long as there is a fill buffer; sfence does. Left out: the store buffer itself, out-of-order
// execution beyond loads of one call, write combining across calls (each streaming store of part
// of a line is a transfer of its own).
// One thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/parameters.h"
#include "model/queue.h"

namespace pmstore::model {

class CpuMemoryPath {
 public:
  explicit CpuMemoryPath(const CpuParameters& parameters)
      : buffers_(static_cast<size_t>(parameters.fill_buffers)) {}

  // The time at which a transfer that is requested at `at_ps` can begin; then, that it ends at
  // `done_ps`.
  uint64_t begin(uint64_t at_ps) const { return buffers_.room_at(at_ps); }
  void end(uint64_t done_ps) { buffers_.enter(done_ps); }

  // A store through the cache owns its line at `owned_ps`: no write-back can be earlier.
  void note_owned(uint64_t owned_ps) { owned_ps_ = std::max(owned_ps_, owned_ps); }
  uint64_t owned_ps() const { return owned_ps_; }
  // A line written back or streamed is in the memory controller at `there_ps`: sfence waits.
  void note_persisted(uint64_t there_ps) { persisted_ps_ = std::max(persisted_ps_, there_ps); }
  uint64_t persisted_ps() const { return persisted_ps_; }

 private:
  Window buffers_;
  uint64_t owned_ps_ = 0;
  uint64_t persisted_ps_ = 0;
};

}  // namespace pmstore::model
