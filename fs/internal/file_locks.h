// FileLocks: advisory locks of files, of all clients: ranges of fcntl() and flock().
//
// In memory only: after a restart clients say what they held. A client uses the same class for what
// it holds. Invariants: locks of one holder of one file do not overlap; of two holders of the same
// kind only read locks do. Bounded: kMaxLocks for each client. Costs: the logarithm of the number
// of locks for each lock that is asked for, set or removed, and for each that drop() or held_by()
// gives; a lock that is given up wakes the waits of its file only. Threads: the executor's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/executor.h"
#include "base/task.h"
#include "fs/internal/lock_ranges.h"
#include "fs/namespace.h"
#include "fs/types.h"

namespace pmstore::fs::internal {

class FileLocks {
 public:
  static constexpr size_t kMaxLocks = 1u << 16;

  explicit FileLocks(base::Executor& executor) : executor_(executor) {}

  // A lock of another holder that is in the way; nothing: `lock` is free.
  std::optional<FileLock> in_the_way(OpenOwner client, Ino ino, const FileLock& lock) const;
  // Takes what is free, or unlocks. False: the client has too many.
  bool set(OpenOwner client, Ino ino, const FileLock& lock);

  enum class Outcome : uint8_t { kDone, kBusy, kDeadlock, kTooMany };
  // set() of what is free; kBusy: it is not.
  Outcome lock(OpenOwner client, Ino ino, const FileLock& lock);
  // kDone: it is free, and the caller may ask for it; kBusy: not within so long; kDeadlock: its
  // holder waits for the caller's. Takes nothing.
  base::Task<Outcome> wait(OpenOwner client, Ino ino, FileLock lock, uint64_t wait_ns);
  // The waits of this client end as kBusy.
  void end_waits(OpenOwner client);

  // All of the client's locks are gone.
  void drop(OpenOwner client);
  // Does this owner hold anything of the file?
  bool holds(OpenOwner client, Ino ino, LockKind kind, uint64_t owner) const;
  // All that the client holds.
  struct Held {
    Ino ino{};
    FileLock lock;
  };
  std::vector<Held> held_by(OpenOwner client) const;
  size_t size() const { return size_; }
  // Locks and nodes of trees that were looked at so far.
  uint64_t steps() const { return steps_; }

 private:
  using Holder = LockHolder;
  using Own = std::map<uint64_t, FileLock>;  // of one holder, by start
  struct OfKind {
    OfKind(uint64_t& steps, uint64_t seed) : reads(steps, seed), writes(steps, seed) {}
    LockRanges reads;
    LockRanges writes;
  };
  struct OfFile {
    OfFile(uint64_t& steps, uint64_t seed) : ranges(steps, seed), flocks(steps, seed) {}
    const OfKind& of(LockKind kind) const { return kind == LockKind::kRange ? ranges : flocks; }
    LockRanges& of(LockKind kind, LockType type) {
      OfKind& both = kind == LockKind::kRange ? ranges : flocks;
      return type == LockType::kWrite ? both.writes : both.reads;
    }
    std::map<Holder, Own> holders;  // that hold something
    OfKind ranges;
    OfKind flocks;
  };
  struct OfClient {
    size_t locks = 0;
    std::set<std::pair<Ino, Holder>> holders;  // that hold something
  };
  // A lock that is waited for.
  struct Wanted {
    Holder holder;
    Ino ino{};
    FileLock lock;
  };
  // One wait.
  class Waiting;

  static Holder holder_of(OpenOwner client, const FileLock& lock) {
    return {client, lock.kind, lock.owner};
  }
  void add(OfFile& of, const Holder& holder, const FileLock& lock);
  // Gives the next one of the holder.
  Own::iterator remove(OfFile& of, const Holder& holder, Own& own, Own::iterator at);
  void erase_range(OfFile& of, const Holder& holder, uint64_t start, uint64_t end);
  FileLock join_neighbours(OfFile& of, const Holder& holder, FileLock lock);
  // The holder has nothing of the file any more, if that is so.
  void forget_if_empty(Ino ino, OfFile& of, const Holder& holder);
  void wake(Ino ino);
  std::set<Holder> holders_in_the_way(const Wanted& wanted) const;
  // Would `wanted` wait for one that waits for its own holder?
  bool deadlocks(const Wanted& wanted) const;
  base::Task<void> tick();

  base::Executor& executor_;
  mutable uint64_t steps_ = 0;
  std::map<Ino, OfFile> files_;
  std::map<OpenOwner, OfClient> clients_;
  size_t size_ = 0;
  std::multimap<Ino, Waiting*> waiting_;
  std::multimap<Holder, Waiting*> waits_of_;
  bool ticking_ = false;
  base::Task<void> ticks_;
};

}  // namespace pmstore::fs::internal
