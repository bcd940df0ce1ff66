// The messages of the file service: bodies of hello and welcome (service/hello.h), RPC requests and
// replies. docs/files-service.md.
//
// Each call of Namespace (fs/namespace.h) is one request: service::RequestPrefix, RequestHead, the
// caller's groups, the struct of the method, then its names and data. Each reply is ReplyHead, then
// the message of an error, or what the method gives. Everything is decoded by
// fabric::MessageReader; what does not decode exactly costs the sender its connection. Fixed
// little-endian structs. Threads: values.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "fabric/message.h"
#include "fs/namespace.h"
#include "fs/types.h"

namespace pmstore::fs {

// ---- handshake ----

// The body of the hello.
struct FilesHello {
  uint64_t instance = 0;   // of the client, drawn when it was made; it numbers its requests
  uint64_t last_sent = 0;  // the highest number that it has sent in a session before
};
static_assert(sizeof(FilesHello) == 16);

// The body of the welcome.
struct FilesWelcome {
  uint64_t identity = 0;  // of the file system
  // Names what the server keeps of this client between its sessions: executed requests, open files,
  // news. Another one than before: all of that was lost. The client drops its maps and opens its
  // files again.
  uint64_t ticket = 0;
  uint64_t news = 0;  // the newest
};
static_assert(sizeof(FilesWelcome) == 24);

// ---- requests ----

inline constexpr size_t kMaxGroups = 64;  // of a caller, beside its gid

// Of a client's requests with a number. One with a number that is so far behind the oldest without
// an answer makes it malformed: a client waits before it draws that.
inline constexpr uint64_t kMaxUnanswered = 1024;

struct RequestHead {
  // Of the client's requests that change something, from 1 on: executed once, and a repetition is
  // answered as the first one was. 0: it changes nothing.
  uint64_t number = 0;
  // The client has dropped what news through this one made stale, and uses it no more.
  uint64_t confirmed = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint16_t groups = 0;    // uint32 each, behind this
  uint16_t repeated = 0;  // 1: NewFile::repeated
  uint32_t mark = 0;      // of a call that makes a name: NewFile::mark
};
static_assert(sizeof(RequestHead) == 32);

enum class FilesMethod : uint16_t {
  kLookup = 0x0301,           // NameRequest, name -> attributes
  kGetAttributes = 0x0302,    // InoRequest -> attributes
  kSetAttributes = 0x0303,    // SetAttributesRequest -> attributes
  kAccess = 0x0304,           // AccessRequest -> nothing
  kMake = 0x0305,             // MakeRequest, name, target -> attributes, OpenReply if opened
  kLink = 0x0306,             // LinkRequest, name -> attributes
  kUnlink = 0x0307,           // NameRequest, name -> nothing
  kRemoveDirectory = 0x0308,  // NameRequest, name -> nothing
  kRename = 0x0309,           // RenameRequest, name, new name -> nothing
  kReadLink = 0x030a,         // InoRequest -> target
  kReadDirectory = 0x030b,    // ReadDirectoryRequest -> ListReply, entries
  kParentOf = 0x030c,         // InoRequest -> InoRequest
  kOpen = 0x030d,             // OpenRequest -> attributes, OpenReply
  kClose = 0x030e,            // InoRequest -> nothing
  kMap = 0x030f,              // MapRequest -> attributes, MapReply, WireExtent[]
  kRead = 0x0310,             // RangeRequest -> bytes; fewer than asked for: the file ends there
  kWrite = 0x0311,            // WriteRequest, bytes -> attributes, WriteReply
  kAllocate = 0x0312,         // AllocateRequest -> attributes
  kTouch = 0x0313,            // TouchRequest -> nothing
  kGetXattr = 0x0314,         // XattrRequest, name -> value
  kSetXattr = 0x0315,         // XattrRequest, name, value -> nothing
  kRemoveXattr = 0x0316,      // XattrRequest, name -> nothing
  kListXattrs = 0x0317,       // InoRequest -> names, each with its terminating 0
  kUsage = 0x0318,            // nothing -> FileSystemUsage
  kLock = 0x0319,             // LockRequest -> LockReply; EAGAIN: it is not free
  kFindLock = 0x031a,         // LockRequest -> LockReply: what is in the way
  kWalk = 0x031b,             // WalkRequest, paths -> for each: WalkReply, attributes[], text
  kDataServers = 0x031c,      // nothing -> DataServersReply, for each: WireDataServer, URI, text
  kAddDataServer = 0x031d,    // AddDataServerRequest, URI -> DataServerReply
  kDrainDataServer = 0x031e,  // DrainDataServerRequest -> nothing
  // RangeRequest -> attributes, MapReply, WireExtent[]: room that the client writes to, before
  // kPublish lets the size grow
  kReserve = 0x031f,
  // Of this client, not of the namespace:
  // nothing -> NewsReply, ino[], ino[]: maps that confirmed + 1 to `through` changed, delegations
  // that they recall
  kNews = 0x0320,
  // ReclaimRequest -> attributes, OpenReply: a file that it had open before a restart
  kReclaim = 0x0321,
  // As kNews, but the answer may wait until a delegation of this client is recalled.
  // ConfirmRequest, UnlandedWrite[] -> nothing: news are confirmed, but for what writes of this
  // client may still change. The next one takes the place of that.
  kConfirm = 0x0325,
  kAwaitNews = 0x0322,  // AwaitNewsRequest -> NewsReply, ino[], ino[]
  kAwaitOpen = 0x0323,  // AwaitOpenRequest -> OpenReply: an open whose answer said `wait`
  // LockRequest -> LockReply: a lock that was not free. Takes it when it is, or answers `again`. It
  // has no number, so other requests do not wait for its answer: a repetition finds the lock taken.
  kAwaitLock = 0x0324,
  kPublish = 0x0326,  // PublishRequest -> attributes; EAGAIN: the room is another one by now
  // As kMake; kUnlink or kRemoveDirectory, as what is there; kRename. Each name is a path from its
  // directory, which the server walks. kWalkFirst: it cannot.
  kMakeAt = 0x0327,
  kRemoveAt = 0x0328,
  kRenameAt = 0x0329,
};

struct InoRequest {
  uint64_t ino = 0;
};
struct NameRequest {
  uint64_t parent = 0;
  uint16_t name_bytes = 0;
  uint16_t padding[3] = {};
};
static_assert(sizeof(NameRequest) == 16);
struct WalkRequest {
  uint64_t start = 0;
  uint16_t path_bytes = 0;
  uint16_t other_bytes = 0;  // of a second path from there, which is walked, too; 0: none
  uint16_t padding[2] = {};
};
static_assert(sizeof(WalkRequest) == 16);
struct SetAttributesRequest {
  uint64_t ino = 0;
  uint64_t size = 0;
  uint64_t atime_ns = 0;
  uint64_t mtime_ns = 0;
  uint32_t set = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint16_t mode = 0;
  uint16_t padding = 0;
};
static_assert(sizeof(SetAttributesRequest) == 48);
struct AccessRequest {
  uint64_t ino = 0;
  uint32_t mask = 0;
  uint32_t padding = 0;
};
struct MakeRequest {
  uint64_t parent = 0;
  uint32_t device = 0;
  int32_t open_flags = 0;
  uint16_t mode = 0;
  uint16_t name_bytes = 0;
  uint16_t target_bytes = 0;
  FileType type{};
  uint8_t exclusive = 0;
  uint8_t open = 0;    // a regular file is opened, too
  uint8_t caches = 0;  // then the client wants to cache it
  uint8_t padding[6] = {};
};
static_assert(sizeof(MakeRequest) == 32);
struct LinkRequest {
  uint64_t ino = 0;
  uint64_t parent = 0;
  uint16_t name_bytes = 0;
  uint16_t padding[3] = {};
};
static_assert(sizeof(LinkRequest) == 24);
struct RenameRequest {
  uint64_t from = 0;
  uint64_t to = 0;
  uint16_t name_bytes = 0;
  uint16_t new_name_bytes = 0;
  RenameMode mode{};
  uint8_t padding[3] = {};
};
static_assert(sizeof(RenameRequest) == 24);
struct ReadDirectoryRequest {
  uint64_t directory = 0;
  uint64_t cookie = 0;
  uint32_t most = 0;
  uint8_t with_attributes = 0;
  uint8_t padding[3] = {};
};
static_assert(sizeof(ReadDirectoryRequest) == 24);
struct OpenRequest {
  uint64_t ino = 0;
  int32_t flags = 0;
  uint32_t caches = 0;  // 1: the client wants to cache it
};
struct AwaitOpenRequest {
  uint64_t ino = 0;
  uint32_t writes = 0;  // it was opened for writing
  uint32_t padding = 0;
};
static_assert(sizeof(AwaitOpenRequest) == 16);
struct AwaitNewsRequest {
  uint32_t most_ms = 0;
  uint32_t padding = 0;
};
struct ConfirmRequest {
  uint64_t through = 0;
  uint32_t count = 0;  // of UnlandedWrite, at most kMaxUnlandedWrites
  uint32_t padding = 0;
};
static_assert(sizeof(ConfirmRequest) == 16);
// A write that was lost with its session may still land at this data server, in this file. 0: in
// any file.
struct UnlandedWrite {
  uint64_t ino = 0;
  uint16_t server = 0;
  uint16_t padding[3] = {};
};
static_assert(sizeof(UnlandedWrite) == 16);
inline constexpr uint32_t kMaxUnlandedWrites = 1024;
struct RangeRequest {
  uint64_t ino = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};
struct MapRequest {
  uint64_t ino = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint8_t allocate = 0;
  uint8_t padding[7] = {};
};
static_assert(sizeof(MapRequest) == 32);
struct WriteRequest {
  uint64_t ino = 0;
  uint64_t offset = 0;
  uint32_t bytes = 0;
  uint8_t append = 0;  // at the end; `offset` is 0
  uint8_t atomic = 0;  // all of it, or nothing, also after a power cut
  uint8_t padding[2] = {};
};
static_assert(sizeof(WriteRequest) == 24);
struct TouchRequest {
  uint64_t ino = 0;
  uint64_t read_age_ns = 0;
  uint8_t written = 0;
  uint8_t read = 0;
  uint8_t padding[6] = {};
};
static_assert(sizeof(TouchRequest) == 24);
struct AllocateRequest {
  uint64_t ino = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  AllocateMode mode{};
  uint8_t padding[7] = {};
};
static_assert(sizeof(AllocateRequest) == 32);
struct XattrRequest {
  uint64_t ino = 0;
  uint32_t value_bytes = 0;
  uint16_t name_bytes = 0;
  XattrMode mode{};
  uint8_t padding = 0;
};
static_assert(sizeof(XattrRequest) == 16);
// The opens that a client had at a server that forgot them, several of one file at once.
inline constexpr uint32_t kMaxReclaimedOpens = 1024;
struct ReclaimRequest {
  uint64_t ino = 0;
  int32_t flags = 0;
  uint32_t opens = 0;
};
static_assert(sizeof(ReclaimRequest) == 16);

struct LockRequest {
  uint64_t ino = 0;
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t owner = 0;
  uint32_t pid = 0;
  LockKind kind{};
  LockType type{};
  uint8_t reclaim = 0;  // it was this client's before a restart; EIO: it comes too late
  uint8_t padding = 0;
};
static_assert(sizeof(LockRequest) == 40);

struct AddDataServerRequest {
  uint16_t uri_bytes = 0;
  uint16_t padding[3] = {};
};
struct DrainDataServerRequest {
  uint16_t index = 0;
  uint8_t undo = 0;  // it is to be used again
  uint8_t padding[5] = {};
};
static_assert(sizeof(DrainDataServerRequest) == 8);

// ---- replies ----

struct ReplyHead {
  uint64_t news = 0;           // the newest
  int32_t error = 0;           // an errno; 0: done
  uint32_t message_bytes = 0;  // of the error's line
};
static_assert(sizeof(ReplyHead) == 16);

struct WireAttributes {
  uint64_t ino = 0;
  uint64_t size = 0;
  uint64_t data_bytes = 0;
  uint64_t atime_ns = 0;
  uint64_t mtime_ns = 0;
  uint64_t ctime_ns = 0;
  uint64_t created_ns = 0;
  uint64_t version = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint32_t links = 0;
  uint32_t device = 0;
  uint16_t mode = 0;
  FileType type{};
  uint8_t is_inline = 0;
  uint8_t padding[4] = {};
};
static_assert(sizeof(WireAttributes) == 88);

struct WalkReply {
  uint32_t count = 0;  // of names that were found
  int32_t error = 0;   // of the name behind them
  // Of a symlink's target, at which the walk ends, or of the error's line.
  uint32_t text_bytes = 0;
  uint32_t padding = 0;
};
static_assert(sizeof(WalkReply) == 16);

struct ListReply {
  uint32_t count = 0;
  uint32_t padding = 0;
};
struct WireEntry {
  uint64_t ino = 0;
  uint64_t cookie = 0;
  FileType type{};
  uint8_t name_bytes = 0;
  uint8_t has_attributes = 0;  // WireAttributes behind the name
  uint8_t padding[5] = {};
};
static_assert(sizeof(WireEntry) == 24);

struct PublishRequest {
  uint64_t ino = 0;
  uint64_t reservation = 0;
  uint64_t size = 0;
};
static_assert(sizeof(PublishRequest) == 24);

struct MapReply {
  // What was the newest when the map was asked for: it has all changes through this one. A client
  // that has heard of a later one for this file asks again.
  uint64_t news_before = 0;
  uint64_t from = 0;
  uint64_t to = 0;
  uint32_t count = 0;
  uint32_t padding = 0;
  uint64_t reservation = 0;  // of kReserve
};
struct WireExtent {
  uint64_t file_offset = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t generation = 0;
  uint16_t server = 0;
  uint8_t padding[6] = {};
};
static_assert(sizeof(WireExtent) == 40);

struct WriteReply {
  uint64_t offset = 0;  // where it was written
};

struct DataServersReply {
  uint32_t count = 0;
  uint32_t padding = 0;
};
struct WireDataServer {
  uint64_t area = 0;
  uint64_t bytes = 0;
  uint64_t used_bytes = 0;
  uint64_t end = 0;
  uint16_t index = 0;
  DataServerState state{};
  uint8_t is_there = 0;
  uint16_t uri_bytes = 0;
  uint16_t problem_bytes = 0;  // behind the URI
};
static_assert(sizeof(WireDataServer) == 40);
struct DataServerReply {
  uint64_t index = 0;
};

struct LockReply {
  uint64_t start = 0;
  uint64_t end = 0;
  uint32_t pid = 0;
  LockType type{};
  uint8_t found = 0;  // kFindLock: there is one
  // The server has just started, and clients that had locks before come first; or, of kAwaitLock,
  // it was not free for a while. Nothing was taken: kAwaitLock.
  uint8_t again = 0;
  uint8_t padding = 0;
};
static_assert(sizeof(LockReply) == 24);

struct NewsReply {
  uint64_t through = 0;
  uint32_t count = 0;
  uint32_t recalls = 0;
  // The server does not know which files changed: every map is stale, every delegation recalled.
  uint8_t all = 0;
  uint8_t padding[7] = {};
};
static_assert(sizeof(NewsReply) == 24);

// The error of a kSetAttributes that was not executed, since others may still use what they have
// cached: kAwaitOpen, as for writing, then again.
inline constexpr int kCachedElsewhere = EINPROGRESS;
// Of a method with paths: one has a symlink on its way, more names than a walk takes, or no name at
// its end. Nothing was done: the client walks the path itself.
inline constexpr int kWalkFirst = EALREADY;

struct OpenReply {
  uint64_t news = 0;    // the newest when the request arrived
  uint64_t now_ns = 0;  // the time at the server
  uint8_t caches = 0;   // this client may cache the file, until news recall it
  uint8_t wait = 0;     // others may still use what they have cached: kAwaitOpen
  uint8_t padding[6] = {};
  // With `caches`, by the clock of changes (FileChanges): now, and when another client could change
  // the file last.
  uint64_t changes = 0;
  uint64_t changed = 0;
};
static_assert(sizeof(OpenReply) == 40);

// ---- both ways ----

// The files in which writes may still land at one data server.
struct UnlandedFiles {
  bool any = false;  // more than are named
  std::set<Ino> inos;
  bool contains(Ino ino) const { return any || inos.contains(ino); }
};
using UnlandedWrites = std::map<uint16_t, UnlandedFiles>;  // by index of the server

WireAttributes to_wire(const Attributes& attributes);
// Nothing: it is none of a file.
std::optional<Attributes> decode_attributes(fabric::MessageReader& reader);
void put_extent(const MapExtent& extent, fabric::MessageWriter& writer);
MapExtent get_extent(fabric::MessageReader& reader);
void put_listed(const Namespace::Listed& listed, fabric::MessageWriter& writer);
std::optional<Namespace::Listed> get_listed(fabric::MessageReader& reader);
// Room for so many names.
constexpr size_t walked_bytes(size_t names) {
  return sizeof(WalkReply) + names * sizeof(WireAttributes) + kMaxSymlinkBytes;
}
void put_walked(const Namespace::Walked& walked, fabric::MessageWriter& writer);
std::optional<Namespace::Walked> get_walked(fabric::MessageReader& reader);
void put_data_server(const DataServerInfo& server, fabric::MessageWriter& writer);
std::optional<DataServerInfo> get_data_server(fabric::MessageReader& reader);
// Nothing: the request has no head, or more than kMaxGroups.
std::optional<RequestHead> get_head(fabric::MessageReader& reader, Caller& caller);
AttributeChange change_of(const SetAttributesRequest& request);
bool is_known(FileType type);
// Nothing: it makes no sense.
std::optional<FileLock> lock_of(const LockRequest& request);
LockRequest request_of(Ino ino, const FileLock& lock, bool reclaim);

}  // namespace pmstore::fs
