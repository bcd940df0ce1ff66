#include "pmstore/shard/shard_log.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace pmstore::internal {

namespace {

// Wherever the tail is: the entry, and a pad that is a little shorter.
constexpr uint64_t worst_room(uint64_t payload_bytes) {
  return 2 * log::entry_room(payload_bytes) + 2 * persist::kXpLineBytes;
}

Error damaged_log(uint64_t lsn) {
  return make_error(ErrorCode::kBadPool, "the shard log is damaged behind lsn " +
                                             std::to_string(lsn) +
                                             "; restore the pool from a backup");
}

// Behind a truncation there is room for the largest transaction, beside nothing that is reserved.
Error no_room() {
  return make_error(ErrorCode::kBackPressure,
                    "the shard log has no room for this transaction beside what undecided "
                    "transactions of several servers hold of it; try again, split it, or settle "
                    "those");
}

bool is_decision(const ShardRecordReader& record) {
  return record.kind() == ShardRecordKind::kCommit || record.kind() == ShardRecordKind::kAbort;
}

bool is_of_session(TxId id, TxId other) {
  return id.client == other.client && session_of(id.sequence) == session_of(other.sequence);
}

}  // namespace

void SharedFates::see(const log::EntryView& entry, const ShardRecordReader& record) {
  const TxId id{record.client(), entry.sequence};
  if (record.kind() == ShardRecordKind::kRedo && record.is_shared()) {
    undecided_[id] = entry.lsn;
  } else if (is_decision(record)) {
    if (record.kind() == ShardRecordKind::kCommit) committed_.insert(id);
    undecided_.erase(id);
  }
}

Result<uint64_t> walk_shard_log(
    log::Ring& log, const TableCatalog& catalog,
    const std::function<void(const log::EntryView&, ShardRecordReader&)>& visit) {
  uint64_t entries = 0;
  Status sound;
  const auto look = [&](const log::EntryView& entry) {
    if (!sound) return;
    ++entries;
    auto record = ShardRecordReader::open_whole(entry.payload, catalog.header().epoch);
    if (!record) {
      sound =
          make_error(record.code(), catalog.path() + ": the shard log has at lsn " +
                                        std::to_string(entry.lsn) + " " + record.error().message);
    } else if (visit) {
      visit(entry, *record);
    }
  };
  PMSTORE_TRY_STATUS(log.walk(look));
  PMSTORE_TRY_STATUS(sound);
  return entries;
}

ShardLog::ShardLog(RecordStore& records, FailureLatch& latch)
    : records_(records),
      memory_(records.memory()),
      latch_(latch),
      ring_bytes_(records.catalog().header().log_bytes) {}

// ---- sizes ----

uint64_t ShardLog::most_mark_bytes(uint64_t log_bytes) {
  return std::clamp<uint64_t>(log_bytes / 32, 512, 64 << 10);
}

uint64_t ShardLog::room_for_mark(uint64_t log_bytes) {
  return worst_room(most_mark_bytes(log_bytes));
}

uint64_t ShardLog::max_payload_bytes(uint64_t log_bytes) {
  const uint64_t data_bytes = log_bytes - log::kRingHeaderBytes;
  // Beside it there are the last mark and room for the next one.
  const uint64_t half = (data_bytes - 2 * room_for_mark(log_bytes)) / 2;
  constexpr uint64_t kOverhead = 2 * sizeof(log::EntryHeader) + 2 * persist::kXpLineBytes;
  static_assert(worst_room(1024) <= 2 * (1024 + kOverhead));
  const uint64_t payload = persist::round_down(half - kOverhead, log::kLsnUnit);
  return std::min({payload, log::max_payload_bytes(data_bytes), kMostPayloadBytes});
}

// ---- recovery ----

Result<CoordinatorMark> ShardLog::restore() {
  CoordinatorMark last;
  Status whole;
  const bool complete = ring_->for_each_entry([&](const log::EntryView& entry) {
    auto record = ShardRecordReader::open(entry.payload, epoch());
    if (!record) {
      whole = record.error();
      return;
    }
    const TxId id{record->client(), entry.sequence};
    note_pin(id, entry, *record);
    const bool redo = record->kind() == ShardRecordKind::kRedo && !record->is_shared();
    if (redo || record->kind() == ShardRecordKind::kCommit) committed_.push_back(id);
    if (record->kind() != ShardRecordKind::kMark) return;
    auto mark = record->mark();
    if (mark) {
      last = std::move(*mark);
    } else {
      whole = mark.error();
    }
  });
  if (!complete) return damaged_log(ring_->position().start_lsn);
  PMSTORE_TRY_STATUS(whole);
  coordinators_.restore(last);
  coordinators_.raise_floor(ring_->expired_below_sequence());
  return last;
}

