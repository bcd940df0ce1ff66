// Records of the shard log and of clients' redo rings: the payloads of their entries. A client's
// ring has redo records only.
//
//   record   = ShardRecordHeader, participants * ShardParticipant, replicas * ShardReplica, body
//   body     = writes * write                          of a redo record
//            = MarkHeader, writes * marked session     of a coordinator mark
//            = ShardDecision                           of a commit or abort record
//   write    = ShardWrite, record image (as it lies in its slot), zero padding to 8
//   marked session = MarkedSession, committed * uint64 number
// The ring entry's sequence is the transaction's number, and 0 of a mark. To apply a write is to
// copy its image into its slot if the image's version is above the slot's. So replay is
// idempotent, and entries may be replayed in any order.
//
// The lists name the participants and replicas beside this shard: a transaction of one server has
// none. A redo record with participants is not a decision: the transaction is undecided until a
// commit or abort record of the same client and number follows. A commit record has the
// participants again, an abort record has none. Replicas and partitions are written by no release
// yet, and this one refuses a log that has them: a later release must have written it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "pmstore/layout/record.h"
#include "pmstore/types.h"

namespace pmstore {

enum class ShardRecordKind : uint8_t { kRedo = 1, kCommit = 2, kAbort = 3, kMark = 4 };

struct ShardRecordHeader {
  ShardRecordKind kind;
  uint8_t features;       // bits; 0
  uint16_t participants;  // shards beside this one that the transaction writes to
  uint16_t replicas;      // of the partition, beside this pool; 0
  uint16_t zero;
  uint32_t writes;          // of a mark: sessions
  uint32_t partition;       // of all that is written; 0
  ClientId client;          // of a mark 0
  uint64_t epoch;           // of the server that logged it, or whose client did
  uint32_t home_partition;  // whose answer is the transaction's outcome; 0
  uint32_t zero_end;
};
static_assert(sizeof(ShardRecordHeader) == 48 && offsetof(ShardRecordHeader, writes) == 8 &&
              offsetof(ShardRecordHeader, client) == 16 &&
              offsetof(ShardRecordHeader, epoch) == 32 &&
              offsetof(ShardRecordHeader, home_partition) == 40);

// Another shard in which the transaction writes, and its name there: each server numbers the
// transactions of its sessions.
struct ShardParticipant {
  uint64_t pool;
  ClientId client;
  uint64_t sequence;
  uint64_t epoch;      // of the server, when the client began its session there
  uint32_t partition;  // 0
  uint16_t shard;      // 0
  uint16_t zero;

  TxId name() const { return {client, sequence}; }
};
static_assert(sizeof(ShardParticipant) == 48 && offsetof(ShardParticipant, client) == 8 &&
              offsetof(ShardParticipant, sequence) == 24 &&
              offsetof(ShardParticipant, partition) == 40);

// Beside the shard itself.
inline constexpr size_t kMostParticipants = 63;

struct ShardReplica {
  uint64_t pool;
};
static_assert(sizeof(ShardReplica) == 8);

// A slot is named by partition, extent and the offset in it.
struct ShardWrite {
  uint32_t partition;  // 0
  uint32_t extent;     // 0: the records'
  uint64_t offset;
  uint32_t image_bytes;
  uint32_t zero;
};
static_assert(sizeof(ShardWrite) == 24 && offsetof(ShardWrite, offset) == 8 &&
              offsetof(ShardWrite, image_bytes) == 16);

struct ShardDecision {
  // Every participant has the decisions of this client's transactions of this session through this
  // number.
  uint64_t known_through;
};
static_assert(sizeof(ShardDecision) == 8);

// A coordinator mark: what is known of transactions whose redo records leave the log. The last one
// in a log counts.
struct MarkHeader {
  uint64_t through_lsn;  // the truncation for which it was written ends here
  uint64_t floor;  // no number from here on, of a session that is not listed, has left the log
};
static_assert(sizeof(MarkHeader) == 16);

struct MarkedSession {
  ClientId client;
  uint64_t known_from;  // numbers from here on that left the log are those that follow
  uint64_t highest;     // that left the log
  uint32_t committed;   // so many numbers follow
  uint32_t zero;
};
static_assert(sizeof(MarkedSession) == 40 && offsetof(MarkedSession, known_from) == 16 &&
              offsetof(MarkedSession, committed) == 32);

constexpr size_t shard_write_bytes(uint64_t image_bytes) {
  return sizeof(ShardWrite) + (image_bytes + 7) / 8 * 8;
}

// A write of a redo record, whose bytes are borrowed.
struct LoggedWrite {
  SlotOffset slot;
  std::span<const std::byte> image;
  RecordView record;
};

// ShardRedoBuilder: builds a redo record in a caller's buffer, which must have room for the header
// and all writes (CHECKed).
class ShardRedoBuilder {
 public:
  ShardRedoBuilder(std::span<std::byte> room, ClientId client, uint64_t epoch,
                   std::span<const ShardParticipant> participants = {});
  // Lays out the record in place and gives its image, 8-aligned in the buffer.
  std::span<const std::byte> add(SlotOffset slot, TableId table, uint64_t version,
                                 RecordState state, std::string_view key, std::string_view value);
  // The whole payload.
  std::span<const std::byte> finish();

