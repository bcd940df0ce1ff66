// See each record of an ordered table, also of one that has damaged records.
#pragma once

#include <cstdint>
#include <functional>

#include "base/result.h"
#include "base/task.h"
#include "pmstore/client.h"

namespace pmstore::fs::internal {

// Calls `see` for every record, in the order of the keys, page by page: each page is of one moment.
// A record with a wrong checksum is passed over: then what is behind it is held in memory, and is
// of no one moment. Gives how many damaged records there are, perhaps of other tables. Threads: the
// client's. Errors of the client.
base::Task<Result<uint64_t>> see_records(Client& client, TableId table,
                                         std::function<void(const RecordRef&)> see);

}  // namespace pmstore::fs::internal
