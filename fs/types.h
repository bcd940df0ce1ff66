// The small types of the file system: inode numbers, attributes, who asks, ranges of data.
//
// Threads: values. Times are nanoseconds since 1970 (UTC); they come from the clock that the server
// was given, and from utimens().
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pmstore::fs {

inline constexpr size_t kMaxNameBytes = 255;
inline constexpr size_t kMaxPathBytes = 4096;  // with its end, as PATH_MAX
inline constexpr size_t kMaxSymlinkBytes = 4095;
inline constexpr size_t kMaxWalkedNames = 64;  // by one call
inline constexpr size_t kMaxXattrNameBytes = 255;
inline constexpr size_t kMaxXattrBytes = 64 * 1024;
inline constexpr uint64_t kMaxFileBytes = uint64_t{16} << 40;
inline constexpr uint32_t kMaxLinks = 65'000;
// A file of at most so many bytes, which was never larger, lies in its inode.
inline constexpr size_t kMaxInlineBytes = 4096;
// Data is allocated in units of so many bytes; extents have 1 to 16,384 of them.
inline constexpr uint64_t kUnitBytes = 64 * 1024;
inline constexpr uint64_t kMaxExtentBytes = uint64_t{1} << 30;
// The most that one write() or read() through the namespace server carries.
inline constexpr size_t kMaxMessageData = 1u << 20;

// Never used again in a file system.
enum class Ino : uint64_t {};
constexpr uint64_t raw(Ino ino) { return static_cast<uint64_t>(ino); }
inline constexpr Ino kRootIno{1};

// The numbers are persistent.
enum class FileType : uint8_t {
  kRegular = 1,
  kDirectory = 2,
  kSymlink = 3,
  kFifo = 4,
  kSocket = 5,
  kCharDevice = 6,
  kBlockDevice = 7,
};

struct Attributes {
  Ino ino{};
  FileType type = FileType::kRegular;
  uint16_t mode = 0;  // permission bits, set-id bits and the sticky bit: 07777
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint32_t links = 0;
  uint64_t size = 0;        // bytes; of a symlink its target's; of a directory its entries'
  uint64_t data_bytes = 0;  // allocated, a multiple of kUnitBytes; 0 for inline data
  uint64_t atime_ns = 0;
  uint64_t mtime_ns = 0;
  uint64_t ctime_ns = 0;
  uint64_t created_ns = 0;
  uint32_t device = 0;     // of device files, as st_rdev
  bool is_inline = false;  // the data lies in the inode: there is no map
  // Grows with each change of the inode or its map.
  uint64_t version = 0;
  bool operator==(const Attributes&) const = default;
};

// Whether a read at `now_ns` changes atime, as Linux has it by default (relatime).
inline bool is_atime_due(const Attributes& attributes, uint64_t now_ns) {
  constexpr uint64_t kDayNs = uint64_t{24} * 3600 * 1'000'000'000;
  const uint64_t atime_ns = attributes.atime_ns;
  if (now_ns <= atime_ns) return false;
  return atime_ns <= attributes.mtime_ns || atime_ns <= attributes.ctime_ns ||
         now_ns - atime_ns >= kDayNs;
}

// When what a client writes is durable: when the write returns, or after fsync() or close(). It is
// visible to all clients when the write returns.
enum class DataSync : uint8_t { kAlways, kFsync };

// For whom an operation is done: permissions are checked for this user, who owns what it makes.
// uid 0 may do everything.
struct Caller {
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::vector<uint32_t> groups;  // beside gid
};

// What setattr changes; the fields of unset bits are ignored.
struct AttributeChange {
  enum Bits : uint32_t {
    kMode = 1,
    kUid = 2,
    kGid = 4,
    kSize = 8,
    kAtime = 16,
    kMtime = 32,
    kAtimeNow = 64,
    kMtimeNow = 128,
  };
  uint32_t set = 0;
  uint16_t mode = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint64_t size = 0;
  uint64_t atime_ns = 0;
  uint64_t mtime_ns = 0;
};

struct DirectoryEntry {
  std::string name;
  Ino ino{};
  FileType type{};
  // The position behind this entry, for the next readdir; it is this entry's for ever.
  uint64_t cookie = 0;
};

enum class RenameMode : uint8_t { kReplace = 0, kNoReplace = 1, kExchange = 2 };

// flock() and the byte ranges of fcntl() do not see each other. The numbers travel.
enum class LockKind : uint8_t { kRange = 0, kFlock = 1 };
enum class LockType : uint8_t { kRead = 0, kWrite = 1, kUnlock = 2 };
// Bytes from `start` to `end`, both included. All of a file, however it grows: 0 to UINT64_MAX.
struct FileLock {
  LockKind kind = LockKind::kRange;
  LockType type = LockType::kRead;
  uint64_t start = 0;
  uint64_t end = UINT64_MAX;
  uint64_t owner = 0;  // who holds it, among all of this client: a process, say
  uint32_t pid = 0;    // for F_GETLK
  bool operator==(const FileLock&) const = default;
};

// What a client has done with a file without a message: its times follow.
struct Touch {
  bool written = false;      // mtime and ctime become now
  bool read = false;         // atime becomes the time of the read, as a mount with relatime does it
  uint64_t read_age_ns = 0;  // so long ago
};

struct FileSystemUsage {
  uint64_t data_bytes = 0;  // of all data servers
  uint64_t free_bytes = 0;  // without what is in quarantine
  uint64_t quarantined_bytes = 0;
  uint64_t inodes = 0;
  uint64_t max_inodes = 0;  // 0: no bound but the pool
  // Of both data_bytes and free_bytes: what file data has not taken from the pool yet. Records and
  // logs may come first.
  uint64_t growable_bytes = 0;
};

// Of a data server of a file system. The numbers are persistent.
enum class DataServerState : uint8_t {
  kInUse = 1,
  kDraining = 2,  // gets no new data, and what it has is moved elsewhere
  kGone = 3,      // has nothing of this file system any more
};

struct DataServerInfo {
  uint16_t index = 0;  // 0: the namespace's own pool
  DataServerState state = DataServerState::kInUse;
  bool is_there = true;  // the namespace server has a session with it
  uint64_t area = 0;     // identity of its file area
  uint64_t bytes = 0;
  uint64_t used_bytes = 0;  // allocated, or in quarantine
  std::string uri;          // empty: as the namespace's
  // kDraining: why something was not moved when that was tried last. Empty: nothing is in the way.
  std::string problem = {};
  // Behind every AreaRange::offset that there may be; above `bytes` where the area has several
  // sections.
  uint64_t end = 0;
};

// A part of the file area of a data server. Offsets and sizes of whole extents are multiples of
// kUnitBytes.
struct AreaRange {
  uint16_t server = 0;  // index among the file system's data servers
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool operator==(const AreaRange&) const = default;
};

// An extent of a file: `place` has the bytes of the file from `file_offset` on. What no extent
// covers, and lies below the file's size, reads as zeros.
struct MapExtent {
  uint64_t file_offset = 0;
  AreaRange place;
  // Of the generation word of place's first unit when the map was made. A client that READs another
  // one there has a stale map.
  uint64_t generation = 0;
  bool operator==(const MapExtent&) const = default;
};

// A part of a file's map: all extents that touch [from, to).
struct FileMap {
  uint64_t from = 0;
  uint64_t to = 0;
  std::vector<MapExtent> extents;  // in order
};

}  // namespace pmstore::fs
