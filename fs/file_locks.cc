// File: locks. A lock is asked for in the background, so that one that comes after its caller has
// gone is given back.
#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "fs/internal/file_system_state.h"

namespace pmstore::fs {

namespace {

// While a server that was started again gives locks to clients that had them before, and after a
// wait that a server has ended as soon: it ends them when a client with many waits asks often.
constexpr uint64_t kLockPauseNs = 50'000'000;

}  // namespace

struct FileSystem::State::PendingLock {
  PendingLock(base::Executor& executor, Ino of, const FileLock& wanted, bool waits)
      : ino(of), lock(wanted), wait(waits), done(executor) {}
  const Ino ino;
  const FileLock lock;
  const bool wait;
  std::optional<PosixStatus> result;
  bool abandoned = false;
  base::WaitList done;
};

base::Task<PosixStatus> FileSystem::State::lock_once(Ino ino, FileLock lock, bool* again) {
  Call request(FilesMethod::kLock, true, sizeof(LockReply));
  request.put(request_of(ino, lock, false));
  // What is given up is not told to the next server.
  request.gives_up = lock.type == LockType::kUnlock;
  if (request.gives_up) link->locks().set(OpenOwner{}, ino, lock);
  bool forgotten = false;
  const auto answered = co_await link->call(request, &forgotten);
  if (!answered && request.gives_up && forgotten) co_return PosixStatus{};
  if (!answered) co_return PosixError(answered.error());
  fabric::MessageReader reader = answered->reader();
  const auto reply = reader.get<LockReply>();
  if (!reader.complete()) co_return link->malformed("a lock");
  *again = reply.again != 0;
  if (!*again && lock.type != LockType::kUnlock) link->locks().set(OpenOwner{}, ino, lock);
  co_return PosixStatus{};
}

base::Task<PosixStatus> FileSystem::State::await_lock(Ino ino, FileLock lock, bool* again) {
  Call request(FilesMethod::kAwaitLock, false, sizeof(LockReply));
  request.put(request_of(ino, lock, false));
  const auto answered = co_await link->call(request);
  if (!answered) co_return PosixError(answered.error());
  fabric::MessageReader reader = answered->reader();
  const auto reply = reader.get<LockReply>();
  if (!reader.complete()) co_return link->malformed("a lock");
  *again = reply.again != 0;
  if (!*again) link->locks().set(OpenOwner{}, ino, lock);
  co_return PosixStatus{};
}

base::Task<void> FileSystem::State::unlock_later(Ino ino, FileLock lock) {
  lock.type = LockType::kUnlock;
  bool again = false;
  // When the server is away, it hears of it with the next session, or forgets this client.
  [[maybe_unused]] const PosixStatus unlocked = co_await lock_once(ino, lock, &again);
}

base::Task<void> FileSystem::State::finish_lock(std::shared_ptr<PendingLock> pending) {
  PosixStatus done;
  bool again = false;
  done = co_await lock_once(pending->ino, pending->lock, &again);
  if (!done && done.number() == EAGAIN && pending->wait) again = true;
  while (again && !pending->abandoned) {
    again = false;
    if (pending->wait) {
      const uint64_t asked_ns = executor.now_ns();
      done = co_await await_lock(pending->ino, pending->lock, &again);
      const bool ended_soon = again && executor.now_ns() - asked_ns < kLockPauseNs;
      if (ended_soon && !pending->abandoned) co_await executor.sleep_for(kLockPauseNs);
    } else {
      co_await executor.sleep_for(kLockPauseNs);
      done = co_await lock_once(pending->ino, pending->lock, &again);
    }
  }
  if (!pending->abandoned) {
    pending->result = std::move(done);
    pending->done.notify_all();
  } else if (done && !again && pending->lock.type != LockType::kUnlock) {
    co_await unlock_later(pending->ino, pending->lock);
  }
}

base::Task<PosixStatus> File::lock(FileLock lock, bool wait) {
  if (PosixStatus good = state_->usable(); !good) co_return std::move(good);
  if (lock.start > lock.end) co_return PosixError(EINVAL, "a range ends behind its start");
  const bool flock = lock.kind == LockKind::kFlock;
  if (flock) lock = {LockKind::kFlock, lock.type, 0, UINT64_MAX, state_->id, lock.pid};
  if (!flock && lock.type == LockType::kRead && !state_->may_read()) co_return PosixError(EBADF);
  if (!flock && lock.type == LockType::kWrite && !state_->may_write()) co_return PosixError(EBADF);
  FileSystem::State& system = *state_->system;
  const Ino ino = state_->opened.ino;
  const bool unlock = lock.type == LockType::kUnlock;
  if (unlock && !system.link->locks().holds(OpenOwner{}, ino, lock.kind, lock.owner)) {
    co_return PosixStatus{};
  }
  using Pending = FileSystem::State::PendingLock;
  struct Waiter {
    ~Waiter() {
      if (taken) return;
      pending.abandoned = true;
      const bool got = pending.result && *pending.result;
      if (got && pending.lock.type != LockType::kUnlock) {
        system.run(system.unlock_later(pending.ino, pending.lock));
      }
    }
    FileSystem::State& system;
    Pending& pending;
    bool taken = false;
  };
  const auto pending = std::make_shared<Pending>(system.executor, ino, lock, wait && !unlock);
  Waiter waiter{system, *pending};
  system.run(system.finish_lock(pending));
  while (!pending->result) co_await pending->done.wait();
  waiter.taken = true;
  co_return std::move(*pending->result);
}

base::Task<PosixResult<std::optional<FileLock>>> File::find_lock(FileLock lock) {
  if (PosixStatus good = state_->usable(); !good) co_return PosixError(good.error());
  if (lock.start > lock.end) co_return PosixError(EINVAL, "a range ends behind its start");
  if (lock.kind == LockKind::kFlock) lock.owner = state_->id;
  internal::FilesCall request(FilesMethod::kFindLock, false, sizeof(LockReply));
  request.put(request_of(state_->opened.ino, lock, false));
  const auto answered = co_await state_->system->link->call(request);
  if (!answered) co_return PosixError(answered.error());
  fabric::MessageReader reader = answered->reader();
  const auto reply = reader.get<LockReply>();
  if (!reader.complete() || reply.type > LockType::kUnlock) {
    co_return state_->system->link->malformed("a lock");
  }
  if (reply.found == 0) co_return std::optional<FileLock>();
  co_return std::optional<FileLock>(
      FileLock{lock.kind, reply.type, reply.start, reply.end, 0, reply.pid});
}

}  // namespace pmstore::fs
