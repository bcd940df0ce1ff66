// FileLocks: advisory locks of files, of all clients: ranges of fcntl() and flock().
//
// In memory only: after a restart clients say what they held. A client uses the same class for what
// it holds. Invariants: locks of one holder of one file do not overlap; of two holders of the same
// kind only read locks do. Bounded: kMaxLocks for each client. Threads: the executor's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/executor.h"
#include "base/task.h"
#include "fs/namespace.h"
#include "fs/types.h"

namespace pmstore::fs::internal {

class FileLocks {
 public:
  static constexpr size_t kMaxLocks = 1u << 16;

  explicit FileLocks(base::Executor& executor) : executor_(executor), changed_(executor) {}

  // A lock of another holder that is in the way; nothing: `lock` is free.
  std::optional<FileLock> in_the_way(OpenOwner client, Ino ino, const FileLock& lock) const;
  // Takes what is free, or unlocks. False: the client has too many.
  bool set(OpenOwner client, Ino ino, const FileLock& lock);

  enum class Outcome : uint8_t { kDone, kBusy, kDeadlock, kTooMany };
  // set(), after a wait for so long; kBusy: it is not free then.
  base::Task<Outcome> lock(OpenOwner client, Ino ino, FileLock lock, uint64_t wait_ns);

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

 private:
  struct Holder {
    OpenOwner client{};
    LockKind kind{};
    uint64_t owner = 0;
    auto operator<=>(const Holder&) const = default;
  };
  using OfFile = std::multimap<Holder, FileLock>;
  // A lock that is waited for.
  struct Wanted {
    Holder holder;
    Ino ino{};
    FileLock lock;
  };
  class Waiting;

  static Holder holder_of(OpenOwner client, const FileLock& lock) {
    return {client, lock.kind, lock.owner};
  }
  static bool conflict(const Holder& one, const FileLock& lock, const Holder& other,
                       const FileLock& held);
  void add(OfFile& of, const Holder& holder, const FileLock& lock);
  void erase_range(OfFile& of, const Holder& holder, uint64_t start, uint64_t end);
  std::vector<Holder> holders_in_the_way(const Wanted& wanted) const;
  // Would `wanted` wait for one that waits for its own holder?
  bool deadlocks(const Wanted& wanted) const;
  base::Task<void> tick();

  base::Executor& executor_;
  std::map<Ino, OfFile> files_;
  std::map<OpenOwner, size_t> of_client_;
  size_t size_ = 0;
  std::set<const Wanted*> waiting_;
  base::WaitList changed_;
  bool ticking_ = false;
  base::Task<void> ticks_;
};

}  // namespace pmstore::fs::internal
