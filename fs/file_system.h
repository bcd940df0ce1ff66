// FileSystem: a client of a file system: names, attributes and locks by RPC to its namespace
// server, data one-sided from and into the caller's memory where the fabric can.
//
//   auto files = executor.run(FileSystem::connect(executor, *fabric::parse_uri("tcp://db:7000"),
//   {})); auto file = co_await (*files)->open("/orders/today", O_RDWR | O_CREAT, 0644); co_await
//   (*file)->pwrite(bytes, 0);   // durable on return
//
// Durable on return: every call that changes something, data included (DataSync::kAlways). With
// kFsync, data that is written below the size of a file is visible on return, and durable after
// fsync() or close(), or before the server hears of its time; all else is durable on return.
// Threads: one executor's; many coroutines may use it at the same time. Lifetimes: the executor
// outlives it; it outlives its files. Buffers and views are borrowed until the task ends; when the
// coroutine is destroyed earlier, data buffers until the FileSystem is gone, unless the call was
// waiting for the namespace server.
// Errors: errnos as POSIX names them; EIO when a server stays away for reconnect_timeout_ns.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/capabilities.h"
#include "fabric/uri.h"
#include "fs/namespace.h"
#include "fs/posix_error.h"
#include "fs/types.h"
#include "persist/domain.h"
#include "persist/strategy.h"
#include "service/identity.h"

namespace pmstore::fs {

struct FileSystemOptions {
  ClientSecret secret;  // empty: random
  Caller caller;        // for whom path operations are done
  uint64_t call_timeout_ns = 5'000'000'000;
  uint64_t connect_timeout_ns = 5'000'000'000;
  uint64_t reconnect_timeout_ns = 0;
  persist::WriteStrategy write_strategy = persist::WriteStrategy::kAuto;
  // false: all data goes through the namespace server.
  bool one_sided_data = true;
  size_t cached_maps = 4096;  // files
  // Of files that are opened without O_SYNC and O_DSYNC.
  DataSync sync = DataSync::kAlways;
  // Each write of at most kMaxMessageData happens as a whole or not at all, also after a power cut
  // and for those who read beside it (docs/files.md). A larger one is EINVAL.
  bool atomic_writes = false;
  // Reads change st_atime where it is not later than the other times, or a day old. The server
  // hears of it within a second, or when it is asked for the attributes.
  bool atime = false;
  fabric::DeviceOpener* devices = nullptr;
  // For local:PATH, when no server of this process has the pool.
  std::optional<persist::Domain> assume_domain;
};

// Keeps data of delegated files, of which nobody else has a writer: a kernel, say.
class FileCache {
 public:
  virtual ~FileCache() = default;
  // Another client will change the file, or read what is only here. Returns when nothing of it is
  // cached that was cached before. May be called for files that are not cached.
  virtual base::Task<void> forget(Ino ino) = 0;
};

class File;

// How one write is done; what is empty is as the file was opened.
struct WriteOptions {
  std::optional<DataSync> sync = {};
  std::optional<bool> atomic = {};
};

class FileSystem {
 public:
  // Errors of Client::connect(); Unsupported: the pool has no file area (pool create
  // --file-bytes). With local:PATH, where no server of this process listens, the pool is opened
  // and served here.
  static base::Task<Result<std::unique_ptr<FileSystem>>> connect(base::Executor& executor,
                                                                 fabric::Uri uri,
                                                                 FileSystemOptions options);
  base::Task<void> close();
  ~FileSystem();

