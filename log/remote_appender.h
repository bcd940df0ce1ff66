// RemoteAppender: appends durably into a ring of a server, from a client that was granted WRITE on
// its data area. One append is one RemoteWriter::write: one doorbell, one round trip, one
// completion with the doorbell strategy, also when a pad entry goes before it.
//
// Invariants: entries are placed and posted in the order of the calls, and reported in that order.
// An append is reported durable only when all before it are; after the first failure, every later
// one fails too. So what is acknowledged is always a prefix of what was posted, whatever mixture of
// one-sided and two-sided writes the strategy uses.
//
// Threads: those of the connection. Borrows device and writer; every append must have returned
// before it is destroyed. Appends do not allocate.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "base/task.h"
#include "fabric/device.h"
#include "log/entry.h"
#include "persist/memory.h"
#include "persist/padding.h"
#include "persist/remote_writer.h"

namespace pmstore::log {

class RemoteAppender {
 public:
  static constexpr uint32_t kMinStagingBytes = 4096;

  // `writer`'s region is the data area of the ring, and nobody else appends there. Registers
  // `staging_bytes` of memory: it bounds the sum of the entries in flight and so the largest one.
  // InvalidArgument below kMinStagingBytes; errors of register_memory().
  static Result<std::unique_ptr<RemoteAppender>> create(fabric::Device& device,
                                                        persist::RemoteWriter& writer,
                                                        const RingPosition& position,
                                                        uint32_t staging_bytes,
                                                        const persist::PaddingRules& rules = {});
  ~RemoteAppender();

  struct Appended {
    uint64_t lsn;
    uint64_t next_lsn;
    persist::Persisted persisted;
  };
  // Durable on return. `payload` is borrowed until then. Waits while staging memory is used up;
  // that is bounded, because every write in flight is. Nothing was written: BackPressure when the
  // ring is full until truncated(); TooLarge when the entry does not fit in half of the ring or in
  // the staging memory; the error of the append that failed before. The entry may or may not be
  // there: errors of RemoteWriter::write.
  base::Task<Result<Appended>> append(uint64_t sequence, std::span<const std::byte> payload);

  // Makes room in a ring that has none, for instance by asking the server to truncate it.
  class RoomMaker {
   public:
    virtual ~RoomMaker() = default;
    // `bytes` are to follow `tail_lsn`. Gives the ring's new start, which may not be far enough:
    // then the append fails with BackPressure. With an error the append fails with that.
    virtual base::Task<Result<uint64_t>> make_room(uint64_t tail_lsn, uint64_t bytes) = 0;
  };
  // What append_all() appends: all of it or nothing.
  struct Entries {
    std::span<const std::byte> prefix;  // goes in front of each payload, as it is when placed
    std::span<const std::span<const std::byte>> payloads;  // at least one
    bool gather = false;                                   // they are the pieces of one entry
    uint64_t* next_sequence = nullptr;  // of the first; counts on when the entries are placed
    // 0, or what *next_sequence must be when they are placed; else Conflict.
    uint64_t expected_sequence = 0;
    RoomMaker* room = nullptr;  // nullptr: a full ring is BackPressure at once

    // Given back. Not `placed`: nothing was written.
    bool placed = false;
    uint64_t first_lsn = 0;
    uint64_t last_sequence = 0;
  };
  // As append(), for several entries one after the other, or one of several pieces: one
  // RemoteWriter::write, of one WRITE, or two where the data area begins again. Durable on return,
  // all of them; after a crash any prefix may be there. Gives the last. `entries` is borrowed.
  // TooLarge also when all together fit neither in the ring nor in the staging memory. While room
  // is made, later appends wait.
  base::Task<Result<Appended>> append_all(Entries& entries);

  // The server has moved the mark. InvalidArgument when it went back or passed the tail.
  Status truncated(uint64_t start_lsn);
  const RingPosition& position() const;
  // No append is under way.
  bool idle() const;

 private:
  struct State;
  explicit RemoteAppender(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pmstore::log
