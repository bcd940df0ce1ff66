// CommitTasks: commits that run to their end even if their callers are destroyed.
//
// Once a commit holds locks it must unlock them, and once it has logged it must apply: so it is a
// task of its own, which belongs to the client. Destroying CommitTasks destroys the commits that
// run. Threads: the executor's.
#pragma once

#include "base/running_tasks.h"

namespace pmstore::internal {

using CommitTasks = base::RunningTasks;

}  // namespace pmstore::internal
