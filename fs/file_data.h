// FileData: a client's way to the file data of one data server: READs and durable WRITEs by the map
// of a file, without the server's CPU where the fabric and its persistence domain allow that.
//
// Each access names the extents of a map, and checks their generation words behind its bytes, in
// the same doorbell. A word that has changed makes it a stale map: what was read is not given, what
// was written is not acknowledged; the caller asks for the map again and repeats. So an access that
// is done took effect while its map was right.
//
// A map may be used in one session only: the one that was there before the map was asked for. A
// server that has ended a session gives freed units to others, which the client's older maps still
// name. session() is that number, and each access says the one of its map.
//
// What has begun runs to its end, also when its caller is destroyed; settled() waits for that. A
// write with a stale map may have stored any part of its bytes, and stores nothing from then on;
// one that fails, or is abandoned, may go on for a while. Durable on return: write(), unless it was
// asked for visible bytes only (DataSync::kFsync): then what persist() names. Threads: one
// executor's; many accesses may be under way at the same time. Lifetimes: the device outlives it.
// Buffers are borrowed until the task ends; those in registered memory of a task that is destroyed
// before, until settled() or the end of the FileData. Errors: Disconnected, Timeout: the session
// was lost, and no other one could be had for reconnect_timeout_ns (where one could, the access
// ends with a stale map); Protocol: the server's answer makes no sense.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/task.h"
#include "fabric/capabilities.h"
#include "fabric/device.h"
#include "fabric/uri.h"
#include "fs/types.h"
#include "persist/persist_ranges_message.h"
#include "persist/strategy.h"
#include "service/identity.h"

namespace pmstore::fs {

struct FileDataOptions {
  ClientSecret secret;  // of the client, as its other sessions have it
  uint64_t area = 0;    // identity of the file area that is meant; 0: any
  uint64_t call_timeout_ns = 5'000'000'000;
  uint64_t connect_timeout_ns = 5'000'000'000;
  uint64_t reconnect_timeout_ns = 0;
  persist::WriteStrategy write_strategy = persist::WriteStrategy::kAuto;
  // Registered buffers of 16 KiB and of kMaxMessageData, for accesses from and into memory that is
  // not registered. Each access takes one for each part of kMaxMessageData under way.
  size_t small_buffers = 64;
  size_t large_buffers = 8;
};

// Bytes of an extent: from `offset` in it on.
struct ReadPiece {
  MapExtent extent;
  uint64_t offset = 0;
  std::span<std::byte> into;
};
struct WritePiece {
  MapExtent extent;
  uint64_t offset = 0;
  std::span<const std::byte> from;
};

enum class DataOutcome : uint8_t { kDone, kStaleMap };
enum class PersistOutcome : uint8_t { kDurable, kLost };

class FileData {
 public:
  // `device` is of the scheme of `uri`. Unsupported: the server has no file data, or the fabric
  // does not keep READs in order; NotFound: it serves another area; errors of Link::open(),
  // negotiate() and register_memory().
  static base::Task<Result<std::unique_ptr<FileData>>> open(fabric::Device& device, fabric::Uri uri,
                                                            FileDataOptions options);
  // Accesses under way are given up: their tasks are never resumed, and may be destroyed later. No
  // task may be waiting for a session.
  ~FileData();

  // Reads or writes all pieces; more than kMaxMessageData in parts, several at a time.
  // kStaleMap: also when `session` is not the present one. InvalidArgument: a piece is outside of
  // its extent, or the extent outside of the area; nothing was done.
  base::Task<Result<DataOutcome>> read(uint64_t session, std::vector<ReadPiece> pieces);
  // kFsync: visible on return, in one round trip without a message; persist() makes it durable.
  base::Task<Result<DataOutcome>> write(uint64_t session, std::vector<WritePiece> pieces,
                                        DataSync sync = DataSync::kAlways);
  // Durable on return: what was visible in these parts of the area, written while the server had
  // the start `start`. kLost: it was started again since, and may have lost it. Goes on in the next
  // session when one is lost. InvalidArgument: a range is outside of the area.
  base::Task<Result<PersistOutcome>> persist(uint64_t start,
                                             std::vector<persist::RemoteRange> ranges);
  // Of the server in a session that this object has had.
  uint64_t start_of(uint64_t session) const;

  // Number of the present session; a new one is greater.
  uint64_t session() const;
  // There is a session on return; makes one when it was lost.
  base::Task<Status> connected();
  // Returns when no access is under way that began before the call.
  base::Task<void> settled();
  // The same, and on success nothing that they have written lands later. Disconnected: it may,
  // since a session was lost with it, and there is no other one yet; one is being made.
  base::Task<Status> landed();
  // landed(), which does not wait longer for accesses under way. Disconnected: some are.
  base::Task<Status> landed_by(uint64_t until_ns);
  // Waits for what is under way and ends the session. Nothing begins afterwards: Disconnected.
  base::Task<void> close();

  // Accesses from and into this memory are done without a copy. Io. Requires that it does not touch
  // memory that is registered already.
  Status register_buffer(std::span<std::byte> memory);
  // Waits for accesses under way. `memory` as it was registered.
  base::Task<void> forget_buffer(std::span<std::byte> memory);

  uint64_t area() const;  // identity
  // Of all units that this object knows: those of later sections of the area, which is asked for
  // when a map first names it.
  uint64_t bytes() const;
  persist::WriteStrategy strategy() const;
  // The sum over all sessions.
  fabric::Counters counters() const;

 private:
  struct State;
  explicit FileData(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pmstore::fs
