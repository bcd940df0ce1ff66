// The inside of FileSystem: its session, its maps, and the files that are open.
//
// Invariants: a file in OpenFile is registered at the link from its open to its close; tasks in
// `background` belong to this state and touch nothing else. Threads: the executor's.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "fs/embedded_files.h"
#include "fs/file_system.h"
#include "fs/internal/delegated_files.h"
#include "fs/internal/file_io.h"
#include "fs/internal/files_link.h"
#include "fs/internal/kept_files.h"

namespace pmstore::fs {

// What the wire has no room for is too long for the namespace, too.
inline bool too_long(std::string_view name) { return name.size() > kMaxNameBytes; }
// A call was repeated at a server that has forgotten the first try, and what it makes is there.
PosixError work_in_doubt(const char* what);
// NewFile::mark of a call: one of 4,000,000,000, and not 0.
inline uint32_t draw_mark() {
  uint32_t mark = 0;
  while (mark == 0) mark = static_cast<uint32_t>(base::random_identity());
  return mark;
}

struct FileSystem::State final : internal::FilesLink::Host,
                                 std::enable_shared_from_this<FileSystem::State> {
  using Call = internal::FilesCall;
  using Reply = internal::FilesLink::Reply;

  State(base::Executor& client_executor, fabric::Uri server, FileSystemOptions client_options);
  ~State() override;

  base::Task<Status> connect();
  // What it gives is attributes, or nothing. Errors of FilesLink::call().
  base::Task<PosixResult<Attributes>> ask_attributes(Call request);
  base::Task<PosixStatus> ask(Call request, bool* in_doubt = nullptr);
  // kSetAttributes, once others have let go what they had cached of the file.
  base::Task<PosixResult<Attributes>> change(Call request, Ino ino);
  Call make_call(const Caller& caller, Ino parent, std::string_view name, const NewFile& file,
                 bool open) const;
  // kMake or kMakeAt, of a regular file that is opened.
  base::Task<PosixResult<std::unique_ptr<File>>> create(FilesMethod method, const Caller& caller,
                                                        Ino parent, std::string_view name,
                                                        const NewFile& file, int flags);
  // The same of whole paths, from the root, by one message each. kWalkFirst: nothing was done.
  base::Task<PosixResult<Attributes>> make_at(std::string_view path, const NewFile& file);
  base::Task<PosixStatus> remove_at(std::string_view path);
  base::Task<PosixStatus> rename_at(std::string_view from, std::string_view to, RenameMode mode);
  // A request that opens a file. When its caller is destroyed meanwhile, the file is closed again.
  struct Opened {
    Attributes attributes;
    bool delegated = false;
    bool keeps_cache = false;
    std::shared_ptr<internal::KeptFiles::Opened> delegation = {};  // empty: nothing is kept
    uint64_t now_ns = 0;                                           // the time at the server
    uint64_t ticket = 0;                                           // of the server that has it open
  };
  base::Task<PosixResult<Opened>> ask_open(Call request, int flags);
  // Of a file that the server has just opened for this client.
  std::unique_ptr<File> opened_file(const Opened& opened, int flags);
  // No call waits for it.
  base::Task<void> close_later(Ino ino);
  // A background task of this state.
  void run(base::Task<void> task);
  // Until none runs; what does not end, since a server is away, is given up after a while.
  base::Task<void> finish_background();

  // As FilesLink::Host.
  void on_forgotten() override;
  void revoke(const internal::FilesLink::Heard& news) override;
  base::Task<UnlandedWrites> drop(internal::FilesLink::Heard news) override;
  bool has_delegations() const override { return delegated.any(); }
  // What the cache has of these is dropped, and their times are told.
  base::Task<void> drop_cached(std::vector<Ino> files);

  struct PendingLock;
  // One try after the other until the lock is there, or is refused; undone when its caller is gone.
  base::Task<void> finish_lock(std::shared_ptr<PendingLock> pending);
  // `again`: the server has just started, and gives the lock to who had it before first.
  base::Task<PosixStatus> lock_once(Ino ino, FileLock lock, bool* again);
  // `again`: it was not free for a while.
  base::Task<PosixStatus> await_lock(Ino ino, FileLock lock, bool* again);
  base::Task<void> unlock_later(Ino ino, FileLock lock);
  struct PendingOpen;
  class OpenWaiter;
  base::Task<void> finish_open(std::shared_ptr<PendingOpen> pending, Call request, int flags);
  base::Task<PosixResult<Opened>> open_once(Call request, int flags);
  base::Task<PosixStatus> await_open(Ino ino, bool writes);
  void note_kept(Opened& opened, const OpenReply& reply, int flags);

  base::Executor& executor;
  const fabric::Uri uri;
  const FileSystemOptions options;
  std::unique_ptr<EmbeddedFiles> embedded;  // serves a local:PATH pool
  std::unique_ptr<fabric::Device> device;
  std::unique_ptr<internal::FilesLink> link;
  std::unique_ptr<internal::FileIo> io;
  bool closed = false;
  uint64_t last_file = 0;
  FileCache* cache = nullptr;
  // All that are open, and those that are being opened or closed in the background.
  internal::DelegatedFiles delegated;
  internal::KeptFiles kept;
  std::list<base::Task<void>> background;
};

struct File::State {
  uint64_t id = 0;  // among the files that this client has opened: the owner of its flock()
  std::shared_ptr<FileSystem::State> system;
  internal::OpenedFile opened;
  Attributes attributes;
  bool delegated = false;  // from its open on
  bool keeps_cache = false;
  std::shared_ptr<internal::KeptFiles::Opened> delegation;  // as Opened has it
  // The server's time when this client's was `opened_ns`.
  uint64_t server_ns = 0;
  uint64_t opened_ns = 0;
  bool written = false;      // since it was marked as read
  uint64_t losses_told = 0;  // of FileIo::losses()
  bool closed = false;

  bool may_read() const;
  bool may_write() const;
  // EBADF: closed. EIO: a restarted server does not have it open any more.
  PosixStatus usable() const;
  void note(const Attributes& heard);
  // The open has ended for the program that caches: it reads, or closes.
  void use_cache();
  internal::FileIo::Way way_of(const WriteOptions& options) const;
  // What pread() and pwrite() do, and their kin.
  base::Task<PosixResult<uint64_t>> read(File& file, internal::ReadBuffers into, uint64_t offset);
  base::Task<PosixResult<uint64_t>> write(internal::WriteBuffers from,
                                          std::optional<uint64_t> offset, WriteOptions wanted);
  // FileIo::flush(), and EIO once for what was lost.
  base::Task<PosixStatus> flush();
};

}  // namespace pmstore::fs
