// Rehearsal: libpmemobj opens a copy of a pool in a child process, before it gets the pool. The
// copy of a file is a private mapping, copied as it is written; a DAX device cannot be mapped so,
// nor a very large file when the kernel does not promise the memory: then it is a file in memory
// with the metadata in it.
//
// Why: libpmemobj trusts what it finds in a pool: a damaged chunk header or redo log ends the
// program with a signal, and what it refuses it may have changed before. Here the copy is changed
// and the child dies.
#pragma once

#include <string>

#include "base/result.h"
#include "persist/internal/pmemobj_pool.h"
#include "persist/internal/pool_file.h"

namespace pmstore::persist::internal {

// Ok: opening, finding the root object, and allocating and publishing an extent went well on the
// copy, and every extent's memory is allocated there. BadPool: they did not, or the child died of
// it. Busy. Io: there was no child, or no memory for the copy
// (a few MiB, whatever the pool's size).
// `file` is what `examined` was found in; nothing in it is changed; a file is
// unlocked. Threads: any.
Status rehearse_open(PoolFile& file, const Examined& examined, const std::string& path);
// The same on a copy of the metadata in memory, whatever the medium; the file stays locked. (What
// the pool's device says of unsafe shutdowns is left to open().)
Status rehearse_locked(const PoolFile& file, const Examined& examined, const std::string& path);

}  // namespace pmstore::persist::internal
