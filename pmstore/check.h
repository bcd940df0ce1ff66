// Checking a pool: everything that a start of the server would find, without changing anything. A
// view (Pool::view()) is enough.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "persist/pool.h"
#include "pmstore/types.h"

namespace pmstore {

struct CheckReport {
  uint64_t epoch = 0;  // starts of a server so far
  bool clean = false;  // closed in order
  uint32_t tables = 0;
  uint64_t slabs = 0;
  uint64_t free_chunks = 0;
  uint64_t live_records = 0;
  uint64_t tombstones = 0;    // and records of dropped tables: their slots are free
  uint64_t rings_in_use = 0;  // owned by a client, or with entries
  uint64_t log_entries = 0;
  uint64_t to_replay =
      0;  // records that are newer in a ring than in place; the next start applies them
  // One line each: what is wrong and where. Empty: the pool is sound.
  std::vector<std::string> problems;
  bool sound() const { return problems.empty(); }
};

// Reads catalog, slab headers, every record and every redo entry. BadPool when the catalog itself
// cannot be read; what is wrong below it is in the report (at most kMaxProblems lines). Stores
// nothing.
inline constexpr size_t kMaxProblems = 100;
Result<CheckReport> check_store(persist::Pool& pool);

// What Server::start() would refuse the pool for: damaged catalog, table, slab header or redo ring,
// a damaged directory of logs, records of a table that was lost. Reads headers and redo entries;
// records only where the catalog cannot exclude that a table was lost.
Status check_startable(persist::Pool& pool);

}  // namespace pmstore
