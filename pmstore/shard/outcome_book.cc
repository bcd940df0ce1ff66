#include "pmstore/shard/outcome_book.h"

#include <algorithm>

#include "base/check.h"

namespace pmstore::internal {

void OutcomeBook::begin_session(size_t ring, uint64_t first_sequence, uint64_t end_sequence) {
  PMSTORE_CHECK(ring < notes_.size() && first_sequence <= end_sequence,
                "the sequences of a session are a range");
  notes_[ring] = {first_sequence, end_sequence, {}};
}

void OutcomeBook::truncated(size_t ring, uint64_t sequence) {
  Notes& notes = notes_[ring];
  // Other sequences are of an earlier session, which is sealed.
  if (sequence < notes.known_from || sequence >= notes.below) return;
  notes.committed.push_back(sequence);
  if (notes.committed.size() <= kNotes) return;
  notes.known_from = std::max(notes.known_from, notes.committed.front() + 1);
  notes.committed.pop_front();
  PMSTORE_CHECK(notes.committed.size() <= kNotes, "notes are bounded");
}

std::optional<Outcome> OutcomeBook::noted(size_t ring, uint64_t sequence) const {
  const Notes& notes = notes_[ring];
  const bool committed =
      std::find(notes.committed.begin(), notes.committed.end(), sequence) != notes.committed.end();
  if (committed) return Outcome::kCommitted;
  if (sequence >= notes.known_from && sequence < notes.below) return Outcome::kAborted;
  return std::nullopt;
}

void OutcomeBook::make_room(uint64_t client, uint64_t now_ns) {
  std::erase_if(sealed_, [&](const Sealed& each) { return each.until_ns <= now_ns; });
  const auto of_client = [&](const Sealed& each) { return each.client == client; };
  const auto count = std::count_if(sealed_.begin(), sealed_.end(), of_client);
  if (static_cast<size_t>(count) >= kSealedPerClient) {
    sealed_.erase(std::find_if(sealed_.begin(), sealed_.end(), of_client));
  }
  if (sealed_.size() >= kSealedPerRing * notes_.size()) sealed_.erase(sealed_.begin());
  PMSTORE_CHECK(sealed_.size() < kSealedPerRing * notes_.size(), "sealed sessions are bounded");
}

void OutcomeBook::seal(size_t ring, uint64_t client, uint64_t below,
                       const std::vector<uint64_t>& in_ring, uint64_t until_ns, uint64_t now_ns) {
  if (until_ns <= now_ns) return;
  make_room(client, now_ns);
  const Notes& notes = notes_[ring];
  Sealed session{client, notes.known_from, std::min(below, notes.below), until_ns, {}};
  const auto keep = [&](uint64_t sequence) {
    if (sequence >= session.known_from && sequence < session.below)
      session.committed.push_back(sequence);
  };
  std::for_each(in_ring.begin(), in_ring.end(), keep);
  std::for_each(notes.committed.begin(), notes.committed.end(), keep);
  std::sort(session.committed.begin(), session.committed.end());
  sealed_.push_back(std::move(session));
}

std::optional<Outcome> OutcomeBook::sealed(TxId id, uint64_t now_ns) const {
  for (const Sealed& each : sealed_) {
    const bool knows = each.client == id.client.low && each.until_ns > now_ns &&
                       id.sequence >= each.known_from && id.sequence < each.below;
    if (!knows) continue;
    const bool committed =
        std::binary_search(each.committed.begin(), each.committed.end(), id.sequence);
    return committed ? Outcome::kCommitted : Outcome::kAborted;
  }
  return std::nullopt;
}

}  // namespace pmstore::internal
