// The messages between client and server: bodies of hellos and welcomes (service/hello.h), RPC
// requests and replies.
//
// Fixed little-endian structs followed by variable parts, everything bounds-checked by
// fabric::MessageReader. A request that does not decode exactly (nothing missing, nothing left
// over) is answered with Protocol and costs the sender its connection. docs/protocol.md lists the
// methods. A key that is longer than kMaxKeyBytes does not decode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "fabric/memory_region.h"
#include "fabric/message.h"
#include "persist/padding.h"
#include "pmstore/types.h"
#include "service/hello.h"

namespace pmstore {

using fabric::MessageReader;
using fabric::MessageWriter;

// ---- handshake ----

// Bodies of service::Hello and service::Welcome. The client of the hello is TxId::client; the same
// after a reconnect, so that its ring is found again.
struct ClientHello {
  uint8_t required_discipline = 0;  // LockDiscipline, 0: any
  // 1: the client READs no records, so it is told of no region that may go. 0 and 1 are the same
  // under LockDiscipline::kRnic, where it WRITEs them.
  uint8_t reads_by_rpc = 0;
  uint8_t padding[6] = {};
};
static_assert(sizeof(ClientHello) == 8);

// A session has so many transaction numbers, from ServerHello::next_sequence on; when they are used
// up, the client begins a new session, whose numbers are above them.
inline constexpr uint64_t kSessionSequences = UINT32_MAX;
// From 0 on.
constexpr uint32_t number_in_session(uint64_t sequence) { return static_cast<uint32_t>(sequence); }

struct ServerHello {
  uint64_t pool = 0;             // the pool's identity
  fabric::RemoteRegion records;  // of slot 0 on: READ; WRITE too when `one_sided_commit`
  fabric::RemoteRegion words;    // READ; ATOMIC too under LockDiscipline::kRnic
  fabric::RemoteRegion buckets;  // READ; the first piece of the hash index: see kRegions
  uint64_t bucket_count = 0;     // buckets in use at this moment
  uint64_t next_sequence = 1;    // sequences below were used by this client before
  uint32_t max_redo_bytes = 0;   // of one transaction; 0: the server does not say
  uint16_t owner = 0;            // of lock words
  uint8_t discipline = 0;        // LockDiscipline
  uint8_t one_sided_commit = 0;  // in-place WRITEs into `records` are granted
  uint8_t padding_off = 0;       // persist::PaddingRules::off_bits() of the pool
  // A frame of slot space has 2^frame_shift bytes, and behind the hello follows a RemoteRegion for
  // each frame, without bytes where the client asks the server for records. 0: `records` is all
  // that it may access.
  uint8_t frame_shift = 0;
  uint8_t reserved[2] = {};
  // A client that may access later frames sends a request this often while it works, so that it
  // hears of frames that go; one that was silent longer asks before it works again.
  uint32_t hear_ms = 0;
  uint64_t region_list = 0;  // the number of the list of frames (RegionsReply::list)

