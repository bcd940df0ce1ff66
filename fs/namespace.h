// Namespace: inodes, directory entries, maps, small files and extended attributes of one file
// system, as transactions on ordered tables of a store. The server's half of the file service
// without any network; fs/files_service.h serves it.
//
// Each call is one transaction, repeated by itself when it loses against another, and durable on
// return: it is there as a whole or not at all after a power cut. Data that is written by write()
// is durable before the size that covers it. Permissions are those of POSIX for the caller.
// Threads: one executor's; many calls may run at the same time. Lifetimes: client and space outlive
// it, and it outlives its tasks. Views and spans are borrowed until the task ends. When the
// coroutine of a call is destroyed, the call has happened as a whole or not at all. Errors: the
// errnos that POSIX names for the call; also EIO (the store or a data server is away, a record is
// damaged: the message says which), ENOSPC, ESTALE (the inode is gone).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/task.h"
#include "fs/data_space.h"
#include "fs/posix_error.h"
#include "fs/types.h"
#include "pmstore/client.h"

namespace pmstore::fs {

struct NamespaceOptions {
  // Nanoseconds since 1970. Tests give a clock of their own.
  std::function<uint64_t()> now_ns;
  uint64_t max_inodes = 0;  // 0: as many as fit
  uint64_t identity = 0;    // of a new file system; 0: random
  uint32_t root_uid = 0;    // whose its root directory is
  uint32_t root_gid = 0;
  // Pairs of an inode and an owner who has it open; ENFILE beyond.
  size_t max_opens = 1u << 20;
  // Unlinked files that were open before the start can be opened again for so long; then those that
  // nobody has opened are deleted. A new file system does not wait.
  uint64_t reclaim_ns = 0;
  // Where space is full, but some of it is being cleaned, a call waits for that so long.
  uint64_t room_patience_ns = 5'000'000'000;
  // Has the store failed for good, so that this process hears nothing of its transactions any more?
  // Empty: it has not.
  std::function<bool()> store_has_failed;
  // Records that the start of the store has given up, as RecoveryReport::damaged_records says: what
  // they named is free now, and may not be zero. When there are others than at the last open(), all
  // free space goes into quarantine first.
  uint64_t records_given_up = 0;
  // Hears one line for each record that open() finds wrong, and what follows from it; bounded.
  std::function<void(const std::string&)> on_damage = {};
};

// Who keeps files open: one session of a client. An unlinked file lives while somebody has it open.
enum class OpenOwner : uint64_t {};

struct NewFile {
  FileType type = FileType::kRegular;
  uint16_t mode = 0;  // the caller's umask is applied already
  uint32_t device = 0;
  // EEXIST when the name is there; else a regular file that is there is given, and opened as
  // open_file() does it with `open_flags`.
  bool exclusive = true;
  int open_flags = 0;
  std::string_view target = {};  // of a symlink
  // Drawn by the caller for this call, and kept with the name. 0: it has none.
  uint32_t mark = 0;
  // An earlier try of the call may have happened. So a name that has its mark is its own, and is
  // given. Of other calls 32 bits would now and then be the same by chance.
  bool repeated = false;
};

enum class AllocateMode : uint8_t {
  kExtend = 0,     // room for the range, and the size grows to its end
  kKeepSize = 1,   // room for the range
  kPunchHole = 2,  // the range reads as zeros, its whole units are free
  kZeroRange = 3,  // the range reads as zeros and has room; the size grows
};

enum class XattrMode : uint8_t { kSet = 0, kCreate = 1, kReplace = 2 };

class Namespace {
 public:
  // Opens the file system in the store of `client`; makes an empty one, whose root has mode
  // 0755, when there is none. Claims all allocated ranges at `space`, and goes on with what a crash
  // has left: unlinked files that no client has open, quarantine. A file whose map has a wrong
  // record gives EIO; all else is served (docs/files.md). Damaged: the super record or the root
  // directory is, or thousands of extents are; errors of the store.
  static base::Task<Result<std::unique_ptr<Namespace>>> open(Client& client, DataSpace& space,
                                                             NamespaceOptions options);
  ~Namespace();
  uint64_t identity() const;
  // False: a wrong record hides which units are in use, so none is given out.
  bool knows_space() const;
  // Returns when nothing is left to be given back, or when a try has failed: then the tables keep
  // it for the next start.
  base::Task<void> finish_reclaiming();

