// Reader: finds the records of keys, by one-sided READs where it can and by the server's CPU where
// it must. docs/transactions.md says why each answer is valid.
//
// A key in the location cache: the record and its lock word in one doorbell. Otherwise, as the
// session's MissPath says, the bucket and then the record, or a kGet request. In doubt, or where
// the fabric does not order READs: a kGet request.
// Threads: the executor's. The executor outlives it, it outlives its tasks. Each task may be
// destroyed at any moment.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/answer.h"
#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "pmstore/client.h"
#include "pmstore/client/client_session.h"
#include "pmstore/client/located.h"
#include "pmstore/client/location_cache.h"
#include "pmstore/server/value_room.h"

namespace pmstore::internal {

class Reader {
 public:
  // `cache_entries`: of the location cache; 0: no cache.
  Reader(Executor& executor, size_t cache_entries) : executor_(executor), cache_(cache_entries) {}

  // Finds the record, and gives its value to `value`. An absent key is a success
  // with `found` false. Conflict: the record stays locked. UnknownTable; errors of the connection.
  // `key` and what `value` borrows are borrowed until the answer is there. Where the server is in
  // this process, it usually is when the call returns.
  base::Answer<Result<Located>> locate(const SessionRef& session, TableId table,
                                       std::string_view key, ValueRoom value);

  // Of a session that is not in_process().
  static Error no_view_error();

  // The server has said that the table exists. One-sided reads do not notice that a table was
  // dropped: they find no key. So the reader asks the server about an absent key unless the server
  // has named the table within Client::kTableSeenNs.
  void saw_table(TableId table) {
    seen_tables_[raw(table) % kSeenTables] = {table, executor_.now_ns()};
  }
  bool knows_table(TableId table) const {
    const SeenTable& seen = seen_tables_[raw(table) % kSeenTables];
    return seen.table == table && executor_.now_ns() - seen.seen_ns < Client::kTableSeenNs;
  }

  // A commit has put the record there, or has erased it.
  void remember(KeyHash hash, ShardId shard, uint8_t size_class, SlotOffset slot) {
    cache_.put(hash, shard, size_class, slot);
  }
  void forget(KeyHash hash) { cache_.remove(hash); }

 private:
  // A bucket as READ, and what it has for a key.
  struct BucketSeen {
    bool stable = false;     // seen whole, and the key's
    bool reachable = false;  // else its region is not known, or there is no end of hops
    uint64_t number = 0;
    uint64_t version = 0;
    uint64_t overflow = 0;
    size_t count = 0;
    std::array<BucketEntry, kBucketEntries> candidates;
  };

  // The server is in this process: nothing is read one-sided, nothing need be remembered, and a
  // value of any size comes with the first answer.
  base::Answer<Result<Located>> locate_in_process(const SessionRef& session, TableId table,
                                                  std::string_view key, ValueRoom value);
  base::Task<Result<Located>> end_in_process(SessionRef session, TableId table,
                                             std::string_view key, ValueRoom value,
                                             base::Answer<Result<GetReply>> first);
  base::Task<Result<Located>> locate_one_sided(SessionRef session, TableId table,
                                               std::string_view key, KeyHash hash, ValueRoom value);
  base::Task<Result<Located>> locate_by_call(SessionRef session, TableId table,
                                             std::string_view key, KeyHash hash, ValueRoom value);
  // READs the bucket of a key, in `buffer`: the one that has it by now, as long as few have to be
  // looked at. `seen` is not stable when the bucket is in change, or cannot be READ.
  base::Task<Status> read_bucket(SessionRef session, KeyHash hash, OpBuffer& buffer,
                                 BucketSeen& seen);
  // One try to READ what the server says is there, but had no room to answer; `found` is false when
  // the record is locked, torn or gone.
  base::Task<Result<Located>> read_at(SessionRef session, BucketEntry where, TableId table,
                                      std::string_view key, ValueRoom value);

  struct SeenTable {
    TableId table{};
    uint64_t seen_ns = 0;
  };
  static constexpr size_t kSeenTables = 64;

  Executor& executor_;
  LocationCache cache_;
  std::array<SeenTable, kSeenTables> seen_tables_{};
};

}  // namespace pmstore::internal
