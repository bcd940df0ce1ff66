// Ring: a bounded persistent log with one writer at a time, replayed from its start after a crash.
//
// The pieces: log/entry.h places and lays out one entry; Ring is the owner's side, in the memory
// itself (format, open, walk, take over, append, truncate); log/remote_appender.h appends one-sided
// into a ring that a server granted.
//
// Invariants: start_lsn <= tail_lsn <= start_lsn + data_bytes. Every entry in [start_lsn, tail_lsn)
// is valid. An entry is acknowledged only when it and all entries before it are durable, so a walk
// that stops at the first invalid entry loses nothing acknowledged. A new incarnation is made
// durable between a walk and the next append: a stale entry that lies beyond the tail can then
// never be taken for a successor of a new one.
//
// Threads: one. Memory is borrowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "base/check.h"
#include "base/result.h"
#include "log/entry.h"
#include "log/ring_layout.h"
#include "persist/memory.h"
#include "persist/padding.h"
#include "persist/two_copies.h"

namespace pmstore::log {

namespace internal {
class LogRing;
}

class RingRoom;

class Ring {
 public:
  // Makes an empty ring of incarnation 1, owned by nobody, in [offset, offset + bytes) of `memory`;
  // durable on return. A crash on the way leaves what was there, no ring (open() fails), or the new
  // one. What is not zero there is zeroed, so that nothing that lay there before can be taken for
  // an entry. `offset` is a multiple of 256; `bytes` too, and at least kMinRingBytes
  // (InvalidArgument). The first entry will be at `begin_lsn`, which is_boundary(). Io: drain().
  static Result<Ring> format(persist::Memory& memory, uint64_t offset, uint64_t bytes,
                             uint32_t salt, uint64_t begin_lsn = 0,
                             uint64_t expired_below_sequence = 0);
  // The same in a room that is erased (CHECK).
  static Result<Ring> format(RingRoom room, uint64_t begin_lsn = 0,
                             uint64_t expired_below_sequence = 0);
  // Reads the header. BadPool when neither copy is valid (says where and why); VersionMismatch;
  // InvalidArgument as above. walk() must follow before anything else.
  static Result<Ring> open(persist::Memory& memory, uint64_t offset, uint64_t bytes, uint32_t salt);

  // Visits every valid entry from start_lsn in order and sets the tail behind the last one. Changes
  // nothing in the memory. Bounded by the size of the ring; never reads outside it, whatever it
  // holds. BadPool when something that was durable is provably damaged: it stops before the place
  // where the present incarnation began, or in front of an entry that could be written only under a
  // later header. (Where this Ring has written the header itself, there is no later one: then the
  // entry is forged, and erased, the only change a walk makes.) What was visited is right, but not
  // all; nothing can be appended, and the ring must be formatted to be used again. (Damage to the
  // present incarnation's entries looks like a torn tail.)
  Status walk(const std::function<void(const EntryView&)>& visit);

  // Visits the entries from start_lsn to the tail that is known here, or to the first one that ends
  // at `through_lsn` or behind it; changes nothing. False when one of them is damaged: then it
  // stops before it.
  bool for_each_entry(const std::function<void(const EntryView&)>& visit,
                      uint64_t through_lsn = UINT64_MAX) const;

  // Visits what an appender elsewhere has written beyond the tail that is known here, up to the
  // first entry that is not there. It may not be durable.
  void for_each_landed(const std::function<void(const EntryView&)>& visit) const;

  // Zeroes the data area of a ring without entries, durably, so that nothing that an earlier writer
  // has left there, or forged for incarnations and LSNs to come, is ever taken for an entry. Costs
  // one read of the ring where it is zero already. Requires walk() and that all is truncated. Io:
  // drain().
  Status erase_leftovers();

  // A new writer: new incarnation and owner, durable on return. Must follow format() or walk() with
  // nothing between. Entries stay until truncated. When `owner` changes, what there is is truncated
  // with the same header write (expired_below_sequence restarts at 0). Io: drain().
  // The new incarnation is at least `least_incarnation`; `expired_below_sequence` is what a new
  // owner starts with: numbers below it are nobody's to ask for here.
  Status take_over(uint64_t owner, uint32_t least_incarnation = 0,
                   uint64_t expired_below_sequence = 0);
  // What the walk has seen, the header too, may be in the CPU's caches only, after a crash of the
  // process alone. Durable on return; to be called before anybody is told of it.
  Result<persist::Persisted> make_walked_durable();

  // Appends locally (the two-sided path); only after format() or take_over() (CHECK). Flushed, NOT
  // durable before memory.drain(), nor before that in order for other threads. Errors of
  // plan_entry(). Gives the entry's lsn. The payload is `prefix`, of at most kMaxPrefixBytes, and
  // `payload` behind it.
  static constexpr size_t kMaxPrefixBytes = 32;
  Result<uint64_t> append(uint64_t sequence, std::span<const std::byte> payload,
                          std::span<const std::byte> prefix = {});
  // Nothing, and nothing is done, when it does not fit; plan_entry() says why.
  std::optional<uint64_t> append_if_room(uint64_t sequence, std::span<const std::byte> payload,
                                         std::span<const std::byte> prefix);
  // The same for a caller who lays the payload out itself: `scratch` holds it at
  // sizeof(EntryHeader) and has room for entry_room(payload_bytes); header and padding are written
  // there.
  Result<uint64_t> append_in(uint64_t sequence, std::span<std::byte> scratch,
                             uint64_t payload_bytes);

