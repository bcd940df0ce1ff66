// A client's requests about tables. client.h has their effects, their errors and what is durable.
//
// Threads: the executor's. Everything is borrowed until the task ends. The reader is told which
// tables the server has named.
#pragma once

#include <string_view>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "pmstore/client.h"
#include "pmstore/client/connector.h"
#include "pmstore/client/reader.h"

namespace pmstore::internal {

base::Task<Result<TableId>> open_table(Connector& connector, Reader& reader, std::string_view name,
                                       bool create);
base::Task<Result<TableId>> create_table(Connector& connector, Reader& reader,
                                         std::string_view name, TableKind kind);
base::Task<Result<std::vector<TableInfo>>> list_tables(Connector& connector);
base::Task<Status> drop_table(Connector& connector, Executor& executor, std::string_view name);
// `records_only`: of an ordered table only TableUsage::records, in one request.
base::Task<Result<TableUsage>> table_usage(Connector& connector, Executor& executor, TableId table,
                                           bool records_only = false);

}  // namespace pmstore::internal
