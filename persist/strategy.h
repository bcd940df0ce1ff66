// WriteStrategy: the ways to make a remote write durable (docs/persist.md has the table and the
// reasons).
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "fabric/capabilities.h"
#include "persist/domain.h"

namespace pmstore::persist {

enum class WriteStrategy : uint8_t {
  kAuto,         // the fastest that is correct for what the server declared
  kNaive,        // WRITE, wait, READ, wait
  kOutstanding,  // WRITE and READ posted one by one, then wait for both
  kDoorbell,     // WRITE + READ in one post, only the READ signaled (rule H9)
  kFlush,        // WRITE + native FLUSH
  kTwoSided,     // by RPC: the server's CPU copies, drains and replies
};
std::string_view strategy_name(WriteStrategy strategy);
Result<WriteStrategy> parse_strategy(std::string_view text);

// Where writes of the RNIC land. A software RNIC, or any CPU, is kCpu: treated like DDIO on.
enum class WriteLanding : uint8_t { kMemory, kLastLevelCache, kCpu };
std::string_view landing_name(WriteLanding landing);

// What a server declares in its handshake.
struct PersistCapability {
  Domain domain = Domain::kNone;
  WriteLanding landing = WriteLanding::kCpu;
  bool native_flush = false;

  // Is a one-sided WRITE durable once a READ after it, on the same connection, has completed?
  bool one_sided_durable() const {
    return domain == Domain::kCpuCache ||
           (domain == Domain::kMemoryController && landing == WriteLanding::kMemory);
  }
};

// The strategy to use: `wanted` if it is correct here, the best for kAuto. Unsupported, saying what
// would have to change, when `wanted` would not be durable or the fabric does not order READ after
// WRITE. `large_write_bytes` is not looked at here; the hybrid by size is
// RemoteWriterOptions::two_sided_bytes.
Result<WriteStrategy> negotiate(WriteStrategy wanted, const PersistCapability& server,
                                const fabric::Capabilities& fabric);

}  // namespace pmstore::persist
