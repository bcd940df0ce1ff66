// FileIo: reads and writes of file data for a FileSystem: one-sided where the map of the range is
// known and below the file's size, else by the namespace server.
//
// A map that turns out to be stale is asked for again, and the access repeated. Bytes at or behind
// the size that is known are asked for, since the file may have grown. After one-sided writes the
// server is told within kTouchNs, so that mtime follows.
// Invariants: a map is used in the data sessions that were there before it was asked for; no map is
// used that lacks a change which this client has confirmed. Threads: the executor's. Lifetimes:
// device and link outlive it; it outlives its tasks. Buffers are borrowed until a task ends, as
// fs/file_data.h says. Errors as FilesLink::call(), and EIO of data servers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/executor.h"
#include "base/running_tasks.h"
#include "fs/file_system.h"
#include "fs/internal/buffers.h"
#include "fs/internal/data_links.h"
#include "fs/internal/files_link.h"
#include "fs/internal/map_cache.h"
#include "fs/internal/unsynced_files.h"

namespace pmstore::fs::internal {

class FileIo {
 public:
  static constexpr uint64_t kTouchNs = 1'000'000'000;

  FileIo(base::Executor& executor, fabric::Device& device, fabric::Uri uri, FilesLink& link,
         const FileSystemOptions& options);
  ~FileIo();

  // Short at the end of the file. `known`: as the caller has heard of it last.
  base::Task<PosixResult<uint64_t>> read(Attributes known, uint64_t offset, ReadBuffers into);
  // All of it. No offset: at the end. Gives the attributes after it, as far as they are known, and
  // where the first byte is. EINVAL: it is to be atomic, and more than kMaxMessageData.
  struct Way {
    DataSync sync = DataSync::kAlways;
    bool atomic = false;
  };
  base::Task<PosixResult<Namespace::Written>> write(Attributes known,
                                                    std::optional<uint64_t> offset,
                                                    WriteBuffers from, Way way);
  // As FileSystem has them.
  base::Task<PosixStatus> register_buffer(std::span<std::byte> memory) {
    return data_.register_buffer(memory);
  }
  bool is_registered(std::span<std::byte> memory) const { return data_.is_registered(memory); }
  base::Task<void> forget_buffer(std::span<std::byte> memory) {
    return data_.forget_buffer(memory);
  }
  base::Task<PosixResult<Namespace::Mapped>> fetch_map(Ino ino, uint64_t offset, uint64_t bytes);
  // What was written one-sided is durable on return, and the server was told of it, and of reads.
  // EIO also: the data server is away. What a data server has lost is no error here: losses().
  base::Task<PosixStatus> flush(Ino ino, bool reads = false);
  uint64_t losses(Ino ino) const { return unsynced_.losses(ino); }
  // A data server has lost something of the file, which is counted from here on.
  std::function<void(Ino)> on_loss;
  // The server was told of what was written one-sided. It need not be durable yet, so no data
  // server is waited for: that follows in the background.
  base::Task<PosixStatus> tell_written(Ino ino) { return tell(ino, untold(ino), false); }
  // The server is told within kTouchNs.
  void read_later(Ino ino);
  bool is_untold(Ino ino) const { return written_.contains(ino); }
  // What the server has said of a file.
  void note(const Attributes& attributes) { maps_.note(attributes); }
  // Its map is to be asked for again: this client changes it.
  void forget_map(Ino ino) { maps_.forget(ino); }
  // Gives the data servers at which a write by these maps may still land: call it again.
  base::Task<UnlandedWrites> drop_maps(uint64_t through, bool all, std::vector<Ino> changed);
  // The server has forgotten this client: no map is right.
  void forget_all() { maps_.clear(); }
  // Flushes all files; gives up what does not end, since a server is away, after call_timeout_ns.
  base::Task<void> close();
  fabric::Counters counters() const;