  // ---- by inode: what a mount needs; calls and errors as those of Namespace ----
  base::Task<PosixResult<Attributes>> lookup(const Caller& caller, Ino parent,
                                             std::string_view name);
  base::Task<PosixResult<Namespace::Walked>> walk(const Caller& caller, Ino start,
                                                  std::string_view path);
  // Two of them by one message.
  base::Task<PosixResult<std::pair<Namespace::Walked, Namespace::Walked>>> walk_two(
      const Caller& caller, Ino start, std::string_view path, std::string_view other);
  base::Task<PosixResult<Attributes>> get_attributes(Ino ino);
  base::Task<PosixResult<Attributes>> set_attributes(const Caller& caller, Ino ino,
                                                     const AttributeChange& change);
  base::Task<PosixStatus> access(const Caller& caller, Ino ino, int mask);
  base::Task<PosixResult<Attributes>> make(const Caller& caller, Ino parent, std::string_view name,
                                           const NewFile& file);
  // make() and open_file() in one.
  base::Task<PosixResult<std::unique_ptr<File>>> create(const Caller& caller, Ino parent,
                                                        std::string_view name, const NewFile& file,
                                                        int flags);
  base::Task<PosixResult<Attributes>> link(const Caller& caller, Ino ino, Ino parent,
                                           std::string_view name);
  base::Task<PosixStatus> unlink(const Caller& caller, Ino parent, std::string_view name);
  base::Task<PosixStatus> remove_directory(const Caller& caller, Ino parent, std::string_view name);
  base::Task<PosixStatus> rename(const Caller& caller, Ino from, std::string_view name, Ino to,
                                 std::string_view new_name, RenameMode mode);
  base::Task<PosixResult<std::string>> read_link(Ino ino);
  base::Task<PosixResult<std::vector<Namespace::Listed>>> read_directory(
      const Caller& caller, Ino directory, uint64_t cookie, uint32_t most, bool with_attributes);
  base::Task<PosixResult<Ino>> parent_of(Ino directory);
  base::Task<PosixResult<std::unique_ptr<File>>> open_file(const Caller& caller, Ino ino,
                                                           int flags);
  base::Task<PosixResult<std::vector<std::byte>>> get_xattr(const Caller& caller, Ino ino,
                                                            std::string_view name);
  base::Task<PosixStatus> set_xattr(const Caller& caller, Ino ino, std::string_view name,
                                    std::span<const std::byte> value, XattrMode mode);
  base::Task<PosixStatus> remove_xattr(const Caller& caller, Ino ino, std::string_view name);
  base::Task<PosixResult<std::vector<std::string>>> list_xattrs(const Caller& caller, Ino ino);
  base::Task<PosixResult<FileSystemUsage>> usage();

  // ---- the servers that have the data (fs/data_servers.h) ----
  base::Task<PosixResult<std::vector<DataServerInfo>>> data_servers();
  // Gives its index. The namespace server reaches it by this URI, and so do all clients.
  base::Task<PosixResult<uint16_t>> add_data_server(std::string uri);
  // Returns when it is recorded that the server gets no new data; what it has is moved meanwhile,
  // and then it is gone. `undo`: it is used again, unless it is gone.
  base::Task<PosixStatus> drain_data_server(uint16_t index, bool undo = false);

  // ---- by path: absolute, at most kMaxPathBytes; symlinks are followed as open(2) and its kin do,
  // at most 40 (ELOOP) ----
  base::Task<PosixResult<Attributes>> stat(std::string_view path, bool follow = true);
  base::Task<PosixResult<std::unique_ptr<File>>> open(std::string_view path, int flags,
                                                      uint16_t mode = 0644);
  base::Task<PosixStatus> make_directory(std::string_view path, uint16_t mode = 0755);
  base::Task<PosixStatus> remove(std::string_view path);  // unlink or rmdir
  base::Task<PosixStatus> rename(std::string_view from, std::string_view to,
                                 RenameMode mode = RenameMode::kReplace);
  base::Task<PosixStatus> make_symlink(std::string_view target, std::string_view path);
  base::Task<PosixStatus> make_link(std::string_view existing, std::string_view path);
  // One page, as read_directory().
  base::Task<PosixResult<std::vector<Namespace::Listed>>> list(std::string_view path,
                                                               uint64_t cookie = 0);

  // Files that are opened from here on are delegated to this client when no other client has one of
  // them open in a way that conflicts: readers and one writer do. nullptr: none any more. The
  // cache outlives the FileSystem, or what was set before ends.
  void set_cache(FileCache* cache);
  // What is cached of the file is valid now, and its attributes are these, but for times and links.
  // Ask before each use of the cache. nullptr: the file is not delegated (any more), or the server
  // was not heard of for a lease, or will not have been in `for_ns`. A cache that forget() reaches
  // at once may be used for so long without asking.
  const Attributes* delegated(Ino ino, uint64_t for_ns = 0) const;

