// The messages of the log service: bodies of hellos and welcomes (service/hello.h), RPC requests
// and replies.
//
// There are two services, so two kinds of connection. A *session* is a client's: RPCs about any
// log, and READ of the extents of logs and of the words. A *producer* connection belongs to one
// exclusive producer of one log: WRITE of that log's data area and of its published tail, and
// PersistWrite RPCs where the server's CPU has to store; destroying it fences that producer and no
// other. Everything is decoded by fabric::MessageReader; what does not decode exactly is
// answered with Protocol and costs the sender its connection. docs/log-service.md.
//
// An id is never used again in a pool, so what names a log by its id needs no identity beside it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/memory_region.h"
#include "fabric/message.h"
#include "log/log_types.h"
#include "service/hello.h"

namespace pmstore::log {

// ---- words: in the server's DRAM, one per log, READ by every session ----

// `id` is 0 while the place is nobody's; it is changed before the region is. A reader trusts what
// it READ of the region only when `id` and `start_lsn`, READ after it, still cover it.
struct alignas(64) LogWords {
  uint64_t id = 0;
  uint64_t start_lsn = 0;
  uint64_t tail_lsn = 0;  // everything below is durable on every replica; an exclusive producer
                          // WRITEs it, and has no other right here
  uint64_t sealed = 0;    // 1: tail_lsn is the end
  uint64_t incarnation = 0;
  uint64_t reserved[3] = {};
};
static_assert(sizeof(LogWords) == 64 && offsetof(LogWords, tail_lsn) == 16);

// ---- handshake ----

enum class Takeover : uint8_t {
  kIfFree = 0,  // Busy while another producer's lease runs
  kSteal = 1,   // fences it
};

// The body of a session's hello.
struct SessionHello {
  uint64_t instance = 0;   // of the client, drawn when it was made; it numbers its appends
  uint64_t last_sent = 0;  // the highest number that it has sent in a session before
};
static_assert(sizeof(SessionHello) == 16);

// Of a producer's; one that comes back, with the same client id, takes its own lease over.
struct ProducerHello {
  uint64_t log = 0;         // id
  uint64_t membership = 0;  // epoch that the producer believes in; Conflict when it is another
  Takeover takeover = Takeover::kIfFree;
  uint8_t padding[7] = {};
};
static_assert(sizeof(ProducerHello) == 24);

// The body of the welcome, followed by the NamedExtent of each extent of logs that there is.
struct LogSessionAnswer {
  uint64_t area = 0;           // identity of the log area
  fabric::RemoteRegion words;  // READ: LogWords[slots]
  uint32_t extents = 0;        // at most kMostLogExtents
  uint32_t padding = 0;
};
static_assert(sizeof(LogSessionAnswer) == 40);
// An extent that logs lie in. The server withdraws the right when the last log in it is deleted;
// what a client then READs there breaks its connection, and the next session lists it no more.
struct NamedExtent {
  uint64_t name = 0;            // in LogReply::extent
  fabric::RemoteRegion region;  // READ. Without bytes: the server's device refuses it
};
static_assert(sizeof(NamedExtent) == 32);
inline constexpr uint32_t kMostLogExtents = 64;  // the extents of a pool

// The body of the welcome. A producer always has a lease.
struct LogProducerAnswer {
  fabric::RemoteRegion data;  // WRITE, READ: the log's data area
  fabric::RemoteRegion tail;  // WRITE: 8 bytes, LogWords::tail_lsn
  uint64_t start_lsn = 0;
  uint64_t tail_lsn = 0;
  uint64_t next_index = 1;
  uint32_t incarnation = 0;
  uint32_t salt = 0;
  uint8_t padding_off = 0;  // persist::PaddingRules::off_bits() of the log
  uint8_t padding[7] = {};
};
static_assert(sizeof(LogProducerAnswer) == 88);

// ---- RPC ----

// In sessions, unless said otherwise; behind service::RequestPrefix. Every reply may be an error of
// the table in docs/log-service.md.
enum class LogMethod : uint16_t {
  kCreate = 0x0202,  // CreateRequest, name, replica URIs -> LogReply
  kOpen = 0x0203,    // name -> LogReply, name, replica URIs, damaged ranges
  kList = 0x0204,    // ListRequest -> ListReply, then per log: LogReply, name
  kAppend = 0x0205,  // AppendRequest, AppendItem[count], payloads -> AppendReply: shared producers
  kTrim = 0x0206,    // TrimRequest -> TrimReply
  kSeal = 0x0207,    // LogRequest -> LogReply
  kDelete = 0x0208,  // LogRequest -> nothing
  // Producer connections: makes room by when_full; BackPressure if that is kBackPressure.
  kMakeRoom = 0x0209,  // MakeRoomRequest -> TrimReply
  // Producer connections: records who the replicas are from now on.
  kSetMembership = 0x020a,  // MembershipRequest, replica URIs -> nothing
  // Producer connections: every replica has recorded this membership.
  kAgree = 0x020b,  // AgreeRequest -> nothing
};

struct LogRequest {
  uint64_t log;
};

struct CreateRequest {
  uint64_t bytes;
  FullPolicy when_full;
  uint8_t name_bytes;
  uint8_t replicas;  // then so many times: uint8 bytes, URI
  uint8_t self;
  uint8_t padding[4];
  uint64_t membership = 1;
  uint64_t begin_lsn = 0;    // where the first entry will be
  uint64_t begin_index = 1;  // and its index
  uint64_t identity = 0;     // as the creator drew it, the same for every replica
};
static_assert(sizeof(CreateRequest) == 48);

struct MembershipRequest {
  uint64_t expected;    // Conflict when it is another
  uint64_t membership;  // above
  uint8_t replicas;     // then so many times: uint8 bytes, URI
  uint8_t self;
  uint8_t padding[6];
};
static_assert(sizeof(MembershipRequest) == 24);

struct AgreeRequest {
  uint64_t membership;  // Conflict when it is another
};

struct LogReply {
  uint64_t id;
  NamedExtent extent;
  uint64_t region_offset;  // of the ring, in the extent
  uint64_t region_bytes;
  uint64_t start_lsn;
  uint64_t tail_lsn;
  uint64_t next_index;
  uint64_t membership;
  uint64_t identity;
  uint32_t word;  // its place among LogWords
  uint32_t incarnation;
  uint32_t salt;
  uint32_t damaged;  // how many DamagedRange follow (kOpen)
  FullPolicy when_full;
  uint8_t sealed;
  uint8_t exclusive;
  uint8_t name_bytes;
  uint8_t replicas;  // URIs that follow the name (kOpen): uint8 bytes, URI
  uint8_t agreed;
  uint8_t padding[2];
};
static_assert(sizeof(LogReply) == 120);

struct ListRequest {
  uint32_t from;  // slot to begin at; 0 first, then ListReply::next
  uint32_t max_bytes;
};
struct ListReply {
  uint32_t next;  // 0: nothing more
  uint32_t count;
};

struct AppendRequest {
  uint64_t log;
  uint64_t number;  // of the client's appends, from 1 on; executed once
  uint32_t count;   // 1 to kMaxBatchEntries: together or not at all, one after the other
  uint32_t padding;
};
struct AppendItem {
  uint32_t bytes;
};
struct AppendReply {
  Appended first;
  Appended last;
};

// Entries below `through_lsn` go. With `through_index`, those with a lower index.
struct TrimRequest {
  uint64_t log;
  uint64_t through_lsn;  // the LSN of an entry, or the tail; 0: use through_index
  uint64_t through_index;
};
struct MakeRoomRequest {
  uint64_t bytes;  // that an entry of so many bytes fits
};
struct TrimReply {
  uint64_t start_lsn;
};

}  // namespace pmstore::log