  base::Task<PosixResult<Attributes>> lookup(const Caller& caller, Ino parent,
                                             std::string_view name);
  // Several lookups, one below the other: those of the names in `path`, which slashes divide, from
  // `start` on. Each is checked as lookup() does it, "." and ".." are followed, symlinks are not.
  // At most kMaxWalkedNames.
  struct Walked {
    std::vector<Attributes> found;    // of the names, in order
    std::optional<PosixError> error;  // of the name behind them
    std::string target;               // of the last one when it is a symlink; the walk ends there
  };
  base::Task<PosixResult<Walked>> walk(const Caller& caller, Ino start, std::string_view path,
                                       size_t most = kMaxWalkedNames);
  // The directory at the end of `path`, which is not empty, without a look at the store: for a path
  // that was walked lately. nullopt: walk it; the caller may not search on the way, or it was not
  // walked lately.
  std::optional<Ino> known_directory(const Caller& caller, Ino start, std::string_view path) const;
  base::Task<PosixResult<Attributes>> get_attributes(Ino ino);
  // Size: see truncate rules in docs/files.md. EFBIG above kMaxFileBytes.
  base::Task<PosixResult<Attributes>> set_attributes(const Caller& caller, Ino ino,
                                                     const AttributeChange& change);
  // EACCES when the caller may not do what `mask` (R_OK, W_OK, X_OK) says.
  base::Task<PosixStatus> access(const Caller& caller, Ino ino, int mask);

  // A new file, directory, symlink or device file. With `open_for`, a regular file is opened, too.
  base::Task<PosixResult<Attributes>> make(const Caller& caller, Ino parent, std::string_view name,
                                           const NewFile& file,
                                           std::optional<OpenOwner> open_for = {});
  // `mark` and `repeated` are as in NewFile.
  base::Task<PosixResult<Attributes>> link(const Caller& caller, Ino ino, Ino parent,
                                           std::string_view name, uint32_t mark = 0,
                                           bool repeated = false);
  base::Task<PosixStatus> unlink(const Caller& caller, Ino parent, std::string_view name);
  base::Task<PosixStatus> remove_directory(const Caller& caller, Ino parent, std::string_view name);
  // Atomic. The ancestors of the target are in the read set when a directory moves: there is never
  // a loop.
  base::Task<PosixStatus> rename(const Caller& caller, Ino from, std::string_view name, Ino to,
                                 std::string_view new_name, RenameMode mode);
  base::Task<PosixResult<std::string>> read_link(Ino ino);

  struct Listed {
    DirectoryEntry entry;
    // readdirplus. None: it is gone meanwhile, or its record is damaged; get_attributes() says so.
    std::optional<Attributes> attributes;
  };
  // Entries behind `cookie` (0: from the start), at most `most`, in the order in which they were
  // made; "." and ".." are not among them. Every entry that is there during the whole listing is
  // given once. None: the end. EINVAL: `most` is 0.
  base::Task<PosixResult<std::vector<Listed>>> read_directory(const Caller& caller, Ino directory,
                                                              uint64_t cookie, uint32_t most,
                                                              bool with_attributes);
  // 0 for the root's.
  base::Task<PosixResult<Ino>> parent_of(Ino directory);

  // `flags` of open(2): the access mode is checked; O_TRUNC truncates. Of a file or a directory.
  base::Task<PosixResult<Attributes>> open_file(const Caller& caller, Ino ino, int flags,
                                                OpenOwner owner);
  // Once for each open. An unlinked file goes with the last one.
  base::Task<PosixStatus> close_file(Ino ino, OpenOwner owner);
  // All that this owner has open is closed, also by calls that still run: its session has ended.
  // Requires that the owner begins no call any more.
  base::Task<void> forget(OpenOwner owner);

