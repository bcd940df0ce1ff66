// FilesCalls: executes the requests of the file service (fs/files_protocol.h) at a namespace. It
// knows nothing of sessions.
//
// Threads: the executor's. Lifetimes: the namespace outlives it, and it outlives its tasks. A
// request's bytes may change at any time, since they lie in memory of its client: names are copied,
// data is used once. Errors of a call are those of Namespace; EBADMSG: the request does not decode.
#pragma once

#include <cerrno>
#include <cstdint>
#include <span>
#include <string>

#include "base/executor.h"
#include "base/task.h"
#include "fabric/message.h"
#include "fs/data_servers.h"
#include "fs/files_protocol.h"
#include "fs/internal/delegations.h"
#include "fs/internal/file_locks.h"
#include "fs/namespace.h"
#include "fs/posix_error.h"

namespace pmstore::fs::internal {

struct FilesRequest {
  FilesMethod method{};
  Caller caller;
  OpenOwner owner{};
  const bool* forgotten = nullptr;  // the owner: nothing is begun for it any more
  const bool* ended = nullptr;      // the session: a wait takes nothing any more
  const uint64_t* calls = nullptr;  // of the session, so far
  uint64_t call = 0;                // number of this one
  bool* has_maps = nullptr;         // the owner has something that news can make stale
  uint64_t news_before = 0;         // the newest when it arrived
  std::span<const std::byte> body;  // behind the caller's groups
  size_t room = 0;                  // for what the method gives
  uint32_t mark = 0;                // RequestHead::mark
  bool repeated = false;            // RequestHead::repeated
};

class FilesCalls {
 public:
  // A wait ends when its session has made so many calls since: the room of a call that waits, in
  // its connection's rings, is not used again, nor is that of all later ones.
  static constexpr uint64_t kCallsPerWait = 256;
  struct Options {
    // A lock that is not free, or what others have in their caches, is waited for so long; then the
    // client asks again.
    uint64_t lock_patience_ns = 0;
    // Until then only locks that clients had before a restart are given, and not after it. Nor is a
    // file given to a writer that another client may have cached before.
    uint64_t lock_grace_until_ns = 0;
    DataServers* servers = nullptr;  // nullptr: the namespace's pool has all data
  };
  FilesCalls(base::Executor& executor, Namespace& names, FileLocks& locks, Delegations& delegations,
             Options options)
      : executor_(executor),
        names_(names),
        locks_(locks),
        delegations_(delegations),
        options_(options) {}

  // Does what every method but kNews, kAwaitNews and kConfirm asks for, and writes what it gives.
  // `request` and `reply` outlive the task.
  base::Task<PosixStatus> execute(const FilesRequest& request, fabric::MessageWriter& reply);

 private:
  using Reader = fabric::MessageReader;
  using Writer = fabric::MessageWriter;
  // Each takes the rest of the request apart.
  base::Task<PosixStatus> lookup(const FilesRequest& request, Writer& reply);
  base::Task<PosixStatus> walk(const FilesRequest& request, Writer& reply);
  base::Task<PosixStatus> attributes(const FilesRequest& request, Writer& reply);
  base::Task<PosixStatus> set_attributes(const FilesRequest& request, Writer& reply);
  base::Task<PosixStatus> access(const FilesRequest& request);
  base::Task<PosixStatus> make(const FilesRequest& request, Writer& reply);
  base::Task<PosixStatus> link(const FilesRequest& request, Writer& reply);
  base::Task<PosixStatus> remove(const FilesRequest& request);
  base::Task<PosixStatus> remove_at(const FilesRequest& request);
  base::Task<PosixStatus> rename(const FilesRequest& request);
  base::Task<PosixStatus> rename_at(const FilesRequest& request);
  // A name and the directory that it is in.
  struct NamePlace {
    Ino parent{};
    std::string name;
  };
  // The end of a path. kWalkFirst; errors of Namespace::walk().
  base::Task<PosixResult<NamePlace>> end_of_path(const Caller& caller, Ino start, std::string path);
  base::Task<PosixStatus> read_link(const FilesRequest& request, Writer& reply);
  base::Task<PosixStatus> read_directory(const FilesRequest& request, Writer& reply);
  base::Task<PosixStatus> parent_of(const FilesRequest& request, Writer& reply);
  base::Task<PosixStatus> open(const FilesRequest& request, Writer& reply);
  // `is_new`: this call has made the file.
  base::Task<PosixStatus> finish_open(const FilesRequest& request, Attributes opened, bool writes,
                                      bool wants, bool is_new, Writer& reply);
  base::Task<PosixStatus> await_open(const FilesRequest& request, Writer& reply);
  // Another client may cache the file. In the grace nobody knows who does, so with `after_grace`
  // its end is waited for.
  bool must_wait(OpenOwner client, Ino ino, bool after_grace) const {
    return (after_grace && in_grace()) || delegations_.is_cached_beside(client, ino);
  }
  // Waits a while for that; false: still so.
  base::Task<bool> others_let_go(const FilesRequest& request, Ino ino, bool after_grace);
  // May the caller change this of the file? Who may not, recalls it from nobody.
  base::Task<PosixStatus> check_change(const Caller& caller, Ino ino, const AttributeChange& change,
                                       bool& of_file);
  bool in_grace() const { return executor_.now_ns() < options_.lock_grace_until_ns; }
  base::Task<PosixStatus> reclaim(const FilesRequest& request, Writer& reply);
  base::Task<PosixStatus> close(const FilesRequest& request);
  base::Task<PosixStatus> map(const FilesRequest& request, Writer& reply);
  static PosixStatus put_map(const FilesRequest& request, const Namespace::Mapped& mapped,
                             uint64_t reservation, Writer& reply);
  base::Task<PosixStatus> reserve(const FilesRequest& request, Writer& reply);
  base::Task<PosixStatus> publish(const FilesRequest& request, Writer& reply);
  base::Task<PosixStatus> read(const FilesRequest& request, Writer& reply);
  base::Task<PosixStatus> write(const FilesRequest& request, Writer& reply);
  base::Task<PosixStatus> allocate(const FilesRequest& request, Writer& reply);
  base::Task<PosixStatus> touch(const FilesRequest& request);
  base::Task<PosixStatus> get_xattr(const FilesRequest& request, Writer& reply);
  base::Task<PosixStatus> set_xattr(const FilesRequest& request);
  base::Task<PosixStatus> remove_xattr(const FilesRequest& request);
  base::Task<PosixStatus> list_xattrs(const FilesRequest& request, Writer& reply);
  PosixStatus lock(const FilesRequest& request, Writer& reply);
  base::Task<PosixStatus> await_lock(const FilesRequest& request, Writer& reply);
  PosixStatus find_lock(const FilesRequest& request, Writer& reply);
  base::Task<PosixStatus> usage(const FilesRequest& request, Writer& reply);
  // ---- data servers (files_data_calls.cc) ----
  PosixStatus data_servers(const FilesRequest& request, Writer& reply);
  base::Task<PosixStatus> add_data_server(const FilesRequest& request, Writer& reply);
  base::Task<PosixStatus> drain_data_server(const FilesRequest& request);

  static PosixError malformed() { return {EBADMSG, "a malformed request"}; }

  base::Executor& executor_;
  Namespace& names_;
  FileLocks& locks_;
  Delegations& delegations_;
  const Options options_;
};

}  // namespace pmstore::fs::internal
