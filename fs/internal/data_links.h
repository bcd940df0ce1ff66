// DataLinks: a client's sessions with the data servers of a file system, by their indexes in its
// maps; and accesses whose pieces lie at several of them.
//
// The server of the namespace has index 0. Where the others are, its server says; a session with
// one is made when a map first names it. Accesses of several servers run at the same time.
// Invariant: a map is used in the sessions that were there before it was asked for. Threads: the
// executor's. Lifetimes: device and link outlive it; it outlives its tasks. Errors: as FileData;
// NotFound: no data server has the index now.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "base/executor.h"
#include "fabric/device.h"
#include "fs/file_data.h"
#include "fs/file_system.h"
#include "fs/files_protocol.h"
#include "fs/internal/dirty_ranges.h"
#include "fs/internal/files_link.h"

namespace pmstore::fs::internal {

// FileData::session() by the index of a server; 0, or behind the end: there is none.
using DataSessions = std::vector<uint64_t>;

class DataLinks {
 public:
  DataLinks(base::Executor& executor, fabric::Device& device, fabric::Uri uri, FilesLink& link,
            const FileSystemOptions& options);
  ~DataLinks();

  // There is a session with the server on return. Unsupported: data cannot be accessed one-sided
  // there.
  base::Task<Status> open(uint16_t server);
  DataSessions sessions() const;
  // There was a session with the server: what was written there may arrive late.
  bool was_opened(uint16_t server) const;
  // It was open()ed, and what is written there is durable without a message.
  bool is_one_sided(uint16_t server) const;
  // Requires that each server of the pieces was open()ed. A server without a session among
  // `sessions` makes the map stale.
  base::Task<Result<DataOutcome>> read(const DataSessions& sessions, std::vector<ReadPiece> pieces);
  base::Task<Result<DataOutcome>> write(const DataSessions& sessions, Ino ino,
                                        std::vector<WritePiece> pieces,
                                        DataSync sync = DataSync::kAlways);
  // FileData::persist() at all servers of `dirty` at the same time; their outcomes in its order.
  base::Task<std::vector<Result<PersistOutcome>>> persist(
      const std::vector<DirtyRanges::OfServer>& dirty);
  // FileData::start_of(); the server was open()ed.
  uint64_t start_of(uint16_t server, uint64_t session) const;
  // The servers at which writes that began before the call may still land, and in which files.
  // Waits for accesses under way, at most until then. Empty: none may.
  base::Task<UnlandedWrites> unlanded(uint64_t until_ns);
  // Accesses from and into this memory are done without a copy, at the servers with a session and
  // at those that come and do not refuse it. Durability: none. EINVAL: empty, or it touches memory
  // that is registered. EIO: a present session refuses it; then nothing is registered.
  base::Task<PosixStatus> register_buffer(std::span<std::byte> memory);
  // As a whole.
  bool is_registered(std::span<std::byte> memory) const {
    const auto found = registered_.find(memory.data());
    return found != registered_.end() && found->second == memory.size();
  }
  // Nothing reaches the memory any more on return. Requires that it is registered as a whole.
  base::Task<void> forget_buffer(std::span<std::byte> memory);
  base::Task<void> close();
  // The sum over all servers; what has run at the same time is one round trip.
  fabric::Counters counters() const;

 private:
  struct Server {
    explicit Server(base::Executor& executor) : opened(executor) {}
    std::unique_ptr<fabric::Device> device;  // empty: device_
    std::unique_ptr<FileData> data;          // empty: it is being opened, or could not be
    bool opening = false;
    base::WaitList opened;
    std::map<Ino, unsigned> writing;  // writes under way
    UnlandedFiles unlanded;           // of writes that have failed, or were given up
    std::set<std::byte*> refused;     // of registered_; accesses copy
  };
  // A write under way.
  class Writing;
  static constexpr size_t kMostNamed = 512;  // of more, any file is meant
  struct Place {
    fabric::Uri uri;
    uint64_t area = 0;
  };
  template <typename Piece>
  struct Part;
  template <typename Piece>
  struct Joint;

  base::Task<Result<Place>> place_of(uint16_t server);
  base::Task<Result<std::unique_ptr<FileData>>> open_at(fabric::Device& device, Place place);
  base::Task<Status> open_first(uint16_t index, Server& server);
  base::Task<void> forget_at(std::vector<Server*> servers, std::span<std::byte> memory);
  static void name(UnlandedFiles& files, Ino ino);
  base::Task<void> look_at(Server& server, uint64_t until_ns, UnlandedFiles& into);
  template <typename Piece>
  base::Task<Result<DataOutcome>> access(const DataSessions& sessions, Ino ino,
                                         std::vector<Piece> pieces, DataSync sync);
  template <typename Piece>
  base::Task<Result<DataOutcome>> access_one(uint16_t server, uint64_t session, Ino ino,
                                             std::vector<Piece> pieces, DataSync sync);
  struct JointPersist;
  base::Task<Result<PersistOutcome>> persist_one(const DirtyRanges::OfServer& dirty);
  base::Task<void> run_persist(JointPersist& joint, size_t number);
  template <typename Piece>
  base::Task<void> run_part(Joint<Piece>& joint, size_t number);

  base::Executor& executor_;
  fabric::Device& device_;
  const fabric::Uri uri_;
  FilesLink& link_;
  const FileSystemOptions& options_;
  std::map<uint16_t, std::unique_ptr<Server>> servers_;
  std::map<std::byte*, size_t> registered_;  // bytes by address
  uint64_t joint_round_trips_ = 0;           // counted by several servers, though they were one
};

}  // namespace pmstore::fs::internal
