#include "fs/internal/inode_locks.h"

namespace pmstore::fs::internal {

InodeLocks::Awaiter::~Awaiter() {
  if (!frame_) return;
  if (granted_) {
    locks_.executor_.forget(frame_);
    locks_.unlock(ino_, mode_);
  } else {
    locks_.entries_.at(ino_).waiting.remove(this);
    locks_.settle(ino_);
  }
}

void InodeLocks::Awaiter::await_suspend(std::coroutine_handle<> frame) {
  frame_ = frame;
  locks_.entries_.at(ino_).waiting.push_back(this);
}

InodeLocks::Guard InodeLocks::Awaiter::await_resume() {
  PMSTORE_CHECK(granted_, "who waits for a lock goes on when it has it");
  frame_ = nullptr;
  return {&locks_, ino_, mode_};
}

void InodeLocks::take(Entry& entry, Mode mode) {
  PMSTORE_CHECK(fits(entry, mode), "a lock is given to one, or to many who share it");
  if (mode == Mode::kShared) {
    ++entry.sharing;
  } else {
    entry.is_exclusive = true;
  }
}

bool InodeLocks::try_lock(Ino ino, Mode mode) {
  Entry& entry = entries_[ino];
  // Who comes later does not pass those who wait.
  if (!entry.waiting.empty() || !fits(entry, mode)) return false;
  take(entry, mode);
  return true;
}

void InodeLocks::unlock(Ino ino, Mode mode) {
  Entry& entry = entries_.at(ino);
  if (mode == Mode::kShared) {
    PMSTORE_CHECK(entry.sharing > 0, "a shared lock that is given up was held");
    --entry.sharing;
  } else {
    PMSTORE_CHECK(entry.is_exclusive, "a lock that is given up was held");
    entry.is_exclusive = false;
  }
  settle(ino);
}

void InodeLocks::settle(Ino ino) {
  Entry& entry = entries_.at(ino);
  while (!entry.waiting.empty() && fits(entry, entry.waiting.front()->mode_)) {
    Awaiter& next = *entry.waiting.front();
    entry.waiting.pop_front();
    take(entry, next.mode_);
    next.granted_ = true;
    executor_.post(next.frame_);
  }
  if (entry.sharing == 0 && !entry.is_exclusive && entry.waiting.empty()) entries_.erase(ino);
}

}  // namespace pmstore::fs::internal
