// NamespaceTables: the tables of a file system in its store. Threads: values.
#pragma once

#include "base/result.h"
#include "base/task.h"
#include "pmstore/client.h"

namespace pmstore::fs::internal {

struct NamespaceTables {
  TableId super{};
  TableId inodes{};
  TableId entries{};
  TableId numbers{};
  TableId parents{};
  TableId maps{};
  TableId freed{};
  TableId orphans{};
  TableId xattrs{};
};

// With `create`, makes those that are absent. UnknownTable: one is absent. Damaged: one is no
// ordered table.
base::Task<Result<NamespaceTables>> open_tables(Client& client, bool create);

}  // namespace pmstore::fs::internal
