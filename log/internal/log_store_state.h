// The state of LogStore, shared by log_store.cc (opening, directory) and log_store_entries.cc
// (room, appends, producers).
//
// Invariants: published.lsn <= ring->position().tail_lsn; unless `failed`, a log is in `dirty`
// exactly while the two differ because of appends that wait for commit_appends(). words[place].id
// != 0 exactly when the log of that place is live and its ring whole.
#pragma once

#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "log/internal/log_directory.h"
#include "log/internal/log_ring.h"
#include "log/log_store.h"

namespace pmstore::log {
namespace internal {

// Clients read the words, and producers write them, at any time.
inline uint64_t load_word(uint64_t& word) {
  return std::atomic_ref<uint64_t>(word).load(std::memory_order_acquire);
}
inline void publish_word(uint64_t& word, uint64_t value) {
  std::atomic_ref<uint64_t>(word).store(value, std::memory_order_release);
}

struct PageDelete {
  static constexpr std::align_val_t kPageBytes{4096};
  void operator()(void* pages) const { ::operator delete(pages, kPageBytes); }
};

struct StoredLog {
  size_t place = 0;
  std::optional<LogRing> ring;  // empty: lost
  LogRing::Place published{0, 1};
  bool exclusive = false;
};

Error other_membership(uint64_t found, uint64_t expected);
Status check_replicas(const ReplicaPlace& place);
void set_replicas(LogSlot& slot, const ReplicaPlace& place);

}  // namespace internal

struct LogStore::State {
  using Log = internal::StoredLog;
  using Place = internal::LogRing::Place;
  State(persist::Pool& pool_in, internal::LogDirectory loaded);

  persist::Pool& pool;
  persist::Memory& memory;
  const persist::PaddingRules padding;  // of the pool
  internal::LogDirectory directory;
  std::deque<Log> logs;                      // by place, as many as the directory has used
  std::unordered_map<uint64_t, Log*> by_id;  // the live ones
  uint64_t recent_id = 0;                    // 0: none, else that of `recent`, which is live
  Log* recent = nullptr;
  std::unique_ptr<LogWords, internal::PageDelete> words;
  size_t words_bytes = 0;
  std::vector<Log*> dirty;
  persist::Persisted committed;  // of the last commit(): what is published is durable
  std::function<void(uint64_t extent)> withdraw;
  std::optional<Error> failed;
  // Of the space of the next log: it lies between others, and is erased as far as `room` says.
  struct Prepared {
    internal::LogDirectory::Region region;
    uint64_t bytes;
    uint32_t salt;
    RingRoom room;
  };
  std::optional<Prepared> prepared;
  // The area was made for a first log, which does not exist yet. It is not among extents().
  bool area_is_new = false;

  const LogSlot& slot(const Log& log) const { return directory.places()[log.place].slot; }
  // Replicas of one log agree on LSNs, and their pools need not agree on rules.
  persist::PaddingRules padding_of(const Log& log) const {
    return slot(log).replicas > 0 ? persist::PaddingRules{} : padding;
  }
  // The log of a place of the directory.
  Log& log_at(size_t place) {
    while (logs.size() <= place) {
      const size_t next = logs.size();
      logs.emplace_back().place = next;
    }
    return logs[place];
  }
  LogWords& word(const Log& log) { return words.get()[log.place]; }

  // nullptr: there is none. Most calls concern the same log as the call before.
  Log* live(uint64_t id) { return id == recent_id ? recent : look_up(id); }
  Log* look_up(uint64_t id);
  Result<Log*> find(uint64_t id);
  Result<Log*> usable(uint64_t id);
  // Latches the first Io error; gives the error to return.
  Error latch(const Error& error);
  Status fail_unless(Status durable);
  Result<persist::Persisted> fail_unless(Result<persist::Persisted> durable);
  Status open_log(Log& log);
  // ---- log_store_create.cc ----
  // nullptr: there is none.
  Log* named(std::string_view name);
  Status check_create(std::string_view name, const LogOptions& options, const ReplicaPlace& place);
  Status make_area();
  Status drop_new_area();
  // A free region, in an extent that is taken for it when there is none.
  Result<internal::LogDirectory::Region> make_region(uint64_t bytes);
  Result<bool> erase_ahead(const internal::LogDirectory::Region& region, uint64_t bytes,
                           uint64_t most_bytes);
  // Of `slot`, whose id and size are given. Says where it is.
  Result<RingRoom> make_room_of(LogSlot& slot);
  // Gives the extent back when it has no log.
  Status give_back_unused(uint64_t extent);
  void show(persist::Persisted ring, Log& log);
  // `entries` proves that all entries of the log's ring are durable.
  void publish_tail(persist::Persisted entries, Log& log);
  Status publish_acknowledged(persist::Persisted entries, Log& log, const Place& boundary);
  void catch_up(Log& log);
  Status settle(Log& log);
  LogInfo info(Log& log);
  Status move_start(Log& log, const Place& start);
  Status drop_oldest(Log& log, uint64_t to_lsn);
  // May anybody append to it through this store?
  bool shared_by_all(const Log& log) const;
  Error why_not_shared(const Log& log) const;
  Status fit(Log& log, std::span<const uint64_t> payload_bytes);
  void note_dirty(Log* log);
  Result<persist::Persisted> commit();
};

}  // namespace pmstore::log