  // An appender elsewhere has written up to `lsn` (which it says); bounds-checked, InvalidArgument
  // if absurd.
  Status note_tail(uint64_t lsn);
  // Reads and checks the entry at `lsn`, wherever the tail is. BadPool when it is not a valid
  // entry.
  Result<EntryView> entry_at(uint64_t lsn) const;

  // Moves the mark, durable on return. `applied` proves that what the entries below say is durable
  // in place, or not needed any more. `start_lsn` is the start of an entry or the tail.
  // `expired_below_sequence`: one more than the highest sequence truncated so far. InvalidArgument
  // when either goes back or the mark would pass the tail. Io: drain(); the mark may or may not
  // have moved then.
  Status truncate(persist::Persisted applied, uint64_t start_lsn, uint64_t expired_below_sequence);

  // Writes the header once more, into the other copy: then the loss of either one loses nothing.
  // Durable on return. Io: drain().
  Result<persist::Persisted> repeat_header();

  // Rules H5 to H7 for append(), as the pool has them; default on. Entries of different rules live
  // in one ring.
  void set_padding(const persist::PaddingRules& rules) { rules_ = rules; }

  const RingPosition& position() const { return position_; }
  uint64_t owner() const { return header_.owner; }
  uint64_t expired_below_sequence() const { return header_.expired_below_sequence; }
  // Of the whole ring and of its data area, in `memory`.
  uint64_t offset() const { return offset_; }
  uint64_t bytes() const { return kRingHeaderBytes + position_.data_bytes; }
  uint64_t data_offset() const { return offset_ + kRingHeaderBytes; }

 private:
  friend class internal::LogRing;  // walks on behind damage
  friend class RingRoom;           // erases
  // What may come next.
  enum class Phase : uint8_t {
    kOpened,     // walk
    kFormatted,  // take over, or append as nobody
    kWalked,     // take over
    kWritable,   // append
    kDamaged,    // nothing
  };
  Ring(persist::Memory& memory, uint64_t offset, uint64_t bytes, uint32_t salt);
  static Status check_place(const persist::Memory& memory, uint64_t offset, uint64_t bytes);
  void check_writable() const {
    PMSTORE_CHECK(phase_ == Phase::kFormatted || phase_ == Phase::kWritable,
                  "only a new incarnation may append: stale entries lie beyond the tail");
  }
  void check_position() const {
    PMSTORE_CHECK(position_.tail_lsn - position_.start_lsn <= position_.data_bytes,
                  "an entry would overwrite one that was not truncated");
  }
  std::byte* place_of(const PlannedEntry& plan) const;
  Result<PlannedEntry> plan(uint64_t payload_bytes) const;
  void write_pad(const PlannedEntry& plan);
  bool write_as_frame(const PlannedEntry& plan, uint64_t sequence,
                      std::span<const std::byte> prefix, std::span<const std::byte> payload);
  void write_in_parts(const PlannedEntry& plan, uint64_t sequence,
                      std::span<const std::byte> prefix, std::span<const std::byte> payload);
  uint64_t move_tail(const PlannedEntry& plan);
  void check_header(const RingHeader& header) const;
  Result<persist::Persisted> write_header(RingHeader header);
  persist::TwoCopies<RingHeader> header_copies() const {
    return {*memory_, offset_, kRingHeaderCopyStride};
  }
  size_t newest_copy() const;
  // Both copies of the header, and what is between; no crash brings back one that is out of date.
  Result<persist::Persisted> erase_headers();
  // Of the data area. `header` proves that no header which allows entries can come back.
  Result<persist::Persisted> erase_data(persist::Persisted header, uint64_t from, uint64_t to);
  Result<persist::Persisted> erase_header(uint64_t from, uint64_t to);
  Result<persist::Persisted> make_found_header_durable();
  // `header` proves that the header of the incarnation that appends is durable.
  void begin_appends(persist::Persisted header);
  std::byte* data_at(uint64_t lsn) const;
  // Reads what lies at `lsn` and checks its checksum and bounds. False: nothing valid there.
  bool read_sealed(uint64_t lsn, EntryHeader& header) const;
  // Is it the entry of that lsn, by a writer who may have written there?
  bool belongs(uint64_t lsn, const EntryHeader& header) const;
  EntryView view(const EntryHeader& header) const;

  persist::Memory* memory_;
  uint64_t offset_;
  Phase phase_ = Phase::kOpened;
  persist::PaddingRules rules_;
  RingPosition position_;
  RingHeader header_{};                               // the last one written, or found
  std::optional<persist::Persisted> header_durable_;  // nothing: perhaps it is not
  bool both_copies_ = false;                          // were valid when it was opened
  bool copies_agree_ = false;                         // and said the same
  uint64_t durable_lsn_ = 0;  // entries below are durable, as far as was noted
  bool header_ours_ = false;  // written here, so there is no later one
};

}  // namespace pmstore::log
