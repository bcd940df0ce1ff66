// Whose ring it is, and what became of the transactions of those whose ring it was.

#include <algorithm>

#include "pmstore/shard/store.h"

namespace pmstore::internal {

namespace {

// Transaction numbers of one session start here: above those of every earlier session of the pool,
// logged or not, so that no transaction's name is ever used twice.
uint64_t first_sequence_of(uint32_t incarnation) { return uint64_t{incarnation} << 32; }
static_assert(kSessionSequences < uint64_t{1} << 32);

}  // namespace

uint32_t Store::last_incarnation() const {
  uint32_t last = 0;
  for (const log::Ring& ring : rings_) last = std::max(last, ring.position().incarnation);
  return last;
}

uint64_t Store::session_sequence(uint32_t index) const {
  return first_sequence_of(rings_[index].position().incarnation);
}

Status Store::take_ring(uint32_t index, uint64_t client, uint64_t outcomes_until_ns,
                        uint64_t now_ns) {
  log::Ring& ring = rings_[index];
  uint32_t incarnation = last_incarnation();
  if (incarnation == UINT32_MAX) {
    return make_error(ErrorCode::kFull,
                      "this pool has had all the sessions that it can number; "
                      "copy its records into a new pool");
  }
  ++incarnation;
  const uint64_t first = first_sequence_of(incarnation);
  // A walk ends at a damaged entry as at a torn one; what lies behind would be called aborted.
  if (!ring.for_each_entry([](const log::EntryView&) {})) {
    return make_error(ErrorCode::kBadPool, "the client's redo ring is damaged");
  }
  std::vector<uint64_t> sequences;
  PMSTORE_TRY_STATUS(
      ring.walk([&](const log::EntryView& entry) { sequences.push_back(entry.sequence); }));
  if (ring.owner() != 0 && outcomes_until_ns > now_ns) {
    outcomes_->seal(index, ring.owner(), first, sequences, outcomes_until_ns, now_ns);
  }
  if (ring.owner() != client) {
    PMSTORE_TRY_STATUS(truncate_through(ring, UINT64_MAX));
    // Nothing that others have written or forged there may be taken for this client's.
    if (client != 0) {
      PMSTORE_TRY_STATUS(ring.erase_leftovers());
    }
  }
  // To a new owner, everything before this session is unknown: not aborted.
  PMSTORE_TRY_STATUS(ring.take_over(client, incarnation, first));
  outcomes_->begin_session(index, first, first + kSessionSequences);
  return {};
}

Result<Outcome> Store::outcome(TxId id, bool own, uint64_t now_ns) {
  if (failed_) {
    return make_error(ErrorCode::kIo,
                      "the server can no longer make anything durable; ask after its restart");
  }
  if (id.sequence >> 32 > last_incarnation()) {
    return make_error(ErrorCode::kInvalidArgument,
                      "there is no transaction " + id.to_string() +
                          " yet: its number is beyond those of every session so far");
  }
  if (const auto sealed = outcomes_->sealed(id, now_ns)) return *sealed;
  for (const log::Ring& ring : rings_) {
    if (id.client == 0 || ring.owner() != id.client) continue;
    bool committed = false;
    const auto look = [&](const log::EntryView& entry) {
      committed |= entry.sequence == id.sequence;
    };
    const bool whole = ring.for_each_entry(look);
    if (own && !committed) ring.for_each_landed(look);
    if (committed) return Outcome::kCommitted;
    if (!whole) return make_error(ErrorCode::kBadPool, "the client's redo ring is damaged");
    if (const auto noted = outcomes_->noted(index_of(ring), id.sequence)) return *noted;
    if (id.sequence < ring.expired_below_sequence()) break;
    return Outcome::kAborted;
  }
  return make_error(ErrorCode::kOutcomeExpired,
                    "the outcome of " + id.to_string() +
                        " is not kept any more: look at what it would have written");
}

}  // namespace pmstore::internal
