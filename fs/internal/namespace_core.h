// NamespaceCore: what all parts of a namespace share: the store, its tables, locks, who has what
// open, and how a transaction is run.
//
// The order of locks: the data of at most one inode; then entries of directories, in the order of
// their numbers; then the supply of inode numbers. Whoever holds one takes none that comes before:
// the data of a large file may be locked for long, and its directory is not.
// Threads: one executor's. Lifetimes: client and space outlive it; it outlives all calls.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "base/executor.h"
#include "base/task.h"
#include "fs/data_space.h"
#include "fs/internal/inode_locks.h"
#include "fs/internal/namespace_tables.h"
#include "fs/internal/namespace_transaction.h"
#include "fs/internal/open_files.h"
#include "fs/internal/own_tasks.h"
#include "fs/internal/reclaim_queue.h"
#include "fs/internal/reservations.h"
#include "fs/internal/reserve.h"
#include "fs/internal/searched_directories.h"
#include "fs/namespace.h"
#include "fs/posix_error.h"

namespace pmstore::fs::internal {

class NamespaceCore {
 public:
  NamespaceCore(Client& client, DataSpace& space, NamespaceOptions options);

  Client& client() { return client_; }
  DataSpace& space() { return space_; }
  Executor& executor() { return client_.executor(); }
  const NamespaceOptions& options() const { return options_; }
  uint64_t now_ns() const { return options_.now_ns(); }

  // Runs `body`, a function that gives a Task<PosixResult<T>> for a NamespaceTransaction&, and
  // commits; repeats both when the transaction loses against another one. The body writes nothing
  // when it gives an error. `doubt`, if given, has a transaction that may have committed though an
  // error is given. A call that takes something away has the reserve when the pool
  // is full.
  using Doubt = std::optional<TxId>;
  enum class Purpose : uint8_t { kMakes, kTakesAway };
  template <typename T, typename Body>
  base::Task<PosixResult<T>> transact(const Body& body, Doubt* doubt = nullptr,
                                      Purpose purpose = Purpose::kMakes) {
    for (unsigned attempt = 0; attempt < kAttempts; ++attempt) {
      NamespaceTransaction transaction(client_, tables, &searched);
      PosixResult<T> result = co_await body(transaction);
      if (!transaction.conflicted()) {
        PMSTORE_CHECK(result || !transaction.writes(), "a call checks all before it writes");
        const End end = co_await commit(transaction, doubt);
        const bool is_full = end.error && end.error->code == ErrorCode::kFull;
        if (is_full && purpose == Purpose::kTakesAway && !reserve.is_spent()) {
          PMSTORE_CO_TRY_STATUS(co_await reserve.spend());
          continue;
        }
        if (end.error) co_return commit_failed(*end.error);
        if (end.is_over) co_return std::move(result);
      }
      co_await pause(attempt);
    }
    co_return lost_too_often();
  }
  template <typename T, typename Body>
  base::Task<PosixResult<T>> take_away(const Body& body, Doubt* doubt = nullptr) {
    return transact<T>(body, doubt, Purpose::kTakesAway);
  }
  // The same without a commit, for reads that need not be of one moment.
  template <typename T, typename Body>
  base::Task<PosixResult<T>> look(const Body& body) {
    for (unsigned attempt = 0; attempt < kAttempts; ++attempt) {
      NamespaceTransaction transaction(client_, tables, &searched);
      PosixResult<T> result = co_await body(transaction);
      if (!transaction.conflicted()) co_return std::move(result);
      co_await pause(attempt);
    }
    co_return lost_too_often();
  }
  // What became of a transaction in doubt. kNotKept: the store no longer knows it. kNeverKnown: it
  // has failed, answers with an error that stays, or was away for kPatienceNs: this process does
  // not ask any more.
  enum class Fate : uint8_t { kCommitted, kAborted, kNotKept, kNeverKnown };
  // Waits until nothing more can become of it, as long as an answer may come (ask_patiently.h).
  base::Task<Fate> fate_of(TxId id);
  // Whether a range is recorded as freed under this number; waits likewise. An error: the store has
  // failed or is away, or the record cannot be read.
  base::Task<Result<bool>> is_freed(uint64_t id);
  base::Task<PosixResult<Inode>> inode(Ino ino);
  base::Task<PosixResult<std::optional<Entry>>> entry(Ino parent, std::string name);
  // As inode(), of a regular file that is not being deleted. EISDIR, EINVAL: it is something else.
  base::Task<PosixResult<Inode>> file(Ino ino);

  bool store_has_failed() const;
  // EIO: it is one of `unsettled` or `damaged`.
  PosixStatus check_settled(Ino ino) const;
  // Before something new is recorded. ENOSPC: what is free is needed to remove files.
  base::Task<PosixStatus> check_reserve();
  // The same in two: what is there already, or is not allowed, is no matter of room. Restores the
  // reserve if it can;
  base::Task<PosixStatus> try_reserve();
  // ENOSPC: it could not. Within the transaction, behind its other checks.
  PosixStatus check_not_full() const;
  // A number that no inode ever had.
  base::Task<PosixResult<Ino>> take_ino();

  void map_has_changed(Ino ino) {
    if (on_map_change != nullptr && *on_map_change) (*on_map_change)(ino);
  }
  // The file `ino` has lost its last name or its last opener: it is deleted if it has neither.
  // The end of the grace period looks again at what loses them before it.
  void delete_unless_open(Ino ino) {
    if (!in_grace && !opens.is_open(ino)) queue.add({ReclaimQueue::Kind::kInode, raw(ino), {}});
  }

  NamespaceTables tables;
  SearchedDirectories searched;
  uint64_t identity = 0;
  const std::function<void(Ino)>* on_map_change = nullptr;
  InodeLocks directory_locks;
  InodeLocks data_locks;
  OpenFiles opens;
  ReclaimQueue queue;
  Reservations reservations;
  Reserve reserve;
  // Inodes that go: nobody may open them any more, and nobody has them open.
  std::set<Ino> deleting;
  // Files whose map has changed, or may have, and not everybody can be told: the store is away. If
  // it has failed, they stay so until the next start. Who takes the lock of their data does nothing
  // with it.
  std::set<Ino> unsettled;
  // Files of which a map record is wrong, or has units of another file: nothing is done with their
  // data, and nothing of it becomes free. Written at the start only.
  std::set<Ino> damaged;
  // A record that is wrong may name any unit: none is given out.
  bool space_is_unknown = false;
  bool is_new = false;  // made by this opening: no client had anything open before
  // Clients may still open again what they had open before the start, unlinked meanwhile or not.
  bool in_grace = false;
  uint64_t inodes = 0;
  uint64_t quarantined_bytes = 0;
  uint64_t next_freed_id = 1;
  uint64_t next_ino = 0;
  uint64_t ino_limit = 0;  // numbers below it are ours
  OwnTasks tasks;          // last: destroyed first

  // Until what has failed is tried again.
  static constexpr uint64_t kPauseNs = 1'000'000'000;

 private:
  static constexpr unsigned kAttempts = 1000;
  struct End {
    bool is_over = false;  // false: it has lost
    std::optional<Error> error;
  };
  base::Task<End> commit(NamespaceTransaction& transaction, Doubt* doubt);
  base::Task<void> pause(unsigned attempt);
  static PosixError commit_failed(const Error& error);
  static PosixError lost_too_often();

  Client& client_;
  DataSpace& space_;
  const NamespaceOptions options_;
};

}  // namespace pmstore::fs::internal
