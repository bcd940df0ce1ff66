// WrittenSlots: the slots that redo records describe. They are flushed before the redo records
// leave their ring or log.
//
// Keeps its memory between uses. Threads: one. Lifetimes: the records are borrowed by the calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "pmstore/layout/shard_record.h"
#include "pmstore/shard/record_store.h"

namespace pmstore::internal {

class WrittenSlots {
 public:
  void clear() { slots_.clear(); }
  // Notes the writes of one redo record, which `redo` walks; nothing when it is malformed.
  template <typename Redo>
  void note(const SlabArena& arena, Redo& redo) {
    const size_t before = slots_.size();
    while (const auto write = redo.next()) note_write(arena, *write);
    if (redo.malformed()) slots_.resize(before);
  }
  // Each slot once. Not durable before a drain.
  void flush(RecordStore& records);

 private:
  void note_write(const SlabArena& arena, const LoggedWrite& write);
  std::vector<std::pair<uint64_t, uint64_t>> slots_;  // slot, bytes
};

}  // namespace pmstore::internal
