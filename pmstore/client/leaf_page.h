// A page of an ordered table by one-sided READs: the leaf, then its records. docs/ordered-tables.md
// says why the page is of one moment.
//
// Threads: the executor's.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "base/task.h"
#include "pmstore/client/client_session.h"
#include "pmstore/client/commit_tasks.h"
#include "pmstore/server/store_calls.h"

namespace pmstore::internal {

// What a page is asked for.
struct LeafPageRequest {
  TableId table;
  const KeyRange& range;
  bool forward;
  uint32_t most_records;
};

// The first records of the range, as StoreCalls::range_scan() gives them; perhaps fewer.
// nullopt: the server must be asked, because no route leads to the leaf, something changes it, or
// its records are too large. Errors of the connection. The task may be destroyed at any moment, but
// not while `tasks` are; the range is borrowed until it ends.
base::Task<Result<std::optional<RangePage>>> read_leaf_page(CommitTasks& tasks, SessionRef session,
                                                            LeafPageRequest request);

}  // namespace pmstore::internal
