// Locks: getlk, setlk, flock; and flush, with which those of ranges end.
//
// A lock of a range belongs to a process, for the kernel a number; one of flock() to an open file.
#include <fcntl.h>
#include <sys/file.h>

#include <limits>
#include <optional>

#include "tools/mount/mount.h"

namespace pmstore::tools {
namespace {

using Opened = std::shared_ptr<OpenFile>;

fs::FileLock range_of(const struct flock& asked, uint64_t owner) {
  fs::FileLock lock{.kind = fs::LockKind::kRange, .owner = owner};
  lock.type = asked.l_type == F_RDLCK   ? fs::LockType::kRead
              : asked.l_type == F_WRLCK ? fs::LockType::kWrite
                                        : fs::LockType::kUnlock;
  lock.start = static_cast<uint64_t>(asked.l_start);
  if (asked.l_len > 0) lock.end = lock.start + static_cast<uint64_t>(asked.l_len) - 1;
  lock.pid = static_cast<uint32_t>(asked.l_pid);
  return lock;
}

// What F_GETLK says of a lock.
struct flock flock_of(const std::optional<fs::FileLock>& lock) {
  struct flock said {};
  said.l_type = F_UNLCK;
  said.l_whence = SEEK_SET;
  if (!lock) return said;
  said.l_type = lock->type == fs::LockType::kRead ? F_RDLCK : F_WRLCK;
  said.l_start = static_cast<off_t>(lock->start);
  constexpr uint64_t kLast = std::numeric_limits<off_t>::max();
  said.l_len = lock->end >= kLast ? 0 : static_cast<off_t>(lock->end - lock->start + 1);
  said.l_pid = static_cast<pid_t>(lock->pid);
  return said;
}

base::Task<void> find_lock(Request request, Opened opened, fs::FileLock lock) {
  const auto found = co_await opened->file->find_lock(lock);
  if (!found) co_return request.error(found.error());
  request.lock(flock_of(*found));
}

base::Task<void> unlock(Opened opened, fs::FileLock lock) {
  lock.type = fs::LockType::kUnlock;
  // Without an answer it goes with the client.
  [[maybe_unused]] const auto done = co_await opened->file->lock(lock, false);
}

// A lock that its program is not told of is given up.
class Untold {
 public:
  Untold(Mount& mount, Opened opened, const fs::FileLock& lock)
      : mount_(mount), opened_(std::move(opened)), lock_(lock) {}
  Untold(const Untold&) = delete;
  Untold& operator=(const Untold&) = delete;
  ~Untold() {
    if (!told_) mount_.executor().spawn(unlock(std::move(opened_), lock_));
  }
  void told() { told_ = true; }

 private:
  Mount& mount_;
  Opened opened_;
  const fs::FileLock lock_;
  bool told_ = false;
};

base::Task<void> lock(Mount& mount, Request request, Opened opened, fs::FileLock lock, bool waits) {
  const auto done = co_await opened->file->lock(lock, waits);
  const fs::Ino ino = opened->file->ino();
  if (done && lock.type != fs::LockType::kUnlock && mount.files().delegated(ino) == nullptr) {
    // Who has it sees what others have written under it, also in a map.
    Untold untold(mount, opened, lock);
    co_await mount.invalidate(ino);
    untold.told();
  }
  request.status(done);
}

void on_find_lock(fuse_req_t raw, fuse_ino_t, fuse_file_info* file, struct flock* asked) {
  Mount& mount = mount_of(raw);
  mount.start_operation(raw,
                        find_lock(Request(raw, mount.options()), mount.open_files().find(file->fh),
                                  range_of(*asked, file->lock_owner)));
}

void on_lock(fuse_req_t raw, fuse_ino_t ino, fuse_file_info* file, struct flock* asked, int waits) {
  Mount& mount = mount_of(raw);
  const fs::FileLock wanted = range_of(*asked, file->lock_owner);
  // Also if it fails: a lock that is given up may be there for a while.
  if (wanted.type != fs::LockType::kUnlock) mount.range_owners().emplace(ino, file->lock_owner);
  mount.start_waiting(raw, lock(mount, Request(raw, mount.options()),
                                mount.open_files().find(file->fh), wanted, waits != 0));
}

void on_flock(fuse_req_t raw, fuse_ino_t, fuse_file_info* file, int how) {
  fs::FileLock wanted{.kind = fs::LockKind::kFlock};
  switch (how & ~LOCK_NB) {
    case LOCK_SH: wanted.type = fs::LockType::kRead; break;
    case LOCK_EX: wanted.type = fs::LockType::kWrite; break;
    case LOCK_UN: wanted.type = fs::LockType::kUnlock; break;
    default: fuse_reply_err(raw, EINVAL); return;
  }
  Mount& mount = mount_of(raw);
  mount.start_waiting(raw, lock(mount, Request(raw, mount.options()),
                                mount.open_files().find(file->fh), wanted, (how & LOCK_NB) == 0));
}

// What close(2) says of data that is not durable yet. Locks go also when it is not.
base::Task<void> flush(Request request, Opened opened, std::optional<fs::FileLock> locks) {
  fs::PosixStatus done = co_await opened->file->fsync();
  if (locks) {
    const auto unlocked = co_await opened->file->lock(*locks, false);
    if (done && !unlocked) done = fs::PosixError(unlocked.error());
  }
  request.status(done);
}

// With sync=always what was written is durable: then close() waits for locks only.
void on_flush(fuse_req_t raw, fuse_ino_t ino, fuse_file_info* file) {
  Mount& mount = mount_of(raw);
  std::optional<fs::FileLock> locks;
  if (mount.range_owners().erase({ino, file->lock_owner}) > 0) {
    locks = fs::FileLock{.type = fs::LockType::kUnlock, .owner = file->lock_owner};
  }
  if (mount.options().sync == fs::DataSync::kFsync) {
    mount.start_operation(
        raw, flush(Request(raw, mount.options()), mount.open_files().find(file->fh), locks));
  } else if (locks) {
    mount.start_operation(raw, lock(mount, Request(raw, mount.options()),
                                    mount.open_files().find(file->fh), *locks, false));
  } else {
    fuse_reply_err(raw, 0);
  }
}

}  // namespace

void add_lock_calls(fuse_lowlevel_ops& calls) {
  calls.getlk = on_find_lock;
  calls.setlk = on_lock;
  calls.flock = on_flock;
  calls.flush = on_flush;
}

}  // namespace pmstore::tools