  persist::PaddingRules padding() const {
    return persist::PaddingRules::from_off_bits(padding_off);
  }
};
static_assert(sizeof(ServerHello) == 120 && offsetof(ServerHello, region_list) == 112);

// ---- RPC ----

enum class Method : uint16_t {
  kPing = service::kPingMethod,
  kGoodbye = service::kGoodbyeMethod,
  kOpenTable = 2,    // OpenTableRequest, name -> OpenTableReply
  kListTables = 3,   // -> uint32 count, then per table: uint16 id, uint8 name bytes, name
  kGet = 4,          // GetRequest, key -> GetReply, value
  kScan = 5,         // ScanRequest -> ScanReply, then per record: ScanItem, key, value
  kCommit = 6,       // CommitRequest, reads, absences, writes -> CommitReply (discipline rnic: no
                     // writes; keys that transaction `sequence` has reserved are its own)
  kOutcome = 7,      // OutcomeRequest -> OutcomeReply
  kReserve = 8,      // ReserveRequest, key -> ReserveReply (discipline rnic)
  kRelease = 9,      // ReleaseRequest, uint64 slots... : undoes reservations (discipline rnic)
  kApply = 10,       // ApplyRequest: apply the entry at an LSN of my ring, unlock (discipline rnic)
  kTruncate = 11,    // TruncateRequest -> TruncateReply (discipline rnic)
  kStat = 12,        // -> JSON text
  kDropTable = 32,   // DropTableRequest, name -> DropTableReply
  kTableUsage = 33,  // TableUsageRequest -> TableUsageReply
  kRangeScan = 34,   // RangeScanRequest, from, to -> RangeScanReply, leaves, records; see below
  // Transactions of several servers (discipline cpu); docs/transactions.md has the order.
  kLock = 35,       // LockRequest, participants, CommitRequest as for kCommit -> CommitReply
  kPrepare = 36,    // PrepareRequest, reads, absences -> CommitReply
  kDecide = 37,     // DecideRequest -> CommitReply
  kVote = 38,       // VoteRequest -> VoteReply
  kUndecided = 39,  // UndecidedRequest -> UndecidedReply, then per transaction: UndecidedItem,
                    // participants
  kRegions = 40,    // RegionsRequest -> RegionsReply, then per region: NumberedRegion
  kRing = 48,       // -> RingReply; once in a session, before it reserves or logs (discipline rnic)
  kPersistWrite = 0x0100,
};

using service::RequestPrefix;

struct OpenTableRequest {
  uint8_t create;  // 1: make it if it is not there; 2: AlreadyExists if it is there
  uint8_t name_bytes;
  TableKind kind;  // of a table that is made
};
struct OpenTableReply {
  uint16_t table;
  uint8_t created;
};

struct DropTableRequest {
  uint16_t table;  // 0: drop the one with the name that follows; else how far is the drop of this?
  uint8_t name_bytes;
  uint8_t padding;
};
struct DropTableReply {
  uint16_t table;
  uint8_t freed;  // 1: nobody can read or change its records any more; their room is free
  uint8_t padding;
};

struct TableUsageRequest {
  uint64_t cursor;  // 0 at first, then TableUsageReply::cursor
  uint16_t table;
  uint8_t records_only;  // 1: of an ordered table only the number of records, which its index knows
  uint8_t padding[5];
};
// Sums over the slots that this call has visited; the client adds up the replies.
struct TableUsageReply {
  uint64_t cursor;  // 0: nothing more
  uint64_t records;
  uint64_t key_bytes;
  uint64_t value_bytes;
  uint64_t slot_bytes;
};

struct GetRequest {
  uint16_t table;
  uint16_t key_bytes;
  uint8_t padding[4];
};
static_assert(sizeof(GetRequest) == 8);
enum class FoundRecord : uint8_t {
  kNo = 0,
  kWithValue = 1,
  kPlaceOnly = 2,  // the value, of `value_bytes`, does not fit behind the reply and does not follow
};
struct GetReply {
  uint64_t slot;     // meaningful when found
  uint64_t version;  // of the record when found, else 0
  uint64_t bucket;   // its number; with bucket_version: what "not found" is validated by
  uint64_t bucket_version;
  uint32_t value_bytes;
  FoundRecord found;
  uint8_t size_class;
  uint8_t padding[2];
};
static_assert(sizeof(GetReply) == 40);

struct ScanRequest {
  uint64_t cursor;  // 0 at first, then ScanReply::cursor
  uint32_t max_bytes;
  uint16_t table;
  uint8_t skip_damaged;  // 0: a damaged record is an error
  uint8_t padding[1];
};
struct ScanReply {
  uint64_t cursor;  // 0: nothing more
  uint32_t count;
  uint32_t damaged;  // records that were skipped, of whatever table
};
struct ScanItem {
  uint32_t value_bytes;
  uint16_t key_bytes;
  uint8_t padding[2];
};
static_assert(sizeof(ScanItem) == 8);

// A page of an ordered table: the keys from `from` on and before `to` (empty: to the end), in
// order, or backwards in the opposite order. The answer has LeafSeen for each leaf that has a part
// of the page, then RangeItem, key, value of each record. A transaction validates the leaves as
// AbsenceChecks and the records as ReadChecks: then the page is whole at its commit.
struct RangeScanRequest {
  uint32_t most_records;
  uint32_t max_bytes;
  uint16_t table;
  uint16_t from_bytes;
  uint16_t to_bytes;
  uint8_t backwards;
  uint8_t routes;  // 1: tell where the leaves are
};
static_assert(sizeof(RangeScanRequest) == 16);
struct RangeScanReply {
  uint32_t leaves;
  uint32_t records;
  uint8_t more;  // 1: the range goes on behind the last record
  uint8_t routes;
  uint8_t padding[6];
};
static_assert(sizeof(RangeScanReply) == 16);
struct LeafSeen {
  uint64_t unit;
  uint64_t version;
};
// Where a leaf lies, and the fences between which its keys lie. Page N of the index of a table is
// in chunk N / (pages of a whole chunk); pages of one chunk follow each other.
struct LeafRoute {
  uint64_t unit;
  fabric::RemoteRegion chunk;
  uint16_t low_bytes;
  uint16_t high_bytes;  // 0: the last leaf
  uint8_t padding[4];
};
static_assert(sizeof(LeafRoute) == 40);
struct RangeItem {
  uint64_t slot;
  uint64_t version;
  uint32_t value_bytes;
  uint16_t key_bytes;
  uint8_t padding[2];
};
static_assert(sizeof(RangeItem) == 24);

// A record that was read and must be unchanged at commit.
struct ReadCheck {
  uint64_t slot;
  uint64_t version;
};
// A bucket, or a leaf of an ordered table, in which a key was not found.
struct AbsenceCheck {
  uint64_t bucket;
  uint64_t version;
};
enum class WriteKind : uint8_t {
  kPut = 1,     // insert or overwrite
  kInsert = 2,  // AlreadyExists when the key is there
  kErase = 3,   // NotFound when it is not
};
struct WriteOp {
  // When the transaction has read the record: where, and the version that it must still have. Else
  // 0, 0.
  uint64_t expected_slot;
  uint64_t expected_version;
  uint32_t value_bytes;
  uint16_t table;
  uint16_t key_bytes;
  WriteKind kind;
  uint8_t padding[7];
};  // then key, value, padding to 8
static_assert(sizeof(WriteOp) == 32);

struct CommitRequest {
  uint64_t sequence;
  uint32_t reads;
  uint32_t absences;
  uint32_t writes;
  uint32_t padding;  // 0
};
struct CommitReply {
  uint64_t reserved;
};

// ShardParticipant (shard_record.h) for each other server that the transaction writes to follows.
// Without one, kPrepare commits.
struct LockRequest {
  uint16_t participants;
  uint8_t padding[6];  // 0
};
static_assert(sizeof(LockRequest) == 8);
struct PrepareRequest {
  uint64_t sequence;
  uint32_t reads;
  uint32_t absences;
};
static_assert(sizeof(PrepareRequest) == 16);
enum class Decision : uint8_t {
  kCommit = 1,
  kAbort = 2,
  kForget = 3,  // every participant has the decision
};
struct DecideRequest {
  ClientId client;
  uint64_t sequence;
  Decision decision;
  uint8_t padding[7];  // 0
};
static_assert(sizeof(DecideRequest) == 32);
struct VoteRequest {
  ClientId client;
  uint64_t sequence;
};
static_assert(sizeof(VoteRequest) == 24);
enum class Vote : uint8_t {
  kNotHere = 1,  // it is not prepared and never will be: aborted
  kPrepared = 2,
  kCommitted = 3,
};
struct VoteReply {
  Vote vote;
};
// Behind this name, in the order of names; zeros: from the beginning.
struct UndecidedRequest {
  ClientId client;
  uint64_t sequence;
};
static_assert(sizeof(UndecidedRequest) == 24);
struct UndecidedReply {
  uint32_t count;
  uint32_t more;  // 1: the list goes on
};
struct UndecidedItem {
  ClientId client;
  uint64_t sequence;
  uint16_t participants;
  Vote state;  // kPrepared; kCommitted: not known to be so everywhere
  uint8_t padding;
  uint32_t locked;  // so many keys
  uint64_t age_ms;  // since it was locked, or since the server's start when that was later
};
static_assert(sizeof(UndecidedItem) == 40);

// Memory that clients access one-sided and that grows lies in numbered pieces, each a region of its
// own. A client asks when it first needs a piece; the answer has those from `first` on that there
// are by now, in ascending order. A piece that is not in it is not there, or has no region: the
// client reaches what is in it by RPC. A region that was given stays valid for the session; one of
// a frame until the client has confirmed a later list.
enum class RegionKind : uint8_t {
  kBuckets = 1,  // of the hash index: bucket / kBucketsPerPiece is the number
  kRecords = 2,  // the frames of slot space
};
inline constexpr uint8_t kRegionKinds = 2;
// The answer of kind kRecords has every frame that the client may access from now on.
struct RegionsRequest {
  uint32_t first;  // kRecords: 0
  RegionKind kind;
  uint8_t padding[3];  // 0
  // kRecords: what an earlier list has named, and the list of this number has not, the client
  // accesses no more, and nothing of that is under way.
  uint64_t confirmed;
};
static_assert(sizeof(RegionsRequest) == 16);
inline constexpr uint32_t kMostRegionsInReply = 64;
struct RegionsReply {
  uint32_t count;
  uint32_t padding;  // 0
  // Of kRecords: its number. It rises when a frame is to go, and the notice of replies changes
  // (fabric::RpcPeer::set_notice()).
  uint64_t list;
};
static_assert(sizeof(RegionsReply) == 16);
struct NumberedRegion {
  uint32_t number;
  uint32_t padding;  // 0
  fabric::RemoteRegion region;
};
static_assert(sizeof(NumberedRegion) == 32);

struct OutcomeRequest {
  ClientId client;
  uint64_t sequence;
};
struct OutcomeReply {
  Outcome outcome;
};

// What a session needs for one-sided commits. Its transactions that write are numbered from here
// on.
struct RingReply {
  fabric::RemoteRegion ring;        // this client's own, its data area; WRITE and READ
  fabric::RemoteRegion lock_lists;  // this session's own; WRITE
  uint64_t start_lsn = 0;
  uint64_t tail_lsn = 0;
  uint32_t incarnation = 0;
  uint32_t salt = 0;
  uint64_t next_sequence = 0;  // as ServerHello::next_sequence
};
static_assert(sizeof(RingReply) == 80);
struct ReserveRequest {
  uint64_t sequence;     // the transaction's
  uint32_t value_bytes;  // the slot must have room for it
  uint16_t table;
  uint16_t key_bytes;
  uint8_t move;     // 1: the key exists, in a slot too small; 0: AlreadyExists (with a GetReply's
                    // location) if so
  uint8_t scanned;  // 1: the transaction has scanned where the key lies; Conflict if others insert
                    // keys there
  uint8_t padding[6];
};
static_assert(sizeof(ReserveRequest) == 24);
// A slot whose word is locked by the caller at `version`, and (unless it is a move) that the index
// shows for the key. The bucket's version just before and just after this reservation changed it
// (equal for a move): so a client can tell its own change from those of others when it validates
// that another key is absent from the same bucket. Equal, too, in an ordered table: of a leaf the
// server itself knows which changes are the transaction's own (kCommit).
struct ReserveReply {
  uint64_t slot;
  uint64_t version;
  uint8_t size_class;
  uint8_t padding[7];
  uint64_t bucket;
  uint64_t bucket_version_before;
  uint64_t bucket_version_after;
};
static_assert(sizeof(ReserveReply) == 48);
// The redo record of a move holds a tombstone for the old slot as well as the record in the new
// one.
struct ApplyRequest {
  uint64_t lsn;
  uint64_t tail_lsn;
};
struct TruncateRequest {
  uint64_t through_lsn;  // entries below may go: their commit phase is acknowledged
  uint64_t tail_lsn;
};
struct TruncateReply {
  uint64_t start_lsn;
};

}  // namespace pmstore
