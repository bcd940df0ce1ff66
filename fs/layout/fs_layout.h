// The persistent layout of a file system: the keys and values of its tables. docs/files.md
// describes them.
//
//   table         key                           value
//   .fs.super     "super"                       SuperRecord
//                 "spare000" and so on          without a use: fs/internal/reserve.h
//                 "server00001" and so on       DataServerRecord, then its URI
//                 "owner", identity of an area  ClientSecret by which this file system owns it
//   .fs.inodes    ino                           InodeRecord, then inline data or a symlink's target
//   .fs.entries   parent, name                  EntryRecord
//   .fs.numbers   parent, number                NumberRecord, then the name
//   .fs.parents   ino of a directory            ParentRecord
//   .fs.maps      ino, column, file offset      MapRecord
//   .fs.freed     id                            MapRecord: a range in quarantine
//   .fs.orphans   ino                           OrphanRecord
//   .fs.xattrs    ino, name                     the value
//
// All tables are ordered. Integers of keys are big endian, so that they sort; those of values are
// little endian. A column is one of the stripes of a file; there is one now.
// Damaged (an EIO of the file system): a record that does not decode. The store has checksums, so
// it was written wrong, or by something else.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "fs/types.h"
#include "pmstore/types.h"
#include "service/identity.h"

namespace pmstore::fs::internal {

static_assert(std::endian::native == std::endian::little, "the layout is written as it is");

inline constexpr uint64_t kSuperMagic = 0x53464d504f4c4946;  // "FILOPMFS"
inline constexpr uint32_t kFsVersion = 1;
inline constexpr std::string_view kSuperKey = "super";

// Of SuperRecord::features. There were further data servers: maps name them.
inline constexpr uint32_t kHasDataServers = 1;

// Of SuperRecord::given_up.
inline constexpr uint32_t kSpaceIsUnclean = UINT32_MAX;

struct SuperRecord {
  uint64_t magic;
  uint32_t version;
  uint32_t features;  // a file system with unknown ones is refused
  uint64_t identity;
  uint64_t next_ino;  // no inode has this number or a higher one
  uint64_t created_ns;
  uint16_t servers;  // data servers that were ever added
  uint16_t columns;  // of new files
  // How many records the store's starts had given up when all free space was put into quarantine.
  // kSpaceIsUnclean: some of it is still to be put there.
  uint32_t given_up;
};
static_assert(sizeof(SuperRecord) == 48 && offsetof(SuperRecord, identity) == 16 &&
              offsetof(SuperRecord, next_ino) == 24 && offsetof(SuperRecord, servers) == 40);

struct InodeRecord {
  uint8_t type;
  uint8_t is_inline;
  uint16_t mode;
  uint32_t uid;
  uint32_t gid;
  uint32_t links;
  uint64_t size;
  uint64_t data_bytes;  // the sum of its extents
  uint64_t atime_ns;
  uint64_t mtime_ns;
  uint64_t ctime_ns;
  uint64_t created_ns;
  uint64_t version;
  uint64_t next_number;  // of a directory: the number of its next entry
  uint32_t device;
  uint32_t tail_bytes;   // what follows
  uint32_t xattr_bytes;  // the names of its extended attributes, each with one byte more
  uint32_t reserved;
};
static_assert(sizeof(InodeRecord) == 96 && offsetof(InodeRecord, links) == 12 &&
              offsetof(InodeRecord, size) == 16 && offsetof(InodeRecord, next_number) == 72 &&
              offsetof(InodeRecord, device) == 80 && offsetof(InodeRecord, xattr_bytes) == 88);

struct EntryRecord {
  uint64_t ino;
  uint64_t number;
  uint8_t type;
  uint8_t reserved[3];
  uint32_t mark;  // of the call that has made the name; 0: none
};
static_assert(sizeof(EntryRecord) == 24 && offsetof(EntryRecord, type) == 16 &&
              offsetof(EntryRecord, mark) == 20);

struct NumberRecord {
  uint64_t ino;
  uint8_t type;
  uint8_t reserved[5];
  uint16_t name_bytes;  // what follows
};
static_assert(sizeof(NumberRecord) == 16 && offsetof(NumberRecord, name_bytes) == 14);

struct ParentRecord {
  uint64_t parent;
};
static_assert(sizeof(ParentRecord) == 8);

struct MapRecord {
  uint16_t server;
  uint16_t replicas;  // further places that follow; 0 until data is replicated
  uint32_t epoch;     // of the replica list
  uint64_t offset;
  uint64_t bytes;
};
static_assert(sizeof(MapRecord) == 24 && offsetof(MapRecord, offset) == 8);

struct DataServerRecord {
  uint64_t area;   // identity of its file area
  uint64_t bytes;  // of that one's units
  uint8_t state;   // DataServerState
  uint8_t reserved[5];
  uint16_t uri_bytes;  // what follows
};
static_assert(sizeof(DataServerRecord) == 24 && offsetof(DataServerRecord, uri_bytes) == 22);

// Why an inode has work left over.
enum class OrphanKind : uint8_t {
  kDeleted = 1,    // no entry names it; it goes when no client has it open
  kTruncated = 2,  // extents behind its size are still to be freed
};
struct OrphanRecord {
  uint8_t kind;
  uint8_t reserved[23];  // as large as a MapRecord: see fs/internal/reserve.h
};
static_assert(sizeof(OrphanRecord) == 24);

// ---- in memory ----

struct Inode {
  Attributes attributes;
  uint64_t next_number = 1;
  uint32_t xattr_bytes = 0;
  std::string tail;  // inline data, or a symlink's target

