// The checks of a commit: whether what a transaction has read is still there and unchanged.
//
// Threads: the server's.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "pmstore/shard/commit_view.h"
#include "pmstore/shard/record_store.h"

namespace pmstore::internal {

// Success: nothing that the request says was read has changed, is locked, or is in a leaf in which
// another transaction inserts a key. Keys for which `owner` has reserved slots in the transaction
// of this number are the transaction's own (LockDiscipline::kRnic; else kServerOwner, which
// reserves none). Conflict; InvalidArgument: what is named cannot have been read.
Status check_reads(const RecordStore& records, const CommitView& request, uint16_t owner);

}  // namespace pmstore::internal
