#include "pmstore/shard/record_mover.h"

#include <algorithm>

#include "base/check.h"

namespace pmstore::internal {

RecordMover::RecordMover(RecordStore& records, CpuCommit& commits, ShardLog& log,
                         SessionNumbers& sessions, ScanCursors& cursors)
    : records_(records),
      commits_(commits),
      log_(log),
      sessions_(sessions),
      cursors_(cursors),
      probe_(records.pool(), records.arena()) {
  slots_.reserve(kMostRecordsToDisk);
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

Result<bool> RecordMover::step(size_t most) {
  PMSTORE_CHECK(most > 0, "a step moves a record");
  held_ = false;
  auto more = go_on(most);
  waits_ = held_ ? waits_ + 1 : 0;
  return more;
}

Result<bool> RecordMover::go_on(size_t most) {
  SlabArena& arena = records_.arena();
  if (!arena.is_emptying()) {  // also when an allocation needed the room
    slab_.reset();
    if (!arena.begin_emptying()) return false;
    before_ = arena.end_of_chunks();
  }
  // Since the last step it may have lost its last record, and may be another slab now.
  if (slab_ && !arena.is_being_emptied(*slab_)) slab_.reset();
  if (!slab_) {
    slab_ = arena.next_to_empty(before_);
    index_ = 0;
    if (!slab_ && before_ == 0) end_round();
    if (!slab_) return true;
  }
  return step_in(*slab_, most);
}

void RecordMover::find_movable(const SlabArena::Slab& slab, size_t most) {
  const uint32_t slots = slots_per_slab(slab.size_class);
  // With tombstones and heads a record takes less than four times its slot's bytes of the log.
  const uint64_t most_bytes = std::min(most * kBytesOfEach, log_.max_payload_bytes() / 4);
  slots_.clear();
  probe_.forget();
  uint64_t bytes = 0;
  for (; index_ < slots && slots_.size() < most && bytes < most_bytes; ++index_) {
    const SlotOffset slot = records_.arena().slot_of(slab, index_);
    if (!probe_.may_be_live(slab, slot) || !commits_.is_movable(slot)) continue;
    slots_.push_back(slot);
    bytes += kSlotBytes[slab.size_class];
  }
}

Result<bool> RecordMover::step_in(const SlabArena::Slab& slab, size_t most) {
  const uint32_t from = index_;
  const uint8_t size_class = slab.size_class;  // the slab ends with end_slab()
  find_movable(slab, most);
  if (!slots_.empty()) {
    PMSTORE_TRY(const bool room, move_found(from));
    if (!room) {
      end_slab();
      if (!records_.arena().stop_emptying(size_class)) end_round();
      return true;
    }
  }
  if (index_ == slots_per_slab(size_class)) end_slab();
  return true;
}

Result<bool> RecordMover::move_found(uint32_t from) {
  PMSTORE_TRY(const TxId id, next_number());
  const auto moved = commits_.move(id, slots_);
  if (moved) {
    cursors_.records_move();  // no page was given out since move() began
    PMSTORE_CHECK(*moved > 0 && *moved <= slots_.size(), "a move without an error moves something");
    moved_ += *moved;
    log_.known(id);
    if (*moved < slots_.size()) index_ = from;  // the next step sees why
    return true;
  }
  switch (moved.code()) {
    case ErrorCode::kFull: return false;
    case ErrorCode::kTooLarge:
      PMSTORE_CHECK(slots_.size() == 1, "the log takes several that fill a quarter of it");
      return true;  // it stays
    case ErrorCode::kBusy: index_ = from; return true;
    case ErrorCode::kBackPressure:
      index_ = from;
      note_held();
      return true;
    default: return moved.error();
  }
}

// Each attempt writes anew what holds the log. So the next one is due when as much was released as
// this one lacked.
void RecordMover::note_held() {
  held_ = true;
  held_above_ = log_.held_bytes() - std::min(log_.held_bytes(), log_.missing_bytes());
}

bool RecordMover::is_held() const { return waits_ > 0 && log_.held_bytes() > held_above_; }

void RecordMover::end_slab() {
  records_.arena().end_emptying_slab();
  slab_.reset();
}

void RecordMover::end_round() {
  records_.arena().end_round();
  slab_.reset();
}

}  // namespace pmstore::internal
