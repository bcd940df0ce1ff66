// LogRing: the ring of one log of the log service. A walk of Ring stops at the first damaged entry;
// the survey of LogRing finds the whole entries behind it, and tells damage from the torn tail that
// appends in flight leave.
//
// Invariants (checked by check_marks() and where they change): the tail is behind the last whole
// entry, or behind a damaged range below which everything was durable. damaged() is in order,
// without overlap, inside [start, tail]. anchors_ is in order; the first anchor is the start. No
// entry has next_index().
// Both copies of the ring's header agree whenever a call has returned, so the loss of either copy
// loses nothing.
//
// Threads: one. Memory is borrowed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "log/log_layout.h"
#include "log/log_types.h"
#include "log/ring.h"
#include "log/ring_room.h"
#include "persist/memory.h"

namespace pmstore::log::internal {

// Largest payload of a log whose data area has so many bytes.
inline uint64_t max_log_payload(uint64_t data_bytes) {
  const uint64_t most = max_payload_bytes(data_bytes);
  return most <= sizeof(LogEntryPrefix)
             ? 0
             : std::min<uint64_t>(most - sizeof(LogEntryPrefix), kMaxEntryBytes);
}

// Can an entry at `lsn` have this index? Each entry before it took room, or was counted as one that
// did. So no index overflows before its LSN does.
constexpr bool is_possible_index(uint64_t lsn, uint64_t index) {
  return index > 0 && index - 1 <= lsn / sizeof(EntryHeader);
}

class LogRing {
 public:
  static constexpr size_t kMaxDamagedRanges = 1024;

  // Durable on return; errors and `room` as Ring::format().
  // The first entry will be at `begin_lsn`, a boundary, and have `begin_index`, which
  // is_possible_index().
  static Result<LogRing> format(RingRoom room, uint64_t begin_lsn, uint64_t begin_index);
  // BadPool when neither copy of the header is valid. survey() must follow.
  static Result<LogRing> open(persist::Memory& memory, uint64_t offset, uint64_t bytes,
                              uint32_t salt);

  // Reads the log from its start; changes nothing in the memory. `sealed_lsn`: the tail of a sealed
  // log, nullptr for a log that is not sealed. Damaged when the ring has entries that only a later
  // header allows, or a seal that this header does not allow: then nothing in the log is trusted.
  Status survey(const uint64_t* sealed_lsn);
  // After a survey: makes durable what the survey has found, and both copies of the header valid.
  // Begins a new incarnation unless the log is sealed, has no entry since the last one began, or is
  // used_up().
  Result<persist::Persisted> adopt(bool sealed);

  // Visits the entries that a remote appender has written behind the tail, and moves the tail
  // behind them, up to `limit`. A torn entry below `durable_lsn` is damage; the first torn entry
  // above it is the end.
  void follow(uint64_t durable_lsn, uint64_t limit);
  // Makes durable what follow() has found. No entry of that appender may arrive afterwards.
  Result<persist::Persisted> make_followed_durable();
  // `entries` proves that every entry below the tail is durable.
  void note_durable(persist::Persisted /*entries*/) { ring_.durable_lsn_ = position().tail_lsn; }
  // Proves that the header, and every entry below the tail, is durable. Requires that nothing was
  // appended since the last note_durable() (CHECK).
  persist::Persisted durable() const;
  // Begins a new incarnation: entries of the old one that arrive later are not valid. A log that is
  // used_up() has no further one: then it cannot be appended to any more. Durable on return.
  Result<persist::Persisted> take_over();
  // Has it had as many incarnations as can be numbered?
  bool used_up() const { return position().incarnation == UINT32_MAX; }

  // See Ring::set_padding().
  void set_padding(const persist::PaddingRules& rules) { ring_.set_padding(rules); }
  // False after a survey: then the next append() begins a new incarnation first.
  bool writable() const { return ring_.phase_ != Ring::Phase::kWalked; }
  // False: there is no incarnation in which anything could be appended.
  bool may_append() const { return writable() || !used_up(); }
  // Flushed, not durable. Requires may_append(). Errors of plan_entry().
  Result<Appended> append(std::span<const std::byte> payload, uint64_t durable_lsn);
  // nullopt, without effect, when there is no room; requires writable().
  std::optional<Appended> append_if_room(std::span<const std::byte> payload, uint64_t durable_lsn);
  // Where the tail would be behind entries with these payloads, were `start_lsn` the start. Errors
  // of plan_entry().
  Result<uint64_t> tail_behind(std::span<const uint64_t> payload_bytes, uint64_t start_lsn) const;

  struct Place {
    uint64_t lsn;
    uint64_t index;  // of the entry there; next_index() at the tail
  };
  // The entry that starts at `lsn`, or the tail. InvalidArgument when none does.
  Result<Place> place_of(uint64_t lsn) const;
  // The first whole entry with at least that index, or the tail; a whole entry below that index
  // where damage is too large to find the next one behind it.
  Place first_from(uint64_t index) const;
  // A start not below `lsn`, so little above it as is known without reading; at most `limit`, which
  // is an entry's or the tail.
  Place start_from(uint64_t lsn, const Place& limit) const;
  // The end of the last entry or pad at or below `lsn`, which is in the log.
  Place boundary_at(uint64_t lsn) const;
  // The highest LSN that a whole entry says to have been durable, on every replica, before it.
  uint64_t claimed_lsn() const { return claimed_lsn_; }
  // Moves the start; durable on return. The entries below are dropped, whatever they say.
  Status truncate(const Place& start);

  const RingPosition& position() const { return ring_.position(); }
  uint64_t data_offset() const { return ring_.data_offset(); }
  uint64_t next_index() const { return next_index_; }
  const std::vector<DamagedRange>& damaged() const { return damaged_; }
  // Entries that were read whole: by the survey and by follow().
  uint64_t entries_seen() const { return entries_seen_; }

 private:
  using Visit = std::function<bool(const EntryHeader&)>;  // false: enough
  explicit LogRing(Ring ring) : ring_(std::move(ring)) {}
  bool peek(uint64_t lsn, EntryHeader& header) const;
  bool is_entry_here(uint64_t lsn, EntryHeader& header) const;
  bool continues(uint64_t lsn, uint64_t may_be_lost, EntryHeader& header) const;
  void pass(const EntryHeader& header);
  void note_entry(uint64_t lsn, uint64_t sequence, uint64_t durable_lsn);
  void skip_damage(uint64_t durable_lsn);
  void note_damage(uint64_t from, uint64_t to);
  uint64_t claimed_durable() const;
  bool later_header_was_lost() const;
  void settle_index();
  void check_marks() const;
  Status erase_forged();
  bool walk_known(const Place& from, const Visit& visit) const;
  const DamagedRange* damage_at(uint64_t lsn) const;
  uint64_t end() const { return position().start_lsn + position().data_bytes; }

  Ring ring_;
  uint64_t next_index_ = 1;
  uint64_t claimed_lsn_ = 0;
  uint64_t may_be_lost_ = 0;  // entries in the damaged range that ends at the tail, at most
  uint32_t incarnation_ = 0;  // of the last entry that was passed
  uint64_t entries_seen_ = 0;
  mutable uint64_t scan_budget_ = 0;  // bytes of checksums that a search may still waste
  std::vector<DamagedRange> damaged_;
  std::deque<Place> anchors_;
};

}  // namespace pmstore::log::internal
