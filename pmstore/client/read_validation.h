// Validation of a read set by one-sided READs of lock words and bucket versions.
#pragma once

#include "base/result.h"
#include "base/task.h"
#include "pmstore/client/client_session.h"
#include "pmstore/client/item_set.h"

namespace pmstore::internal {

// Whether the versions of all buckets in which `items` found keys absent can be READ; leaves are
// not looked at.
bool knows_buckets_of(const ItemSet& items, const ClientSession& session);
// Asks for the regions of those buckets: fetch_regions() for each that is not known. `items` and
// `session` are borrowed until the task ends.
base::Task<Status> learn_buckets_of(const ItemSet& items, ClientSession& session);

// Requires knows_buckets_of(). Success: at one moment during this call, nothing that `items` have
// read was changed or locked. Conflict: something was. Other errors are those of the connection.
// `items`, `session` and `buffer` are borrowed until the task ends. When the task is destroyed,
// batches without a completion may be under way.
base::Task<Status> validate_one_sided(const ItemSet& items, ClientSession& session,
                                      OpBuffer& buffer);

}  // namespace pmstore::internal
