// The few process-wide things of libpmemobj that must not be touched by two threads at a time: its
// ctl settings, which hold for the next create or open of any thread.
#pragma once

#include <libpmemobj.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/result.h"
#include "persist/internal/pmemobj_format.h"

namespace pmstore::persist::internal {

struct PoolCloser {
  void operator()(PMEMobjpool* pool) const { pmemobj_close(pool); }
};
using PoolHandle = std::unique_ptr<PMEMobjpool, PoolCloser>;

// Makes a pool in the existing, zeroed file or device `file`, of its whole size, with a root object
// of `root_bytes`. `allocate_blocks`: have the file system promise every block now, so that no
// store can fail later. Full, Busy, Io; errors name `path`. libpmemobj has closed the pool on
// return; the result is what the device's record of unsafe shutdowns said while it was open.
Result<ShutdownState> create_pmemobj(const std::string& file, const std::string& path,
                                     uint64_t root_bytes, bool allocate_blocks);
// Opens the file `file`, which finishes or takes back what a crash has left undone, and closes it.
// Its lanes are idle on return, durably; `facts` are what check_pmemobj() gave. Busy, Io, BadPool
// with libpmemobj's own words; errors name `path`. The same result.
Result<ShutdownState> recover_pmemobj(const std::string& file, const std::string& path,
                                      const PmemobjFacts& facts);

// For a caller who forks and opens in the child: the parent holds the lock over the fork, so that
// no other thread is inside the library then, and the child opens without.
[[nodiscard]] std::unique_lock<std::mutex> lock_pmemobj();
// Opens `path` in a private mapping that is copied as it is written: nothing in the file changes.
// Null when the kernel does not promise the memory for that.
Result<PoolHandle> open_pmemobj_privately(const std::string& path);
// Opens the file `copy`; errors name `path`.
Result<PoolHandle> open_pmemobj_copy(const std::string& copy, const std::string& path);

}  // namespace pmstore::persist::internal
