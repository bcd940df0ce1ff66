// RemoteWriter: durable writes into a peer's persistent memory, by any WriteStrategy.
//
// Durable on return: write() gives Persisted only when every byte is inside the server's
// persistence domain, by the strategy negotiated at creation. Threads: those of the connection.
// Many writes may be in flight; each needs its own source buffer, which is borrowed until the write
// returns; when its coroutine is destroyed before, until the connection is. write_visible() leaves
// the durability of several writes to one persist() behind them. Technique: WRITE + READ
// of the last bytes on one QP as in librpma and "Persistent Memory Programming over RDMA" (SNIA);
// posted with one doorbell and only the READ signaled (rule H9).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/result.h"
#include "base/task.h"
#include "fabric/connection.h"
#include "fabric/device.h"
#include "fabric/rpc.h"
#include "persist/memory.h"
#include "persist/persist_ranges_message.h"
#include "persist/strategy.h"
#include "persist/write_message.h"

namespace pmstore::persist {

inline constexpr uint16_t kPersistWriteMethod = 0x0100;

// One piece of a durable write; at most kMaxPieces per write.
struct RemotePiece {
  fabric::LocalBuffer from;
  uint64_t offset;  // in the target region
};

// A READ that goes behind a durable write, in the same doorbell: it shows what is at `from` when
// all of the write has taken effect, or later.
struct RemoteLook {
  fabric::LocalBuffer into;
  fabric::RemoteAddress from;
};

// A WRITE that goes in front of every durable write, in the same doorbell: of bytes elsewhere that
// need no durability of their own, say of how far a log is published. It is asked each time that a
// doorbell is about to be rung, because what it carries may have changed while the send queue was
// full.
class WriteRider {
 public:
  virtual ~WriteRider() = default;
  struct Ride {
    fabric::LocalBuffer from;  // borrowed until a later batch of the connection has completed
    fabric::RemoteAddress to;
  };
  // Nothing: this doorbell goes without.
  virtual std::optional<Ride> board() = 0;
  // What board() gave last has been posted.
  virtual void departed() = 0;
};

struct RemoteWriterOptions {
  WriteStrategy strategy = WriteStrategy::kAuto;
  // Hybrid (rule H3 extended): writes of at least this many bytes go two-sided even where one-sided
  // is correct, when they would land in the last-level cache. 0: never.
  uint32_t two_sided_bytes = 0;
  // The RPC method that the server serves this region by; a server that grants several regions has
  // one for each.
  uint16_t rpc_method = kPersistWriteMethod;
  // The same for persist() with kTwoSided (0: it is not served), and what each of its requests
  // begins with: at most kMaxPersistPrefixBytes, copied.
  uint16_t persist_method = 0;
  std::span<const std::byte> persist_prefix = {};
};

class RemoteWriter {
 public:
  static constexpr size_t kMaxPieces = kMaxPersistPieces;
  static constexpr size_t kMaxPersistPrefixBytes = 16;

  // `region` is the target as the server granted it; `rpc`, which must be attached, is used by
  // kTwoSided and two_sided_bytes and may be null without them (InvalidArgument otherwise). All
  // borrowed. Errors of negotiate() and register_memory().
  static Result<std::unique_ptr<RemoteWriter>> create(fabric::Device& device,
                                                      fabric::Connection& connection,
                                                      fabric::RpcClient* rpc,
                                                      const fabric::RemoteRegion& region,
                                                      const PersistCapability& server,
                                                      const RemoteWriterOptions& options);
  ~RemoteWriter();

  // Writes all pieces, in order, then makes them durable with one wait (two for kNaive; kTwoSided
  // waits once for each rpc->max_request_bytes()). InvalidArgument outside the region, for an empty
  // piece, no piece or too many: nothing was written. Any other error: any part may have been.
  // Timeout also when the send queue stays full for kRoomTimeoutNs.
  // `looks` cost nothing but their READs: pieces and looks are at most kMaxPieces together, and the
  // write goes one-sided (InvalidArgument otherwise).
  // `pieces` and `looks` must be named objects that outlive the wait.
  base::Task<Result<Persisted>> write(std::span<const RemotePiece> pieces,
                                      std::span<const RemoteLook> looks = {});

  // Writes all pieces one-sided, whatever the strategy, without the step that makes them durable:
  // one doorbell, one round trip, no message. On return the bytes are visible to everybody, and the
  // looks behind them were read. At least one look (InvalidArgument otherwise: its READ is what
  // says that the bytes are in place). Unsupported: the fabric does not order a READ behind WRITEs.
  base::Task<Status> write_visible(std::span<const RemotePiece> pieces,
                                   std::span<const RemoteLook> looks);
  // Durable on return: all that write_visible() of this server's present start has written in these
  // ranges, through this writer or an earlier one, and that was visible before the call. By READ:
  // one round trip, as PCIe keeps its order. By FLUSH: one for each kMaxPieces ranges. By message:
  // one for each kMaxPersistRanges ranges or kMaxPersistBytes. InvalidArgument outside the region,
  // for an empty range or none, and where the server has no persist_method.
  base::Task<Result<Persisted>> persist(std::span<const RemoteRange> ranges);
  // As write_visible() and a persist() of the pieces behind it, in one round trip: the message
  // follows the WRITEs on their connection, whose order makes them visible before the server reads
  // it. Durable on return. At most kMaxPersistBytes. InvalidArgument as these two, and without
  // kTwoSided; Unsupported also where the fabric does not keep WRITEs in order. On an error any
  // part may have been written.
  base::Task<Result<Persisted>> write_then_persist(std::span<const RemotePiece> pieces,
                                                   std::span<const RemoteLook> looks);

  // `rider`, borrowed, goes with all writes from now on, of which each then is at most kMaxPieces -
  // 1 pieces. With kTwoSided it is posted by itself, unsignaled, before the request, and stays
  // behind when the send queue is full.
  void set_rider(WriteRider& rider);

  static constexpr uint64_t kRoomTimeoutNs = 10'000'000'000;

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
class PersistService {
 public:
  // `rule_h7`: non-temporal stores whatever the size; off, Memory::write() decides by size.
  explicit PersistService(Memory& memory, bool rule_h7 = true)
      : memory_(memory), rule_h7_(rule_h7) {}
  // `granted_offset`, `granted_bytes`: the part of the memory that this caller may write.
  // Malformed or outside: answers with Protocol or Access, stores nothing. Io when draining fails.
  // Requires that the granted part is inside the memory.
  void on_call(fabric::RpcCall call, uint64_t granted_offset, uint64_t granted_bytes);

 private:
  Memory& memory_;
  bool rule_h7_;
};

}  // namespace pmstore::persist