Status ShardLog::begin(log::Ring ring) {
  PMSTORE_CHECK(!ring_, "a store has one log");
  ring_.emplace(std::move(ring));
  PMSTORE_TRY(const CoordinatorMark last, restore());
  PMSTORE_TRY_STATUS(ring_->take_over(ring_->owner()));
  if (last.through_lsn <= ring_->position().start_lsn) return {};
  // The mark is there, and there may be no room for another one. Of the copies that belong to it
  // those that are there are the pinned ones.
  PMSTORE_TRY(const Passed passed, read_entries(last.through_lsn));
  committed_.erase(committed_.begin(),
                   committed_.begin() + static_cast<std::ptrdiff_t>(passed.transactions));
  PMSTORE_TRY_STATUS(append_copies(passed.pinned));
  slots_.flush(records_);
  PMSTORE_TRY(const persist::Persisted in_place, memory_.drain());
  return move_start(in_place, last.through_lsn);
}

// ---- appending ----

Result<uint64_t> ShardLog::append(TxId id, std::span<std::byte> scratch, uint64_t payload_bytes) {
  PMSTORE_CHECK(payload_bytes <= max_payload_bytes(),
                "the limit is checked where the plan is made");
  const uint64_t needed = worst_room(payload_bytes) + room_for_mark(ring_bytes_) + reserved_;
  const uint64_t free_bytes = ring_->position().free_bytes();
  missing_bytes_ = needed - std::min(needed, free_bytes);
  if (missing_bytes_ > 0) return no_room();
  PMSTORE_TRY_STATUS(ring_->append_in(id.sequence, scratch, payload_bytes));
  committed_.push_back(id);
  ++unapplied_;
  return ring_->position().tail_lsn;
}

Result<DurableLog> ShardLog::drain() {
  const uint64_t tail_lsn = ring_->position().tail_lsn;
  PMSTORE_TRY(const persist::Persisted persisted, memory_.drain());
  return DurableLog(persisted, tail_lsn);
}

bool ShardLog::has(TxId id) const {
  return std::any_of(committed_.begin(), committed_.end(), [&](TxId each) { return each == id; });
}

// ---- transactions of several servers ----

void ShardLog::set_pin(TxId id, const Pin& pin) { count_pin(std::exchange(pins_[id], pin), pin); }

// A pin without room stands for none.
void ShardLog::count_pin(const Pin& before, const Pin& after) {
  PMSTORE_CHECK(reserved_ >= before.room() && held_ >= before.held(), "what is pinned is counted");
  reserved_ = reserved_ - before.room() + after.room();
  held_ = held_ - before.held() + after.held();
  PMSTORE_CHECK(held_ >= reserved_, "room that is reserved is held");
  if (after.held() < before.held() && less_held_) less_held_();
}

void ShardLog::unpin(TxId id) {
  const auto at = pins_.find(id);
  PMSTORE_CHECK(at != pins_.end(), "what is pinned is unpinned");
  const Pin pin = at->second;
  pins_.erase(at);
  count_pin(pin, {});
}

void ShardLog::note_pin(TxId id, const log::EntryView& entry, const ShardRecordReader& record) {
  if (record.kind() == ShardRecordKind::kRedo && record.is_shared()) {
    const size_t participants = record.participants().size();
    set_pin(id, {entry.lsn, worst_room(entry.payload.size()),
                 worst_room(decision_bytes(participants)), false});
    return;
  }
  if (!is_decision(record)) return;
  if (pins_.contains(id)) unpin(id);
  const auto decision = record.decision();
  PMSTORE_CHECK(decision.has_value(), "the walk has checked it");
  std::erase_if(pins_, [&](const auto& each) {
    const auto& [other, pin] = each;
    const bool known =
        pin.committed && is_of_session(other, id) && other.sequence <= decision->known_through;
    if (known) count_pin(pin, {});
    return known;
  });
  if (record.kind() == ShardRecordKind::kCommit) {
    set_pin(id, {entry.lsn, 0, worst_room(entry.payload.size()), true});
  }
}

