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
      rings_(records.catalog().header().ring_count),
      outcomes_(records.catalog().header().ring_count) {}

void ClientRings::add(const TableCatalog::RingPlace& place, log::Ring ring) {
  hold(place, std::move(ring));
}

ClientRings::Held& ClientRings::hold(const TableCatalog::RingPlace& place, log::Ring ring) {
  const auto free = std::find_if(rings_.begin(), rings_.end(),
                                 [](const Held& held) { return !held.ring.has_value(); });
  PMSTORE_CHECK(free != rings_.end(), "the catalog says how many rings there can be");
  outcomes_.begin_session(static_cast<size_t>(free - rings_.begin()),
                          ring.expired_below_sequence());
  free->ring.emplace(std::move(ring));
  free->extent = place.extent;
  return *free;
}

uint32_t ClientRings::count() const {
  return static_cast<uint32_t>(std::count_if(
      rings_.begin(), rings_.end(), [](const Held& held) { return held.ring.has_value(); }));
}

uint32_t ClientRings::new_rings() const {
  const uint32_t left = most() - count();
  return std::min(left, records_.catalog().rings_per_extent());
}

Result<uint32_t> ClientRings::make() {
  if (latch_.failed()) return latch_.error();
  const TableCatalog& catalog = records_.catalog();
  const uint32_t fresh = new_rings();
  if (fresh == 0) {
    return make_error(ErrorCode::kFull,
                      "the pool has all the client rings that it can have; "
                      "create it with more --rings");
  }
  auto places = catalog.make_rings(fresh);
  if (!places && places.code() == ErrorCode::kIo) latch_.set();
  if (!places) return places.error();
  uint32_t first = 0;
  while (has(first)) ++first;
  for (const TableCatalog::RingPlace& place : *places) {
    PMSTORE_TRY(auto ring, catalog.open_ring(place));
    PMSTORE_TRY_STATUS(ring.walk([](const log::EntryView&) {}));
    PMSTORE_CHECK(ring.owner() == 0 && ring.position().start_lsn == ring.position().tail_lsn,
                  "a new ring has nothing of an earlier one");
    hold(place, std::move(ring)).is_new = true;
  }
  return first;
}

Result<bool> ClientRings::zero_ahead(uint64_t most_bytes) {
  if (latch_.failed()) return latch_.error();
  const uint32_t count = new_rings();
  if (count == 0) return false;
  auto more = records_.catalog().zero_ahead_of_rings(count, most_bytes);
  if (!more) latch_.set();
  return more;
}

Status ClientRings::give_back(uint32_t index) {
  if (latch_.failed()) return latch_.error();
  if (!comes_back(index)) return {};
  const persist::Extent extent = *rings_[index].extent;
  std::vector<Held*> together;
  for (Held& held : rings_) {
    if (!held.extent || held.extent->entry != extent.entry) continue;
    if (held.ring->owner() != 0) return {};
    PMSTORE_CHECK(!held.lent, "a ring given back has no owner and no region");
    together.push_back(&held);
  }
  for (Held* const held : together) {
    PMSTORE_TRY_STATUS(truncate_through(*held->ring, UINT64_MAX));
    const log::RingPosition position = held->ring->position();
    PMSTORE_CHECK(position.start_lsn == position.tail_lsn,
                  "what is in place durably is all that leaves with a ring");
  }
  if (auto freed = records_.pool().free_extent(extent); !freed) {
    // In a pool of an earlier release it stays a ring.
    if (freed.code() == ErrorCode::kUnsupported) return {};
    latch_.set();
    return freed;
  }
  for (Held* const held : together) {
    PMSTORE_CHECK(held->ring->owner() == 0 && held->extent->entry == extent.entry,
                  "a ring that is given back has no owner, and goes with its extent");
    *held = {};
  }
  return {};
}

Status ClientRings::give_back_unowned() {
  for (uint32_t i = 0; i < most(); ++i) {
    PMSTORE_TRY_STATUS(give_back(i));
  }
  return {};
}

size_t ClientRings::index_of(const log::Ring& ring) const {
  const auto* const first = reinterpret_cast<const std::byte*>(rings_.data());
  const auto index =
      static_cast<size_t>(reinterpret_cast<const std::byte*>(&ring) - first) / sizeof(Held);
  PMSTORE_CHECK(index < rings_.size() && rings_[index].ring && &*rings_[index].ring == &ring,
                "the ring is one of these");
  return index;
}

uint32_t ClientRings::last_session() const {
  uint32_t last = 0;
  for (const Held& held : rings_) {
    if (held.ring) last = std::max(last, held.ring->position().incarnation);
  }
  return last;
}

Status ClientRings::take(uint32_t index, uint64_t owner, uint32_t number,
                         uint64_t outcomes_until_ns, uint64_t now_ns) {
  if (latch_.failed()) return latch_.error();
  log::Ring& ring = at(index);
  PMSTORE_CHECK(!rings_[index].lent, "no device reaches a ring that gets another session");
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
    if (owner != 0 && !rings_[index].is_new) {
      PMSTORE_TRY_STATUS(ring.erase_leftovers());
    }
  }
  rings_[index].is_new = false;
  // To a new owner, everything before this session is unknown, not aborted.
  PMSTORE_TRY_STATUS(ring.take_over(owner, number, first));
  PMSTORE_CHECK(ring.position().incarnation == number, "a ring says whose session it is");
  outcomes_.begin_session(index, first, first + kSessionSequences);
  return {};
}

Result<std::optional<Outcome>> ClientRings::outcome(TxId id, bool own, uint64_t now_ns) const {
  if (const auto sealed = outcomes_.sealed(id, now_ns)) return *sealed;
  for (const Held& held : rings_) {
    if (!held.ring) continue;
    const log::Ring& ring = *held.ring;
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
  for (const Held& held : rings_) {
    if (!held.ring) continue;
    PMSTORE_TRY_STATUS(read_entries(*held.ring, UINT64_MAX));
    slots_.flush(records_);
  }
  return {};
}

}  // namespace pmstore::internal
