#include "pmstore/shard/record_mover.h"

#include "base/check.h"

namespace pmstore::internal {

RecordMover::RecordMover(RecordStore& records, CpuCommit& commits, ShardLog& log,
                         SessionNumbers& sessions)
    : records_(records), commits_(commits), log_(log), sessions_(sessions) {
  slots_.reserve(kMostRecords);
}

void RecordMover::stop() {
  records_.arena().end_emptying();
  slab_.reset();
}

Result<TxId> RecordMover::next_number() {
  if (next_sequence_ == end_sequence_) {
    PMSTORE_TRY(const uint32_t session, sessions_.next(true));
    next_sequence_ = first_sequence_of(session);
    end_sequence_ = next_sequence_ + kSessionSequences;
  }
  return TxId{ClientId(), next_sequence_++};
}

Result<bool> RecordMover::step() {
  SlabArena& arena = records_.arena();
  if (!arena.is_emptying()) {  // also when an allocation needed the room
    slab_.reset();
    if (!arena.begin_emptying()) return false;
    before_ = arena.end_of_chunks();
    emptied_ = false;
  }
  if (!slab_) {
    slab_ = arena.next_to_empty(before_);
    index_ = 0;
    if (!slab_) return before_ > 0 || end_round();
  }
  return step_in(*slab_);
}

Result<bool> RecordMover::step_in(const SlabArena::Slab& slab) {
  SlabArena& arena = records_.arena();
  const uint32_t slots = slots_per_slab(slab.size_class);
  slots_.clear();
  uint64_t bytes = 0;
  for (; index_ < slots && slots_.size() < kMostRecords && bytes < kMostBytes; ++index_) {
    const SlotOffset slot = arena.slot_of(slab, index_);
    if (!commits_.is_movable(slot)) continue;
    slots_.push_back(slot);
    bytes += kSlotBytes[slab.size_class];
  }
  if (!slots_.empty()) {
    PMSTORE_TRY(const TxId id, next_number());
    PMSTORE_TRY(const size_t moved, commits_.move(id, slots_));
    moved_ += moved;
    if (moved > 0) log_.known(id);
    if (moved < slots_.size()) {  // there is no room for the others
      stop();
      return false;
    }
  }
  if (index_ < slots) return true;
  emptied_ |= arena.used_slots_of(slab) == 0;
  arena.end_emptying_slab();
  slab_.reset();
  return true;
}

bool RecordMover::end_round() {
  stop();
  return emptied_;
}

}  // namespace pmstore::internal
