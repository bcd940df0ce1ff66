// Conversion of pools of earlier formats, in place.
//
// Redo records in clients' rings had a format of their own: convert_pool() puts in place what the
// rings hold, and empties them. The later ones had all their rings from the beginning, and keep
// them. The first formats had rings for the commits of both lock
// disciplines: the last rings become the shard log. Tables, records, the other rings, a shard log
// that there is, logs, and the pool's identity stay. Of a transaction that was in a ring, the
// outcome is not known any more.
//
// It may be interrupted at any moment: until its catalog says otherwise the pool is of its earlier
// format, with fewer redo records, and from then on only the rest of the conversion may follow;
// converting it again does that. Threads: one. Durable on return.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "persist/pool.h"

namespace pmstore {

struct Conversion {
  uint32_t from_version = 0;  // of the catalog
  uint32_t to_version = 0;    // the same: there was nothing to do
  uint32_t rings_before = 0;
  uint32_t rings = 0;
  uint64_t shard_log_bytes = 0;
};

// BadPool: what a server would refuse as damaged. VersionMismatch: a later release wrote the pool.
// Io.
Result<Conversion> convert_pool(persist::Pool& pool);

}  // namespace pmstore
