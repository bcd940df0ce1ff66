// SessionNumbers: numbers the sessions of a pool, and so their transactions.
//
// A session's transactions are numbered from first_sequence_of() on, so no two transactions of a
// pool have the same number of the same client. The number says where its transactions are logged:
// odd numbers in the shard log (lock discipline cpu), even ones in the client's ring (rnic).
//
// Invariant: no number is given out twice, over crashes too: the catalog counts every number
// before it is given out. It counts kBlock at once, so that a hello is seldom a durable write; a
// close in order gives back what was not used. Threads: one. The catalog is borrowed.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/shard/table_catalog.h"

namespace pmstore::internal {

// Above the numbers of every earlier session of the pool, whether they were logged or not.
constexpr uint64_t first_sequence_of(uint32_t session) { return uint64_t{session} << 32; }
constexpr uint32_t session_of(uint64_t sequence) { return static_cast<uint32_t>(sequence >> 32); }
static_assert(kSessionSequences < uint64_t{1} << 32);
// Else in the ring of its client.
constexpr bool is_in_shard_log(uint64_t sequence) { return session_of(sequence) % 2 == 1; }

class SessionNumbers {
 public:
  static constexpr uint32_t kBlock = 256;

  explicit SessionNumbers(TableCatalog& catalog)
      : catalog_(catalog), last_(catalog.header().sessions) {}

  // Full: the pool has numbered as many sessions as it can. Io.
  Result<uint32_t> next(bool in_shard_log);
  // No session of an earlier time has a higher number.
  uint32_t last() const { return last_; }

 private:
  TableCatalog& catalog_;
  uint32_t last_;
};

}  // namespace pmstore::internal
