// OutcomeBook: the outcome table: what became of transactions whose redo records have left their
// ring.
//
// A redo record in a ring proves that its transaction was committed. But a busy client fills its
// ring within milliseconds, and the older records are truncated. So DRAM keeps two things:
//   notes   per ring: the last kNotes sequences that were truncated in its running (or last)
//           session. Together with the ring they list every commit from `known_from` on.
//   sealed  per ended session whose ring a new session has taken: what ring and notes listed at
//           that moment. Kept for the outcome retention.
// A restart of the server loses both. The rings keep what they hold, and it is sealed when the next
// session takes the ring.
//
// Invariant: a sequence in [known_from, below) that is not listed as committed was not committed,
// and never will be once its session is fenced. Bounded: kNotes per ring, kSealedPerClient sessions
// per client, kSealedPerRing sessions per ring of the pool. The oldest are dropped first; their
// transactions are then OutcomeExpired. Threads: one. Nothing here is durable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "pmstore/types.h"

namespace pmstore::internal {

class OutcomeBook {
 public:
  static constexpr size_t kNotes = 4096;
  static constexpr size_t kSealedPerClient = 16;
  static constexpr size_t kSealedPerRing = 32;

  explicit OutcomeBook(size_t rings) : notes_(rings) {}

  // A session of `ring` begins; its sequences are in [first_sequence, end_sequence).
  void begin_session(size_t ring, uint64_t first_sequence, uint64_t end_sequence = UINT64_MAX);
  // The redo record of `sequence`, a committed transaction, is truncated.
  void truncated(size_t ring, uint64_t sequence);
  // Of a sequence whose record is not in the ring: kCommitted when it is noted; kAborted when the
  // notes reach back to it and do not have it; else nullopt.
  std::optional<Outcome> noted(size_t ring, uint64_t sequence) const;

  // The last session of `ring`, which was `client`'s, has ended, and a new session takes the ring,
  // with sequences from `below` on. `in_ring`: the sequences of the records in the ring. The
  // outcomes are kept until `until_ns`.
  void seal(size_t ring, uint64_t client, uint64_t below, const std::vector<uint64_t>& in_ring,
            uint64_t until_ns, uint64_t now_ns);
  // Of a transaction of a sealed session; nullopt when no sealed session covers it.
  std::optional<Outcome> sealed(TxId id, uint64_t now_ns) const;

 private:
  struct Notes {
    uint64_t known_from = 0;
    uint64_t below = UINT64_MAX;
    std::deque<uint64_t> committed;  // in the order of their truncation
  };
  struct Sealed {
    uint64_t client;  // as ring_owner()
    uint64_t known_from;
    uint64_t below;
    uint64_t until_ns;
    std::vector<uint64_t> committed;  // sorted, each in [known_from, below)
  };
  void make_room(uint64_t client, uint64_t now_ns);

  std::vector<Notes> notes_;
  std::vector<Sealed> sealed_;  // in the order in which they were sealed
};

}  // namespace pmstore::internal
