// LogStore: the logs of one pool: their directory, their rings, what is durable of them. The
// server's half of the log service without any network; log/log_service.h serves it.
//
// Invariants: start_lsn <= tail_lsn of every log; everything below the published tail is durable,
// and of a replicated log acknowledged, so that every replica has it: what lies behind is kept, and
// given to nobody but the next exclusive producer;
// a word's id is 0 whenever the region is not certainly that log's. One writer of a ring at a time:
// this store (shared appends), or the exclusive producer that exclusive() was given to.
//
// Logs take extents of the pool when they need them, and give back what has no log any more. The
// first one of a pool, the area, stays: it has the names and numbers of all logs.
//
// Threads: one executor's. Lifetimes: the pool outlives it. What is durable: create, seal, erase,
// trim, acquire and release return durable results; append() only after commit_appends(). Errors of
// all calls about a log: NotFound; Damaged when nothing of it is left (is_lost()); Io once the
// memory could not be drained: nothing more is durable until the pool is opened again.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "log/log_layout.h"
#include "log/log_protocol.h"
#include "log/log_types.h"
#include "log/ring.h"
#include "persist/pool.h"

namespace pmstore::log {

class LogStore {
 public:
  // Gives a new pool a log area of `bytes`; durable on return. InvalidArgument when it is too small
  // for one log; Full. `identity`: of the area; 0 for a random one. Tests give one.
  static Status format(persist::Pool& pool, uint64_t bytes, uint64_t identity = 0);
  // Has this pool a log area?
  static bool is_in(const persist::Pool& pool);
  // Reads the directory and walks every log, as recovery after a crash; gives extents back that a
  // crash has left without a log. BadPool when the directory is damaged. A damaged log, or one
  // whose incarnations are used up, does not fail this: see LogInfo::damaged. In a pool without a
  // log area, the first create() makes one of this identity; NotFound when the identity is 0.
  static Result<std::unique_ptr<LogStore>> open(persist::Pool& pool, uint64_t new_identity = 0);
  ~LogStore();
  // So many bytes of what the pool has free stay free: create() is Full before. For what else takes
  // extents of the pool.
  void keep_free(std::function<uint64_t()> kept);
  // The extents of logs take no more of the pool than `bytes` together: create() is Full before.
  // What they have stays.
  void limit_to(uint64_t bytes);

  // AlreadyExists; Full (says how much is free): the pool has no room for the log, or no entry for
  // another extent; InvalidArgument (name, size). The identity is the one in `options`, also when
  // that is 0.
  Result<LogInfo> create(std::string_view name, const LogOptions& options,
                         const ReplicaPlace& replica = {});
  // A part of what create() with these arguments has to do, ahead of it: zeroes at most
  // `most_bytes`, whole XPLines, of the space that the log would get. So a server makes a
  // large log in many turns. True: more of that space is left. False: create() zeroes nothing, or
  // is refused. There is no log before create(); the log area may be made, where there is none.
  // Errors of create().
  Result<bool> prepare(std::string_view name, const LogOptions& options,
                       const ReplicaPlace& replica, uint64_t most_bytes);
  // What prepare() has made, and no create() has used, goes: the log area. Io.
  Status end_preparing();
  // NotFound.
  Result<LogInfo> find(std::string_view name) const;
  Result<LogInfo> info(uint64_t id) const;
  std::vector<LogInfo> list() const;
  // The extent goes back to the pool with its last log.
  Status erase(uint64_t id);
  // Idempotent. Requires that no producer is exclusive (Busy).
  Status seal(uint64_t id);
  // Moves the start, at most to the published tail. InvalidArgument when no entry starts there;
  // what is below the start already is no error.
  Result<uint64_t> trim(uint64_t id, uint64_t through_lsn);
  Result<uint64_t> trim_below_index(uint64_t id, uint64_t index);
  // Makes `bytes` free behind the published tail, by the log's policy; gives the start.
  // BackPressure; TooLarge when the log has not so many.
  Result<uint64_t> make_room(uint64_t id, uint64_t bytes);

  // Appends all of them, or none when it fails; not durable, and not in the published tail, before
  // commit_appends(). A crash before that may leave any prefix of what was appended. Makes room by
  // the log's policy. Busy while a producer is exclusive; Sealed; BackPressure; TooLarge; Full (its
  // incarnations or LSNs are used up); InvalidArgument (an empty entry, no entry); Unsupported (a
  // replicated log: its entries come from an exclusive producer that has all replicas).
  struct Range {
    Appended first;
    Appended last;
  };
  Result<Range> append(uint64_t id, std::span<const std::span<const std::byte>> payloads);
  // append() of one entry and commit_appends(), where nothing is in its way. Nothing: it is not
  // acknowledged, and append() says why, or does it.
  std::optional<Appended> append_durable(uint64_t id, std::span<const std::byte> payload);
  // One drain for all appends since the last; then publishes their tails. Io: none of them is
  // acknowledged, and nothing can be appended to this pool any more.
  // The token proves that all appends before this call are durable.
  Result<persist::Persisted> commit_appends();

  // What an exclusive producer must know.
  struct Grant {
    RingPosition position;
    uint64_t next_index = 1;
    uint64_t data_offset = 0;  // in the pool's memory
    uint64_t* tail_word = nullptr;
    persist::PaddingRules padding;  // that its entries follow
  };
  // Walks what the one before has left, makes it durable, begins a new incarnation. Requires that
  // nothing of the one before can land any more. Sealed; Conflict when `membership` is not the
  // log's; Full when its incarnations are used up.
  Result<Grant> acquire(uint64_t id, uint64_t membership);
  // The same without a new producer: what it left is walked, and shared appends work again.
  Status release(uint64_t id);
  // What acquire() would refuse with, or nothing.
  Status may_acquire(uint64_t id, uint64_t membership) const;

  // Records a decision about the replicas of a log. Conflict when its membership is not
  // `expected`; InvalidArgument when `replica.membership` is not above.
  Status set_membership(uint64_t id, uint64_t expected, const ReplicaPlace& replica);
  // Notes, durably, that every replica has recorded `membership`. Conflict when it is another here.
  Status agree(uint64_t id, uint64_t membership);

  // Ends what is in progress: producers count as gone, and each log begins a new incarnation where
  // entries came since the last, so that the next open() can tell damage to any of them. Durable on
  // return. Requires that nothing of a producer can land any more.
  Status close();

  // Identity of the area; raised by each open().
  uint64_t area_identity() const;
  uint64_t epoch() const;
  // Places of the directory that are damaged, both copies: their logs are lost, names too.
  size_t damaged_places() const;
  // Where a log is: of its ring in one of extents(), and its place among the words.
  struct Where {
    LogExtent extent;
    uint64_t region_offset = 0;
    uint64_t region_bytes = 0;
    uint32_t word = 0;
    uint32_t salt = 0;
  };
  Result<Where> where(uint64_t id) const;

  // For registering: the extents of logs, the area (name 0) first, their memory, and the words.
  // While the area is made for a first log that create() has not made yet, there is none.
  std::vector<LogExtent> extents() const;
  std::span<std::byte> memory_of(const LogExtent& extent) const;
  // Is told an extent's name before the extent is given back; no device may have a right to it when
  // that returns.
  void before_giving_back(std::function<void(uint64_t extent)> withdraw);
  // Of the area; empty when there is none.
  std::span<std::byte> area() const;
  std::span<std::byte> words() const;
  persist::Memory& memory() const;

 private:
  struct State;
  explicit LogStore(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pmstore::log