  bool is_directory() const { return attributes.type == FileType::kDirectory; }
  bool is_regular() const { return attributes.type == FileType::kRegular; }
};

struct Entry {
  Ino ino{};
  FileType type{};
  uint64_t number = 0;
  uint32_t mark = 0;  // of the call that has made the name; 0: none
};

struct NumberedName {
  Ino ino{};
  FileType type{};
  std::string name;
};

// A piece of a file, as its map record says it.
struct Piece {
  uint64_t file_offset = 0;
  AreaRange place;
  uint64_t end() const { return file_offset + place.bytes; }
  bool operator==(const Piece&) const = default;
};

// A data server, as its record says it. The one of the namespace's own pool has index 0, and a
// record only when it is not in use.
struct DataServerEntry {
  uint16_t index = 0;
  DataServerState state = DataServerState::kInUse;
  uint64_t area = 0;
  uint64_t bytes = 0;
  std::string uri;
};

// ---- keys ----

std::string ino_key(Ino ino);
std::string entry_key(Ino parent, std::string_view name);
std::string number_key(Ino parent, uint64_t number);
std::string map_key(Ino ino, uint64_t file_offset);
std::string freed_key(uint64_t id);
std::string xattr_key(Ino ino, std::string_view name);
std::string data_server_key(uint16_t index);
std::string owner_secret_key(uint64_t area);
KeyRange data_server_keys();
// Damaged: not such a key.
Result<Ino> ino_of_key(std::string_view key);
Result<uint64_t> freed_id_of_key(std::string_view key);
Result<uint64_t> number_of_key(std::string_view key);
// All keys of one inode in .fs.entries, .fs.numbers, .fs.maps, .fs.xattrs.
KeyRange keys_of(Ino ino);
// The records of .fs.maps with file offsets in [from, to).
KeyRange map_keys(Ino ino, uint64_t from, uint64_t to);
// The records of .fs.numbers behind `cookie`.
KeyRange number_keys(Ino parent, uint64_t cookie);

// ---- values ----

std::string encode(const SuperRecord& super);
std::string encode(const Inode& inode);
std::string encode(const Entry& entry);
std::string encode(const NumberedName& name);
std::string encode(const AreaRange& place);
std::string encode_parent(Ino parent);
std::string encode(OrphanKind kind);
std::string encode(const DataServerEntry& server);
std::string encode(const ClientSecret& secret);

Result<SuperRecord> decode_super(std::string_view value);
Result<Inode> decode_inode(Ino ino, std::string_view value);
Result<Entry> decode_entry(std::string_view value);
Result<NumberedName> decode_number(std::string_view value);
Result<AreaRange> decode_place(std::string_view value);
Result<Piece> decode_piece(std::string_view key, std::string_view value);
Result<Ino> decode_parent(std::string_view value);
Result<OrphanKind> decode_orphan(std::string_view value);
Result<DataServerEntry> decode_data_server(std::string_view key, std::string_view value);
Result<ClientSecret> decode_secret(std::string_view value);

}  // namespace pmstore::fs::internal