  // Registers memory of the caller with this client's sessions with data servers, now and later:
  // one-sided reads and writes are from and into it, without a copy between. Worth it for memory
  // that is used again: what registers it pins it. It stays until forget_buffer(), or the end of
  // the FileSystem. EINVAL: empty, or it touches memory that is registered; EIO: the device refuses
  // it, and nothing is registered. With a data server that is first met later, and for which the
  // device refuses it, accesses copy.
  base::Task<PosixStatus> register_buffer(std::span<std::byte> memory);
  // No access reaches the memory any more on return; accesses under way are waited for. EINVAL: it
  // was not registered so.
  base::Task<PosixStatus> forget_buffer(std::span<std::byte> memory);

  uint64_t identity() const;
  // The sum over all connections that this client has made.
  fabric::Counters counters() const;
  base::Executor& executor();

 private:
  friend class File;
  struct State;
  explicit FileSystem(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

// An open file. Destroying it closes it without the flush of close().
class File {
 public:
  static constexpr size_t kMaxBuffers = 1024;  // of one access
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  Ino ino() const;
  const Attributes& attributes() const;  // as they were last heard of
  bool was_delegated() const;            // when it was opened
  // What this client had cached of the file under an earlier delegation was right when it was
  // opened: it is not to be forgotten then.
  bool keeps_cache() const;
  // Short at the end of the file. A read of a range that is mapped and cached is one round trip, no
  // message, where `into` is in memory of register_buffer() or small.
  base::Task<PosixResult<uint64_t>> pread(std::span<std::byte> into, uint64_t offset);
  // The same into several buffers, one after the other; EINVAL: more than kMaxBuffers. Those that
  // lie side by side in one extent are read by one doorbell, up to 8 of them.
  base::Task<PosixResult<uint64_t>> preadv(std::vector<std::span<std::byte>> into, uint64_t offset);
  // All of it. Each part of at most kMaxMessageData that extends the file, or is appended, is
  // atomic towards other appenders; other writes are as docs/files.md says for the fabric.
  base::Task<PosixResult<uint64_t>> pwrite(std::span<const std::byte> bytes, uint64_t offset,
                                           WriteOptions options = {});
  // The same from several buffers, one after the other, as if they were one: also atomic, where it
  // is asked for. EINVAL: more than kMaxBuffers.
  base::Task<PosixResult<uint64_t>> pwritev(std::vector<std::span<const std::byte>> from,
                                            uint64_t offset, WriteOptions options = {});
  // As pwrite(), at the end of the file, and gives where the bytes begin. Parts of them follow each
  // other, unless another appender comes between.
  base::Task<PosixResult<uint64_t>> append(std::span<const std::byte> bytes,
                                           WriteOptions options = {});
  // Durable on return: what this client has written to the file by any descriptor. EIO, once for
  // each descriptor: a data server was started again meanwhile, and may have lost a part of it.
  base::Task<PosixStatus> fsync();
  // It was read, by pread() or otherwise; pread() says so itself. True: that changes the time of
  // access, of which the server hears later, or when it is asked for the attributes.
  bool mark_read();
  base::Task<PosixResult<Attributes>> truncate(uint64_t size);
  base::Task<PosixResult<Attributes>> allocate(AllocateMode mode, uint64_t offset, uint64_t bytes);
  // For those who place computation: where the data lies.
  base::Task<PosixResult<FileMap>> map(uint64_t offset, uint64_t bytes);
  // As fsync(), and then the file is closed, whatever that gives. The server hears of that in the
  // background, before later calls of this FileSystem; calls of other clients may find the file
  // open for a moment longer. A server that is away takes the file for closed when it hears of this
  // client again.
  base::Task<PosixStatus> close();

  // Advisory locks, as fcntl(F_SETLK) and flock() have them; of flock() the owner is this File, and
  // the range the whole file. An owner's new lock takes the place of its own ones in the range;
  // kUnlock gives the range up. Without `wait`, EAGAIN when another owner's lock is in the way.
  // EDEADLK: the owners would wait for each other, all of them by ranges. ENOLCK: too many. When
  // the task is destroyed, the range is unlocked later. Locks go when their client is gone for a
  // lease; close() gives up flock() ones, and none of ranges.
  base::Task<PosixStatus> lock(FileLock lock, bool wait);
  // A lock that is in the way of `lock`; nothing: none is.
  base::Task<PosixResult<std::optional<FileLock>>> find_lock(FileLock lock);

 private:
  friend class FileSystem;
  struct State;
  explicit File(std::unique_ptr<State> state);
  void give_up_flock();
  void close_there();
  std::unique_ptr<State> state_;
};

}  // namespace pmstore::fs
