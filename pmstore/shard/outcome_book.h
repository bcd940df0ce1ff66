// OutcomeBook: what became of transactions whose redo records have left their ring.
//
// A ring answers for what is in it, and a busy client drives its ring once around within
// milliseconds. So two things are kept in DRAM:
//   notes   per ring: which sequences of its running (or last) session were truncated, the last
//           kNotes of them. With the ring they say all that was committed from `known_from` on.
//   sealed  per session that is over, when a new one takes its ring: what ring and notes said
//           then, for the outcome retention. The new session may truncate as it likes.
// A restart of the server loses both; what the rings hold is then sealed anew by the next sessions.
//
// Invariant: a sequence of [known_from, below) that is not among the committed ones was not
// committed and, the session being fenced, never will be. Bounded: kNotes per ring,
// kSealedPerClient sessions per client, kSealedPerRing times the rings in all; the oldest go first,
// and what they knew is OutcomeExpired. Threads: one. Nothing here is durable.
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

  // A session of `ring` begins; its sequences are those of [first_sequence, end_sequence).
  void begin_session(size_t ring, uint64_t first_sequence, uint64_t end_sequence = UINT64_MAX);
  // The record of `sequence`, committed, leaves `ring`.
  void truncated(size_t ring, uint64_t sequence);
  // What the notes of `ring` say about a sequence whose record is not in the ring: committed,
  // "from here on, what is not noted was not committed", or nothing.
  std::optional<Outcome> noted(size_t ring, uint64_t sequence) const;

  // The last session of `ring`, `client`'s, is over and gives way to one whose sequences start at
  // `below`. `in_ring`: the sequences in the ring. Kept until `until_ns`.
  void seal(size_t ring, uint64_t client, uint64_t below, const std::vector<uint64_t>& in_ring,
            uint64_t until_ns, uint64_t now_ns);
  std::optional<Outcome> sealed(TxId id, uint64_t now_ns) const;

 private:
  struct Notes {
    uint64_t known_from = 0;
    uint64_t below = UINT64_MAX;
    std::deque<uint64_t> committed;  // in the order of their truncation
  };
  struct Sealed {
    uint64_t client;
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
