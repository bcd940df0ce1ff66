// Validation of a read set by one-sided READs of lock words and bucket versions.
#pragma once

#include "base/result.h"
#include "base/task.h"
#include "pmstore/client/client_session.h"
#include "pmstore/client/item_set.h"

namespace pmstore::internal {

// Success: at one moment during this call, nothing that `items` have read was changed or locked.
// Conflict: something was. Other errors are those of the connection. `items` and `session` are
// borrowed until the task ends.
base::Task<Status> validate_one_sided(const ItemSet& items, ClientSession& session);

}  // namespace pmstore::internal
