// The few process-wide things of libpmemobj that must not be touched by two threads at a time: its
// ctl settings, which hold for the next create or open of any thread.
#pragma once

#include <libpmemobj.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace pmstore::persist::internal {

struct PoolCloser {
  void operator()(PMEMobjpool* pool) const { pmemobj_close(pool); }
};
using PoolHandle = std::unique_ptr<PMEMobjpool, PoolCloser>;

// Makes a pool in the existing, zeroed file or device `path`, of its whole size. `allocate_blocks`:
// have the file system promise every block now, so that no store can fail later. Full, Busy, Io.
Result<PoolHandle> create_pmemobj(const std::string& path, bool allocate_blocks);
// Busy, Io, BadPool with libpmemobj's own words.
Result<PoolHandle> open_pmemobj(const std::string& path);
// Opens and closes a private copy, with all repairs that opening does: the file is not touched.
// Gives the error that open_pmemobj() would give. Not for device DAX, which cannot be mapped
// privately.
Status rehearse_open(const std::string& path);

}  // namespace pmstore::persist::internal