log::EntryView ShardLog::pinned(TxId id) const {
  const auto at = pins_.find(id);
  PMSTORE_CHECK(at != pins_.end() && at->second.lsn != Pin::kNotLogged, "its record is in the log");
  const auto entry = ring_->entry_at(at->second.lsn);
  PMSTORE_CHECK(entry.has_value(), "what is pinned was read or written here");
  return *entry;
}

std::vector<TxId> ShardLog::pinned_transactions() const {
  std::vector<TxId> ids;
  for (const auto& [id, pin] : pins_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

Status ShardLog::reserve(TxId id, uint64_t redo_bytes, size_t participants) {
  PMSTORE_CHECK(!pins_.contains(id), "a transaction reserves once");
  const uint64_t data_bytes = ring_->position().data_bytes;
  const uint64_t mark_room = room_for_mark(ring_bytes_);
  const Pin pin{Pin::kNotLogged, worst_room(redo_bytes), worst_room(decision_bytes(participants)),
                false};
  // So a truncation of the whole log always leaves room for the next one.
  const uint64_t most = data_bytes / 2 - std::min(data_bytes / 2, mark_room);
  if (pin.room() > most) {
    return make_error(ErrorCode::kTooLarge,
                      "a transaction of several servers may take " + std::to_string(most) +
                          " bytes of this pool's shard log, with room for copies, and needs " +
                          std::to_string(pin.room()) +
                          "; split it, or create the pool with larger --shard-log-bytes");
  }
  if (reserved_ + pin.room() > most) {
    return make_error(ErrorCode::kBackPressure,
                      "transactions of several servers that are not decided hold as much of the "
                      "shard log as they may; try again, or settle them");
  }
  const uint64_t needed = pin.room() + mark_room + reserved_;
  if (ring_->position().free_bytes() < needed && unapplied_ == 0) {
    PMSTORE_TRY_STATUS(make_room_of(pin.room() + mark_room));
  }
  if (ring_->position().free_bytes() < needed) return no_room();
  set_pin(id, pin);
  return {};
}

Result<uint64_t> ShardLog::append_prepared(TxId id, std::span<std::byte> scratch,
                                           uint64_t payload_bytes) {
  Pin pin = pins_.at(id);
  PMSTORE_CHECK(pin.lsn == Pin::kNotLogged && worst_room(payload_bytes) <= pin.redo_room,
                "a redo record is logged once, in the room that was reserved");
  PMSTORE_TRY(pin.lsn, ring_->append_in(id.sequence, scratch, payload_bytes));
  set_pin(id, pin);
  ++unapplied_;
  return ring_->position().tail_lsn;
}

Result<uint64_t> ShardLog::append_commit(TxId id, std::span<const std::byte> record) {
  Pin pin = pins_.at(id);
  PMSTORE_CHECK(pin.lsn != Pin::kNotLogged && !pin.committed, "what is prepared is decided once");
  PMSTORE_CHECK(worst_room(record.size()) <= pin.decision_room, "it is in the room for it");
  PMSTORE_TRY(pin.lsn, ring_->append(id.sequence, record));
  pin.committed = true;
  set_pin(id, pin);
  committed_.push_back(id);
  ++unapplied_;
  return ring_->position().tail_lsn;
}

Result<uint64_t> ShardLog::append_abort(TxId id, std::span<const std::byte> record) {
  const Pin pin = pins_.at(id);
  PMSTORE_CHECK(pin.lsn != Pin::kNotLogged && !pin.committed, "what is prepared is decided once");
  PMSTORE_TRY_STATUS(ring_->append(id.sequence, record));
  unpin(id);
  ++unapplied_;
  return ring_->position().tail_lsn;
}

// Each is pinned at its LSN.
Status ShardLog::append_copies(const std::vector<uint64_t>& lsns) {
  for (const uint64_t lsn : lsns) {
    PMSTORE_TRY(const log::EntryView entry, ring_->entry_at(lsn));
    PMSTORE_TRY(const ShardRecordReader record, ShardRecordReader::open(entry.payload, epoch()));
    const TxId id{record.client(), entry.sequence};
    Pin pin = pins_.at(id);
    PMSTORE_CHECK(pin.lsn == lsn, "what is pinned has one place");
    const auto copied = ring_->append(entry.sequence, entry.payload);
    PMSTORE_CHECK(copied.has_value(), "each append leaves room for copies of what is pinned");
    pin.lsn = *copied;
    set_pin(id, pin);
    if (pin.committed) committed_.push_back(id);
  }
  return {};
}

// ---- truncation ----

Result<ShardLog::Passed> ShardLog::read_entries(uint64_t through_lsn) {
  slots_.clear();
  Passed passed{ring_->position().start_lsn, 0, {}, 0};
  bool sound = true;
  const auto note = [&](const log::EntryView& entry) {
    if (!sound) return;
    passed.end_lsn = entry.next_lsn;
    auto record = ShardRecordReader::open(entry.payload, epoch());
    sound = record.has_value();
    if (!sound || record->kind() == ShardRecordKind::kMark) return;
    const auto pin = pins_.find({record->client(), entry.sequence});
    if (pin != pins_.end() && pin->second.lsn == entry.lsn) {
      passed.pinned.push_back(entry.lsn);
      passed.pinned_room += worst_room(entry.payload.size());
    }
    if (record->kind() == ShardRecordKind::kCommit) ++passed.transactions;
    if (record->kind() != ShardRecordKind::kRedo) return;
    passed.transactions += record->is_shared() ? 0 : 1;
    slots_.note(records_.arena(), *record);
  };
  if (!ring_->for_each_entry(note, through_lsn) || !sound) return damaged_log(passed.end_lsn);
  return passed;
}

// Marks of many sessions take an eighth of what is logged at most.
uint64_t ShardLog::step_bytes() const {
  const bool on_disk = memory_.domain() == persist::Domain::kNone;
  return std::max(on_disk ? kStepBytesOfADisk : kStepBytes,
                  std::min(8 * mark_bytes_, kStepBytesOfADisk));
}

Status ShardLog::make_room(uint64_t payload_bytes) {
  return make_room_of(worst_room(payload_bytes) + room_for_mark(ring_bytes_));
}

Status ShardLog::make_room_of(uint64_t bytes) {
  const log::RingPosition& position = ring_->position();
  const uint64_t used = position.tail_lsn - position.start_lsn;
  const uint64_t step = std::max(std::min(used / 4, step_bytes()), bytes);
  uint64_t through_lsn = position.start_lsn + std::min(used, step);
  // What is pinned comes back as a copy: so much more goes. Each pass reads from the start, so the
  // steps become longer.
  while (!pins_.empty() && through_lsn < position.tail_lsn) {
    PMSTORE_TRY(const Passed passed, read_entries(through_lsn));
    if (passed.end_lsn - position.start_lsn >= bytes + passed.pinned_room) break;
    const uint64_t passed_bytes = through_lsn - position.start_lsn;
    through_lsn = std::min(through_lsn + std::max(step, passed_bytes), position.tail_lsn);
  }
  return truncate_through(through_lsn);
}

Status ShardLog::truncate_through(uint64_t through_lsn) {
  if (latch_.failed()) return latch_.error();
  PMSTORE_CHECK(unapplied_ == 0, "a redo record leaves the log only after its writes are in place");
  PMSTORE_TRY(const Passed passed, read_entries(through_lsn));
  if (passed.end_lsn == ring_->position().start_lsn) return {};
  if (ask_what_is_known_) ask_what_is_known_();
  PMSTORE_CHECK(passed.transactions <= committed_.size(), "each redo record is noted");
  for (size_t i = 0; i < passed.transactions; ++i) {
    const TxId id = committed_.front();
    committed_.pop_front();
    if (!pins_.contains(id)) coordinators_.truncated(id);
  }
  const std::vector<std::byte> mark =
      encode_mark(coordinators_.mark(passed.end_lsn, most_mark_bytes(ring_bytes_)), epoch());
  mark_bytes_ = mark.size();
  const auto marked = ring_->append(0, mark);
  PMSTORE_CHECK(marked.has_value(), "each append leaves room for the mark");
  PMSTORE_TRY_STATUS(append_copies(passed.pinned));
  slots_.flush(records_);
  const auto in_place = memory_.drain();
  if (!in_place) {
    latch_.set();
    return in_place.error();
  }
  Status moved = move_start(*in_place, passed.end_lsn);
  if (!moved) latch_.set();
  return moved;
}

Status ShardLog::move_start(persist::Persisted in_place, uint64_t start_lsn) {
  return ring_->truncate(in_place, start_lsn, coordinators_.floor());
}

Status ShardLog::flush_in_place() {
  PMSTORE_CHECK(unapplied_ == 0, "every transaction of a group is answered before the end");
  PMSTORE_TRY_STATUS(read_entries(UINT64_MAX));
  slots_.flush(records_);
  return {};
}

}  // namespace pmstore::internal
