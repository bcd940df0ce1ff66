// Ring: a bounded persistent log with one writer at a time, replayed from its start after a crash.
//
// The pieces:
//   format_entry()  lays out one entry (and the pad entry before it at the wrap) for a position;
//   Ring            the owner's side, in the memory itself: format, open, walk, append, truncate;
//   RemoteAppender  appends one-sided into a ring that a server granted: one doorbell, one round trip.
// Invariants: start_lsn <= tail_lsn <= start_lsn + data_bytes. Every entry in [start_lsn, tail_lsn) is
// valid. An entry is acknowledged only when it and all entries before it are durable (one queue pair
// appends in order), so a walk that stops at the first invalid entry loses nothing acknowledged. After
// a walk, a new incarnation is made durable before anything is appended: a stale entry that lies beyond the
// tail can then never be taken for a successor of a new one.
//
// Threads: one. Memory is borrowed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/result.h"
#include "base/task.h"
#include "log/ring_layout.h"
#include "persist/memory.h"
#include "persist/padding.h"
#include "persist/remote_writer.h"

namespace pmstore::log {

// Where the next entry goes and how far it may go. What an appender must know about a ring.
struct RingPosition {
  uint64_t data_bytes = 0;
  uint64_t start_lsn = 0;
  uint64_t tail_lsn = 0;
  uint32_t incarnation = 0;
  uint32_t salt = 0;  // seeds every checksum of this ring: entries of another ring or pool are not valid here

  uint64_t free_bytes() const { return data_bytes - (tail_lsn - start_lsn); }
};

// One entry to write: a pad entry when pad_bytes > 0, at `pad_lsn`, then the entry itself at `lsn`.
struct PlannedEntry {
  uint64_t pad_lsn = 0;
  uint64_t pad_bytes = 0;
  uint64_t lsn = 0;
  uint64_t bytes = 0;  // header + payload + padding
  uint64_t next_lsn() const { return lsn + bytes; }
};

// Places an entry of `payload_bytes` at the tail. BackPressure when it does not fit until truncation;
// TooLarge when it can never fit (over max_payload_bytes()).
Result<PlannedEntry> plan_entry(const RingPosition& position, uint64_t payload_bytes, bool one_sided,
                                const persist::PaddingRules& rules = {});
// Largest payload of a ring of this size: half of the data area, so that a wrap never blocks for good.
uint64_t max_payload_bytes(uint64_t data_bytes);
// Writes header and padding around a payload that is already at buffer + sizeof(EntryHeader).
// `buffer` has plan.bytes bytes.
void seal_entry(std::span<std::byte> buffer, const PlannedEntry& plan, const RingPosition& position,
                uint64_t payload_bytes, uint64_t sequence);
// The 32 bytes of a pad entry.
EntryHeader pad_entry(const PlannedEntry& plan, const RingPosition& position);

struct EntryView {
  uint64_t lsn;
  uint64_t sequence;
  uint32_t incarnation;
  std::span<const std::byte> payload;  // in the ring
};

class Ring {
 public:
  // Makes an empty ring in [offset, offset + bytes) of `memory`, durable on return. `bytes` is a
  // multiple of 256, at least kMinRingBytes.
  static Result<Ring> format(persist::Memory& memory, uint64_t offset, uint64_t bytes, uint32_t salt);
  // Reads the header. BadPool when neither copy is valid (says where). walk() must follow before append().
  static Result<Ring> open(persist::Memory& memory, uint64_t offset, uint64_t bytes, uint32_t salt);

  // Visits every valid entry from start_lsn in order and sets the tail behind the last one. Changes nothing
  // in the memory. Bounded by the size of the ring; never reads outside it, whatever it holds.
  void walk(const std::function<void(const EntryView&)>& visit);

  // A new writer: durable new incarnation and owner. Entries stay until truncated. When `owner` changes, what
  // there is is truncated first (expired_below_sequence restarts at 0).
  Status take_over(uint64_t owner);

  // Appends locally (the two-sided path): room for the payload in place comes from a scratch buffer.
  // `fill` writes exactly payload_bytes. Flushed, NOT durable before memory.drain(). Errors of plan_entry().
  // Gives the entry's lsn.
  Result<uint64_t> append(uint64_t sequence, std::span<const std::byte> payload);
  // The same when header and padding are wanted around bytes that a caller lays out itself: `scratch` must
  // have room for entry_bytes(payload) and hold the payload at sizeof(EntryHeader).
  Result<uint64_t> append_in(uint64_t sequence, std::span<std::byte> scratch, uint64_t payload_bytes);

  // An appender elsewhere has written up to `lsn` (which it says); bounds-checked, InvalidArgument if absurd.
  Status note_tail(uint64_t lsn);
  // Reads and checks the entry at `lsn`, wherever the tail is. BadPool when it is not a valid entry.
  Result<EntryView> entry_at(uint64_t lsn) const;

  // Moves the mark, durable on return. The caller has made durable in place what the entries below say.
  // `expired_below_sequence`: one more than the highest sequence truncated so far.
  Status truncate(uint64_t start_lsn, uint64_t expired_below_sequence);

  const RingPosition& position() const { return position_; }
  uint64_t owner() const { return header_.owner; }
  uint64_t expired_below_sequence() const { return header_.expired_below_sequence; }
  // Of the whole ring and of its data area, in `memory`.
  uint64_t offset() const { return offset_; }
  uint64_t bytes() const { return kRingHeaderBytes + position_.data_bytes; }
  uint64_t data_offset() const { return offset_ + kRingHeaderBytes; }

 private:
  Ring(persist::Memory& memory, uint64_t offset, uint64_t bytes, uint32_t salt);
  Status write_header();
  persist::Memory* memory_;
  uint64_t offset_;
  RingPosition position_;
  RingHeader header_{};
  std::unique_ptr<std::byte[]> scratch_;
};

// Appends into a ring of a server, from a client that was granted WRITE on its data area.
// Threads: those of the connection. Appends are posted in the order of the calls.
class RemoteAppender {
 public:
  // `writer`'s region is the data area. All borrowed. Registers `max_payload` * slots of staging memory.
  static Result<std::unique_ptr<RemoteAppender>> create(fabric::Device& device, persist::RemoteWriter& writer,
                                                        const RingPosition& position,
                                                        uint32_t staging_bytes);
  ~RemoteAppender();

  struct Appended {
    uint64_t lsn;
    uint64_t next_lsn;
    persist::Persisted persisted;
  };
  // Durable on return. BackPressure when the ring is full until truncated(); errors of RemoteWriter::write:
  // then the entry may or may not be there. `payload` is copied before the first suspension; the order of
  // the calls up to there is the order in the ring.
  base::Task<Result<Appended>> append(uint64_t sequence, std::span<const std::byte> payload);
  // The server has moved the mark.
  void truncated(uint64_t start_lsn);
  const RingPosition& position() const;

 private:
  struct State;
  explicit RemoteAppender(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pmstore::log
