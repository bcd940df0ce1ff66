// Locks of files that tests ask for.
#pragma once

#include <cstdint>

#include "fs/types.h"

namespace pmstore::fs::locks {

inline FileLock range(LockType type, uint64_t start, uint64_t end, uint64_t owner = 1) {
  FileLock lock;
  lock.type = type;
  lock.start = start;
  lock.end = end;
  lock.owner = owner;
  lock.pid = static_cast<uint32_t>(owner);
  return lock;
}
inline FileLock flock_of(LockType type) {
  FileLock lock;
  lock.kind = LockKind::kFlock;
  lock.type = type;
  return lock;
}

inline constexpr LockType kRead = LockType::kRead;
inline constexpr LockType kWrite = LockType::kWrite;
inline constexpr LockType kUnlock = LockType::kUnlock;

}  // namespace pmstore::fs::locks
