#include "pmstore/shard/client_rings.h"

#include <algorithm>
#include <utility>

#include "base/atomic_copy.h"
#include "base/check.h"
#include "pmstore/layout/shard_record.h"
#include "pmstore/shard/session_numbers.h"

namespace pmstore::internal {

namespace {

Error damaged_ring() {
  return make_error(ErrorCode::kBadPool, "the client's redo ring is damaged");
}

}  // namespace

ClientRings::ClientRings(RecordStore& records, FailureLatch& latch)
    : records_(records),
      memory_(records.memory()),
      latch_(latch),
      outcomes_(records.catalog().header().ring_count) {
  rings_.reserve(records.catalog().header().ring_count);  // references to rings stay valid
}

void ClientRings::add(log::Ring ring) {
  PMSTORE_CHECK(rings_.size() < records_.catalog().header().ring_count,
                "the catalog says how many rings there are");
  outcomes_.begin_session(rings_.size(), ring.expired_below_sequence());
  rings_.push_back(std::move(ring));
}

size_t ClientRings::index_of(const log::Ring& ring) const {
  const auto index = static_cast<size_t>(&ring - rings_.data());
  PMSTORE_CHECK(index < rings_.size(), "the ring is one of these");
  return index;
}

uint32_t ClientRings::last_session() const {
  uint32_t last = 0;
  for (const log::Ring& ring : rings_) last = std::max(last, ring.position().incarnation);
  return last;
}

Status ClientRings::take(uint32_t index, uint64_t owner, uint32_t number,
                         uint64_t outcomes_until_ns, uint64_t now_ns) {
  if (latch_.failed()) return latch_.error();
  log::Ring& ring = rings_[index];
  PMSTORE_CHECK(number > last_session(), "sessions are numbered upwards");
  const uint64_t first = first_sequence_of(number);
  // A walk ends at a damaged entry as it ends at a torn one; the transactions behind it would be
  // called aborted.
  if (!ring.for_each_entry([](const log::EntryView&) {})) return damaged_ring();
  std::vector<uint64_t> sequences;
  PMSTORE_TRY_STATUS(
      ring.walk([&](const log::EntryView& entry) { sequences.push_back(entry.sequence); }));
  if (ring.owner() != 0 && outcomes_until_ns > now_ns) {
    outcomes_.seal(index, ring.owner(), first, sequences, outcomes_until_ns, now_ns);
  }
  if (ring.owner() != owner) {
    PMSTORE_TRY_STATUS(truncate_through(ring, UINT64_MAX));
    // What another client has written or forged in the ring must not be taken for this client's.
    if (owner != 0) {
      PMSTORE_TRY_STATUS(ring.erase_leftovers());
    }
  }
  // To a new owner, everything before this session is unknown, not aborted.
  PMSTORE_TRY_STATUS(ring.take_over(owner, number, first));
  PMSTORE_CHECK(ring.position().incarnation == number, "a ring says whose session it is");
  outcomes_.begin_session(index, first, first + kSessionSequences);
  return {};
}

Result<std::optional<Outcome>> ClientRings::outcome(TxId id, bool own, uint64_t now_ns) const {
  if (const auto sealed = outcomes_.sealed(id, now_ns)) return *sealed;
  for (const log::Ring& ring : rings_) {
    if (!id.client.is_somebody() || ring.owner() != ring_owner(id.client)) continue;
    bool committed = false;
    const auto compare = [&](const log::EntryView& entry) {
      committed |= entry.sequence == id.sequence;
    };
    const bool whole = ring.for_each_entry(compare);
    if (own && !committed) ring.for_each_landed(compare);
    if (committed) return Outcome::kCommitted;
    if (!whole) return damaged_ring();
    if (const auto noted = outcomes_.noted(index_of(ring), id.sequence)) return *noted;
    if (id.sequence < ring.expired_below_sequence()) break;
    return Outcome::kAborted;
  }
  return std::nullopt;
}

Status ClientRings::read_entries(const log::Ring& ring, uint64_t through_lsn) {
  passed_.sequences.clear();
  slots_.clear();
  passed_.end_lsn = ring.position().start_lsn;
  const bool whole = ring.for_each_entry([&](const log::EntryView& entry) {
    if (entry.lsn >= through_lsn) return;
    passed_.end_lsn = entry.next_lsn;
    passed_.sequences.push_back(entry.sequence);
    // Under lock discipline rnic the client may write its ring meanwhile: what is checked must be
    // what is used.
    entry_.resize(entry.payload.size());
    base::copy_from_shared(entry_.data(), entry.payload.data(), entry_.size());
    auto redo = ShardRecordReader::open(entry_, records_.catalog().header().epoch);
    // Not a transaction: recovery skips such an entry too.
    if (!redo || redo->kind() != ShardRecordKind::kRedo) return;
    slots_.note(records_.arena(), *redo);
  });
  return whole ? Status() : damaged_ring();
}

Status ClientRings::truncate_through(log::Ring& ring, uint64_t through_lsn) {
  if (latch_.failed()) return latch_.error();
  PMSTORE_TRY_STATUS(read_entries(ring, through_lsn));
  if (passed_.sequences.empty()) return {};
  // A client may note a tail inside an entry of its own.
  if (passed_.end_lsn > ring.position().tail_lsn) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a redo record ends behind the tail that its client has noted: note the end "
                      "of a record");
  }
  slots_.flush(records_);
  const auto in_place = memory_.drain();
  if (!in_place) {
    latch_.set();
    return in_place.error();
  }
  return truncate(*in_place, ring);
}

Status ClientRings::truncate(persist::Persisted in_place, log::Ring& ring) {
  uint64_t expired_below = ring.expired_below_sequence();
  for (const uint64_t sequence : passed_.sequences) {
    outcomes_.truncated(index_of(ring), sequence);
    expired_below = std::max(expired_below, sequence + 1);
  }
  return ring.truncate(in_place, passed_.end_lsn, expired_below);
}

Status ClientRings::flush_in_place() {
  for (const log::Ring& ring : rings_) {
    PMSTORE_TRY_STATUS(read_entries(ring, UINT64_MAX));
    slots_.flush(records_);
  }
  return {};
}

}  // namespace pmstore::internal