 private:
  std::span<std::byte> room_;
  size_t used_;
  uint32_t writes_ = 0;
};

constexpr size_t shard_header_bytes(size_t participants) {
  return sizeof(ShardRecordHeader) + participants * sizeof(ShardParticipant);
}
constexpr size_t decision_bytes(size_t participants) {
  return shard_header_bytes(participants) + sizeof(ShardDecision);
}
// A commit record, or an abort record, which names no participants.
std::vector<std::byte> encode_decision(ShardRecordKind kind, ClientId client, uint64_t epoch,
                                       std::span<const ShardParticipant> participants,
                                       ShardDecision decision);

// What a coordinator mark says.
struct CoordinatorMark {
  struct Session {
    ClientId client;
    uint64_t known_from;
    uint64_t highest;
    std::vector<uint64_t> committed;
  };
  uint64_t through_lsn = 0;
  uint64_t floor = 0;
  std::vector<Session> sessions;
};
size_t mark_bytes(const CoordinatorMark& mark);
std::vector<std::byte> encode_mark(const CoordinatorMark& mark, uint64_t epoch);

// ShardRecordReader: walks a record that was read back from a shard log, or that a client has
// written in its ring. Every length and checksum is checked.
class ShardRecordReader {
 public:
  // VersionMismatch: a later release wrote it. BadPool: malformed. The message says what, not
  // where. `last_epoch`: no server can have logged a record in a later one.
  static Result<ShardRecordReader> open(std::span<const std::byte> payload, uint64_t last_epoch);
  // The same, and all of the record is walked: after it next() never meets a flaw.
  static Result<ShardRecordReader> open_whole(std::span<const std::byte> payload,
                                              uint64_t last_epoch);
  ShardRecordKind kind() const { return header_.kind; }
  ClientId client() const { return header_.client; }
  uint32_t writes() const { return header_.writes; }
  // Does the transaction write to other shards, too?
  bool is_shared() const { return header_.participants != 0; }
  std::vector<ShardParticipant> participants() const;
  // Of a redo record: the next write; nullopt at the end, and where the record is malformed, which
  // malformed() tells.
  std::optional<LoggedWrite> next();
  bool malformed() const { return malformed_; }
  // Of a mark. BadPool.
  Result<CoordinatorMark> mark() const;
  // Of a commit or abort record. BadPool.
  Result<ShardDecision> decision() const;

 private:
  ShardRecordHeader header_{};
  std::span<const std::byte> participants_;
  std::span<const std::byte> rest_;
  uint32_t left_ = 0;
  bool malformed_ = false;
};

// Of a client's ring, where a client can write anything: nullopt unless all of `payload` is one
// well-formed redo record of a transaction of this shard alone.
std::optional<ShardRecordReader> open_whole_redo(std::span<const std::byte> payload,
                                                 uint64_t last_epoch);

}  // namespace pmstore
