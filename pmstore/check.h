// Checks of a pool. They find what a start of the server would find, and change nothing; a view
// (Pool::view()) is enough.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "persist/pool.h"
#include "pmstore/index_key.h"
#include "pmstore/types.h"

namespace pmstore {

struct CheckReport {
  uint64_t epoch = 0;  // how often a server has started with this pool
  bool clean = false;  // the server has closed the pool in order
  uint32_t tables = 0;
  uint64_t slabs = 0;
  uint64_t free_chunks = 0;
  uint64_t live_records = 0;
  uint64_t tombstones = 0;    // with the records of dropped tables; their slots are free
  uint64_t rings_in_use = 0;  // redo rings that a client owns or that have entries
  uint64_t log_entries = 0;   // redo records, in rings and in the shard log
  // Records that are newer in a redo record than in their slots. The next start applies them.
  uint64_t to_replay = 0;
  std::string checkpoint;  // as checkpoint_state(), and every block of a current one was compared
  std::vector<uint64_t> index_entries;  // of each index that was asked for
  // One line for each problem, with its position. Empty: the pool is sound.
  std::vector<std::string> problems;
  bool sound() const { return problems.empty(); }
};

// Reads the catalog, the slab headers, every record and every redo entry. BadPool: the catalog
// cannot be read. Every other problem is in the report, which has at most kMaxProblems lines.
// Stores nothing.
//
// `indexes`: compares each of them with its base table, as the next start will find both: every
// record of the base table has its entry, and every entry its record. UnknownTable: there is no
// such table. InvalidArgument: the index is not an ordered table.
inline constexpr size_t kMaxProblems = 100;
struct IndexToCheck {
  std::string base;  // names of tables
  std::string index;
  IndexDefinition definition;
};
Result<CheckReport> check_store(persist::Pool& pool, std::span<const IndexToCheck> indexes = {});

// What an orderly stop has left for the next start: "none", "current", or why it does not count:
// the next start reads all records then. BadPool: the catalog cannot be read. Stores nothing.
Result<std::string> checkpoint_state(persist::Pool& pool);

// Success: Server::start() would accept the pool, but for the rules that it keeps
// (persist/kept_space_rules.h). Otherwise the error that it would give: a damaged
// catalog, table, slab header, redo ring, shard log or directory of logs, or records of a table
// that was lost. Reads headers and redo entries; reads records only when the catalog cannot exclude
// that a table was lost. Stores nothing.
Status check_startable(persist::Pool& pool);

}  // namespace pmstore
