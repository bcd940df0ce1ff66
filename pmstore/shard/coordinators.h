// Coordinators: what is known of transactions whose redo records have left the shard log, per
// session of a client. Each truncation of the log writes it there as a coordinator mark, so that a
// restart knows it as well.
//
//   committed   the last numbers of the session that left the log, all of committed transactions
//   known_from  a number from here on that left the log is among them. So one of this session that
//               is neither in the log nor among them was not committed
//   decided     the client knows the outcomes of the session's numbers below. They are not in marks
//   floor       of sessions that are not listed: no number from here on has left the log
// Invariant: a number below known_from, or below the floor if its session is not listed, is never
// called aborted. A mark has every number from `decided` on, within the bounds: kNotesPerSession
// numbers per session, kNotes in all, and as many sessions and numbers as a mark has room for.
// Those that have written least lately are forgotten first, and raise the floor. Threads: one.
// Nothing here is durable but what a mark says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>

#include "base/random.h"
#include "pmstore/layout/shard_record.h"
#include "pmstore/shard/session_numbers.h"
#include "pmstore/types.h"

namespace pmstore::internal {

class Coordinators {
 public:
  static constexpr size_t kNotesPerSession = 4096;
  static constexpr size_t kNotes = 1u << 20;

  // The redo record of `id`, a committed transaction, leaves the log.
  void truncated(TxId id);
  // The client of `through` knows the outcomes of its numbers of that session through this one, or
  // wants none.
  void known(TxId through);
  // Of a transaction that is not in the log; nullopt: it is not known any more.
  std::optional<Outcome> outcome(TxId id) const;

  // A mark of at most `most_bytes`, for a truncation through `through_lsn`. Forgets the sessions
  // that do not fit.
  CoordinatorMark mark(uint64_t through_lsn, size_t most_bytes);
  // Recovery: a mark that was found. The last one counts; the floor never falls.
  void restore(const CoordinatorMark& mark);
  void raise_floor(uint64_t floor);
  uint64_t floor() const { return floor_; }
  size_t sessions() const { return sessions_.size(); }

 private:
  struct Key {
    ClientId client;
    uint32_t session;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const { return HashOfClientId()(key.client) + key.session; }
  };
  static Key key_of(TxId id) { return {id.client, session_of(id.sequence)}; }
  struct Session {
    uint64_t known_from = 0;
    uint64_t decided = 0;
    uint64_t highest = 0;
    uint64_t last_used = 0;          // of ticks_
    std::deque<uint64_t> committed;  // in the order in which they left the log
  };
  Session& session_with(TxId id);
  static CoordinatorMark::Session marked(ClientId client, const Session& session, size_t most);
  void drop_oldest(Session& session);
  void keep_sessions(size_t most);
  void keep_notes();

  std::unordered_map<Key, Session, Hash> sessions_;
  uint64_t floor_ = 0;
  uint64_t ticks_ = 0;
  size_t notes_ = 0;  // of all sessions
};

}  // namespace pmstore::internal