  struct Mapped {
    Attributes attributes;
    FileMap map;  // empty for inline data
  };
  // With `allocate`, units without an extent in [offset, offset + bytes) get one, below the file's
  // size only; inline data moves to an extent. EISDIR, EINVAL: no regular file.
  base::Task<PosixResult<Mapped>> map(Ino ino, uint64_t offset, uint64_t bytes, bool allocate);
  // Units for [offset, offset + bytes), which begins at or below the end of the file, and goes
  // beyond it. The caller writes there, durably, and then lets the size grow. EINVAL: the range is
  // another one, or the file has data in its inode. `owner`: as open_file(); forget() ends it.
  struct Reserved {
    Mapped mapped;
    uint64_t reservation = 0;
  };
  base::Task<PosixResult<Reserved>> reserve(Ino ino, uint64_t offset, uint64_t bytes,
                                            OpenOwner owner);
  // The file is at least `size` bytes large now; times change as by a write. EAGAIN: the room is
  // not what this owner has reserved any more, and nothing has happened: write().
  base::Task<PosixResult<Attributes>> publish(Ino ino, uint64_t reservation, uint64_t size,
                                              OpenOwner owner);
  // Short at the end of the file.
  base::Task<PosixResult<std::vector<std::byte>>> read(Ino ino, uint64_t offset, uint64_t bytes);
  // At most kMaxMessageData. No offset: at the end of the file (O_APPEND); two appenders never
  // overlap. Gives the attributes after it, of which `size` is the end of what was appended at
  // least, and where it was written. `atomic`: a power cut leaves all of it or nothing, and so does
  // a reader find it; else what is overwritten in place may be found in parts.
  struct Written {
    Attributes attributes;
    uint64_t offset = 0;
  };
  base::Task<PosixResult<Written>> write(Ino ino, std::optional<uint64_t> offset,
                                         std::span<const std::byte> bytes, bool atomic = false);
  base::Task<PosixResult<Attributes>> allocate(Ino ino, AllocateMode mode, uint64_t offset,
                                               uint64_t bytes);
  // The data of `ino` was written one-sided, or it was read: a file, a directory, a symlink. A
  // read changes atime only where atime is not later than mtime and ctime, or a day old.
  base::Task<PosixStatus> touch(Ino ino, Touch touch);

  base::Task<PosixResult<std::vector<std::byte>>> get_xattr(const Caller& caller, Ino ino,
                                                            std::string_view name);
  base::Task<PosixStatus> set_xattr(const Caller& caller, Ino ino, std::string_view name,
                                    std::span<const std::byte> value, XattrMode mode);
  base::Task<PosixStatus> remove_xattr(const Caller& caller, Ino ino, std::string_view name);
  base::Task<PosixResult<std::vector<std::string>>> list_xattrs(const Caller& caller, Ino ino);

  base::Task<PosixResult<FileSystemUsage>> usage();
  // Moves what files have at this data server, which takes no new data, to the others; gives how
  // many extents it has found there. Old places wait in quarantine. ENOSPC; EIO.
  base::Task<PosixResult<uint64_t>> move_off(uint16_t server);
  // All that is free at this data server goes into quarantine, durably: none of it was given out,
  // and it may not be zero. It is taken before the first suspension, and goes there also when the
  // caller is destroyed. On an error it is kept out of use until the next open(). Full; errors of
  // the store.
  base::Task<Status> quarantine_free_of(uint16_t server);
  uint64_t now_ns() const;  // of its clock

  // Files whose map has changed in a way that a cached map must not outlive: truncated, punched,
  // deleted. Called before the change is acknowledged. fs/files_service.h tells the clients.
  std::function<void(Ino)> on_map_change;

 private:
  struct State;
  explicit Namespace(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// What `pmstore fs check` finds. A file system that is in use may be checked: then what changes
// meanwhile is looked at again, and what a change under way leaves for a moment is no damage.
struct NamespaceFindings {
  uint64_t inodes = 0;
  uint64_t directories = 0;
  uint64_t extents = 0;
  std::vector<std::string> damage;    // one line each, at most kMaxLines; `found` counts all
  std::vector<std::string> repaired;  // likewise; says what was lost; `repairs` counts all
  uint64_t repairs = 0;
  uint64_t found = 0;
  uint64_t not_judged = 0;  // may be damage: the inode has changed whenever it was looked at
  static constexpr size_t kMaxLines = 1000;
};
// Every extent belongs to exactly one file or to quarantine; link counts; every inode is reachable
// or an orphan; directory entries and their numbers agree; sizes. `sections` of the area of the
// pool's own data server, by offset; none: not known. Of the others their records say it. With
// `repair`, mends what can be mended, and `damage` has what is left: unreachable inodes go to
// /lost+found. Requires for a repair that no Namespace is open.
base::Task<Result<NamespaceFindings>> check_namespace(Client& client,
                                                      std::vector<AreaRange> sections, bool repair);

}  // namespace pmstore::fs