 private:
  // An access whose map is stale so often is made by a call, at most kMaxMessageData of it.
  static constexpr unsigned kMaxTries = 16;
  static constexpr uint64_t kTryAgainNs = 1'000'000;
  static bool lost_session(const Error& why);
  // The server knows this client, or says so when it is asked.
  base::Task<PosixStatus> check_known();
  // Of one part of an access.
  enum class Step : uint8_t { kDone, kAgain };
  // A part of the buffers.
  struct Range {
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  base::Task<PosixResult<uint64_t>> read_by_call(Ino ino, uint64_t offset, ReadBuffers into,
                                                 Range part);
  base::Task<PosixResult<Namespace::Written>> write_by_call(Ino ino, std::optional<uint64_t> offset,
                                                            WriteBuffers from, Range part,
                                                            bool atomic);
  // The map that knows `offset`; nullptr: this file, or part of it, is accessed by calls.
  base::Task<PosixResult<CachedMapRef>> map_at(const Attributes& known, uint64_t offset);
  base::Task<PosixResult<CachedMapRef>> ask_for_map(Ino ino, uint64_t offset);
  // The same of a range behind the size, which is reserved.
  struct Wanted {
    FilesMethod method = FilesMethod::kMap;
    Ino ino{};
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  base::Task<PosixResult<CachedMapRef>> ask_for(Wanted wanted, uint64_t* reservation);
  // As the server has it.
  struct GivenMap {
    Namespace::Mapped mapped;
    uint64_t news_before = 0;  // the newest when it was asked for
    uint64_t reservation = 0;
  };
  base::Task<PosixResult<GivenMap>> get_map(Wanted wanted);
  // Sessions with the data servers of the map are there: with those of `known` already.
  base::Task<bool> open_servers(const CachedMap& map, const DataSessions& known);
  // All of it, which is allocated in `map`; kAgain: by another map.
  base::Task<PosixResult<Step>> read_mapped(Ino ino, CachedMapRef map, uint64_t offset,
                                            ReadBuffers into, Range part);
  base::Task<PosixResult<Step>> write_mapped(Ino ino, CachedMapRef map, uint64_t offset,
                                             WriteBuffers from, Range part, DataSync sync);
  // A write that begins at the end of the file as it is known, and is large: one-sided, into room
  // that is reserved; then the size grows. kAgain: it is to be made by a call, and nothing of it
  // arrives late.
  bool may_extend(const Attributes& known, uint64_t offset, uint64_t bytes) const;
  base::Task<PosixResult<Step>> extend(Attributes& known, uint64_t offset, WriteBuffers from,
                                       Range part);
  // Nothing arrives any more of what was written by this map in sessions that are lost. An error:
  // a server cannot be reached.
  base::Task<PosixStatus> renew_sessions(CachedMapRef map);
  base::Task<PosixResult<Attributes>> publish(Ino ino, uint64_t reservation, uint64_t size);
  Result<Step> step_after(Ino ino, const Result<DataOutcome>& outcome);
  void touch_later(Ino ino);
  base::Task<void> touch_all();
  // 0: the server knows of all that was written.
  uint64_t untold(Ino ino) const;
  // Of writes up to `number`, as untold() has given it.
  base::Task<PosixStatus> tell(Ino ino, uint64_t number, bool reads);
  bool has_to_flush() const;
  // Each file that has to be flushed, by a task of its own in flushes_. Waits only while many have
  // begun just now, so a server that is away holds up no file of the others.
  base::Task<void> start_flushes();
  base::Task<void> flush_in_background(Ino ino);
  size_t begun_lately() const;

  base::Executor& executor_;
  FilesLink& link_;
  const FileSystemOptions& options_;
  MapCache maps_;
  DataLinks data_;  // from the first access by a map on
  UnsyncedFiles unsynced_;
  bool no_data_ = false;  // the server has none, or options say so
  std::map<Ino, uint64_t>
      written_;  // one-sided, and the server was not told: the last write's number
  uint64_t last_write_ = 0;
  std::map<Ino, uint64_t> read_;  // when; likewise
  void start_touching();
  bool touching_ = false;
  std::map<Ino, uint64_t> flushing_;  // in the background, and since when
  base::RunningTasks flushes_;
  base::Task<void> touches_;
};

}  // namespace pmstore::fs::internal
