// RemoteWriter: durable writes into a peer's persistent memory, by any WriteStrategy.
//
// Durable on return: write() gives Persisted only when every byte is inside the server's
// persistence domain, by the strategy negotiated at creation. Threads: those of the connection.
// Many writes may be in flight; each needs its own source buffer, which is borrowed until the write
// returns. Technique: WRITE + READ of the last bytes on one QP as in librpma and "Persistent Memory
// Programming over RDMA" (SNIA); posted with one doorbell and only the READ signaled (rule H9).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "base/task.h"
#include "fabric/connection.h"
#include "fabric/device.h"
#include "fabric/rpc.h"
#include "persist/memory.h"
#include "persist/strategy.h"

namespace pmstore::persist {

// One piece of a durable write; at most kMaxPieces per write.
struct RemotePiece {
  fabric::LocalBuffer from;
  uint64_t offset;  // in the target region
};

struct RemoteWriterOptions {
  WriteStrategy strategy = WriteStrategy::kAuto;
  // Hybrid (rule H3 extended): writes of at least this many bytes go two-sided even where one-sided
  // is correct, when they would land in the last-level cache. 0: never.
  uint32_t two_sided_bytes = 0;
};

class RemoteWriter {
 public:
  static constexpr size_t kMaxPieces = 16;

  // `region` is the target as the server granted it; `rpc` is used by kTwoSided and may be null
  // when the strategy is not. All borrowed. Errors of negotiate().
  static Result<std::unique_ptr<RemoteWriter>> create(fabric::Device& device,
                                                      fabric::Connection& connection,
                                                      fabric::RpcClient* rpc,
                                                      const fabric::RemoteRegion& region,
                                                      const PersistCapability& server,
                                                      const RemoteWriterOptions& options);
  ~RemoteWriter();

  // Writes all pieces, in order, then makes them durable with one wait (two for kNaive).
  // InvalidArgument outside the region; Disconnected, Timeout: any part may have been written.
  // `pieces` must be a named object that outlives the wait.
  base::Task<Result<Persisted>> write(std::span<const RemotePiece> pieces);

  // The strategy in force.
  WriteStrategy strategy() const;

 private:
  struct State;
  explicit RemoteWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The server's half of kTwoSided: an RPC method that copies into `memory` within [offset,
// offset+bytes) of the region that this client was granted, drains and replies. docs/persist.md has
// the message.
inline constexpr uint16_t kPersistWriteMethod = 0x0100;
class PersistService {
 public:
  PersistService(Memory& memory) : memory_(memory) {}
  // `granted_offset`, `granted_bytes`: the part of the memory that this caller may write.
  // Malformed or outside: answers with Protocol or Access, stores nothing.
  void on_call(fabric::RpcCall call, uint64_t granted_offset, uint64_t granted_bytes);

 private:
  Memory& memory_;
};

}  // namespace pmstore::persist
