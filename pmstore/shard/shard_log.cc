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

}  // namespace

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
    if (record->kind() == ShardRecordKind::kRedo) {
      records_in_log_.push_back({record->client(), entry.sequence});
      return;
    }
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
  if (last.through_lsn > ring_->position().start_lsn) {
    // The mark is the last entry, so there may be no room for another one.
    PMSTORE_TRY(const Passed passed, read_entries(last.through_lsn));
    slots_.flush(records_);
    PMSTORE_TRY(const persist::Persisted in_place, memory_.drain());
    PMSTORE_TRY_STATUS(move_start(in_place, last.through_lsn));
    records_in_log_.erase(
        records_in_log_.begin(),
        records_in_log_.begin() + static_cast<std::ptrdiff_t>(passed.transactions));
  }
  return ring_->take_over(ring_->owner());
}

// ---- appending ----

Result<uint64_t> ShardLog::append(TxId id, std::span<std::byte> scratch, uint64_t payload_bytes) {
  PMSTORE_CHECK(payload_bytes <= max_payload_bytes(),
                "the limit is checked where the plan is made");
  const uint64_t needed = worst_room(payload_bytes) + room_for_mark(ring_bytes_);
  if (ring_->position().free_bytes() < needed) return make_error(ErrorCode::kBackPressure);
  PMSTORE_TRY_STATUS(ring_->append_in(id.sequence, scratch, payload_bytes));
  records_in_log_.push_back(id);
  ++unapplied_;
  return ring_->position().tail_lsn;
}

Result<DurableLog> ShardLog::drain() {
  const uint64_t tail_lsn = ring_->position().tail_lsn;
  PMSTORE_TRY(const persist::Persisted persisted, memory_.drain());
  return DurableLog(persisted, tail_lsn);
}

bool ShardLog::has(TxId id) const {
  return std::any_of(records_in_log_.begin(), records_in_log_.end(),
                     [&](TxId each) { return each == id; });
}

// ---- truncation ----

Result<ShardLog::Passed> ShardLog::read_entries(uint64_t through_lsn) {
  slots_.clear();
  Passed passed{ring_->position().start_lsn, 0};
  bool sound = true;
  const auto note = [&](const log::EntryView& entry) {
    if (!sound) return;
    passed.end_lsn = entry.next_lsn;
    auto record = ShardRecordReader::open(entry.payload, epoch());
    sound = record.has_value();
    if (!sound || record->kind() != ShardRecordKind::kRedo) return;
    ++passed.transactions;
    slots_.note(records_.arena(), *record);
  };
  if (!ring_->for_each_entry(note, through_lsn) || !sound) return damaged_log(passed.end_lsn);
  return passed;
}

Status ShardLog::make_room(uint64_t payload_bytes) {
  const log::RingPosition& position = ring_->position();
  const uint64_t used = position.tail_lsn - position.start_lsn;
  const uint64_t need = worst_room(payload_bytes) + room_for_mark(ring_bytes_);
  const uint64_t step = std::max(std::min(used / 4, kStepBytes), need);
  return truncate_through(position.start_lsn + std::min(used, step));
}

Status ShardLog::truncate_through(uint64_t through_lsn) {
  if (latch_.failed()) return latch_.error();
  PMSTORE_CHECK(unapplied_ == 0, "a redo record leaves the log only after its writes are in place");
  PMSTORE_TRY(const Passed passed, read_entries(through_lsn));
  if (passed.end_lsn == ring_->position().start_lsn) return {};
  if (ask_what_is_known_) ask_what_is_known_();
  PMSTORE_CHECK(passed.transactions <= records_in_log_.size(), "each redo record is noted");
  for (size_t i = 0; i < passed.transactions; ++i) {
    coordinators_.truncated(records_in_log_.front());
    records_in_log_.pop_front();
  }
  const std::vector<std::byte> mark =
      encode_mark(coordinators_.mark(passed.end_lsn, most_mark_bytes(ring_bytes_)), epoch());
  const auto marked = ring_->append(0, mark);
  PMSTORE_CHECK(marked.has_value(), "each append leaves room for the mark");
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
