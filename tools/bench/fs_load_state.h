// FsLoad: the state of a run of run_fs_load(): its workers, and the phases that its clients go
// through together. What a worker does is in fs_load.cc, who runs it in fs_load_run.cc.
//
// Threads: a client each, on a thread of its own; on the modelled machine all on one.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/executor.h"
#include "fs/file_system.h"
#include "tools/bench/bench_control.h"
#include "tools/bench/fs_load.h"
#include "tools/bench/model_service.h"

namespace pmstore::tools {

inline constexpr std::string_view kFsLoadDirectory = "/bench-fs";

struct FsWorker {
  uint64_t number = 0;
  uint64_t operations = 0;        // begun
  std::vector<uint64_t> written;  // of its blocks: acknowledged writes
  std::vector<std::byte> payload;
};

class FsLoad {
 public:
  explicit FsLoad(const FsLoadOptions& options);
  Result<FsLoadResult> run();

 private:
  using Phase = Task<Status> (FsLoad::*)(fs::FileSystem&, FsWorker&, Histogram&);
  struct NamedPhase {
    std::string name;
    Phase phase;
    Histogram latency_ns = {};
    fabric::Counters counters = {};
    std::atomic<uint64_t> start_ns{0};
    uint64_t end_ns = 0;
    std::atomic<uint32_t> arrived{0};
    uint32_t ended = 0;  // clients
  };

  void real_threads();
  // All clients on one executor, on the modelled machine.
  void model_thread();
  Task<void> one_of(Executor& executor, uint32_t thread, uint32_t& left, base::WaitList& ended);
  Task<void> one_thread(Executor& executor, uint32_t thread);
  Task<Status> phases(Executor& executor, fs::FileSystem& files, uint32_t thread);
  Task<void> one(fs::FileSystem& files, NamedPhase& phase, FsWorker& worker, uint32_t& left,
                 base::WaitList& ended);
  Task<Status> run_phase(fs::FileSystem& files, NamedPhase& phase, uint32_t thread);
  Task<bool> all_there(Executor& executor, std::atomic<uint32_t>& arrived);

  Task<Status> prepare(fs::FileSystem& files);
  Task<Status> remove_all(fs::FileSystem& files, std::string path);
  Task<Status> audit(fs::FileSystem& files);
  Task<Status> audit_data(fs::FileSystem& files);
  Task<Status> audit_metadata(fs::FileSystem& files);
  void problem(std::string text);

  Task<Status> data(fs::FileSystem& files, FsWorker& worker, Histogram& latency);
  // Of those that were written since the last time.
  Task<Status> sync_files(const std::vector<std::unique_ptr<fs::File>>& open,
                          std::set<uint64_t>& written);
  Task<Status> create(fs::FileSystem& files, FsWorker& worker, Histogram& latency);
  Task<Status> stat(fs::FileSystem& files, FsWorker& worker, Histogram& latency);
  Task<Status> list(fs::FileSystem& files, FsWorker& worker, Histogram& latency);
  Task<Status> rename(fs::FileSystem& files, FsWorker& worker, Histogram& latency);
  Task<Status> unlink(fs::FileSystem& files, FsWorker& worker, Histogram& latency);

  std::string data_path(uint64_t file) const {
    return fmt::format("{}/{}", kFsLoadDirectory, file);
  }
  std::string directory_of(const FsWorker& worker) const {
    return fmt::format("{}/w{}", kFsLoadDirectory, worker.number);
  }
  std::string path_of(const FsWorker& worker, uint64_t file, bool renamed = false) const {
    return fmt::format("{}/{}{}", directory_of(worker), renamed ? "r" : "f", file);
  }
  uint64_t blocks_of(const FsWorker& worker) const {
    const uint64_t workers = options_.workers();
    return options_.blocks() / workers + (worker.number < options_.blocks() % workers ? 1 : 0);
  }
  bool over(const FsWorker& worker, uint64_t now_ns) const;
  void fail(Error error);

  const FsLoadOptions& options_;
  BenchControl control_;
  std::vector<FsWorker> workers_;
  std::vector<std::unique_ptr<NamedPhase>> phases_;
  Histogram read_ns_;
  Histogram write_ns_;
  std::atomic<uint32_t> connected_{0};
  std::atomic<uint32_t> prepared_{0};
  std::atomic<uint32_t> closed_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::optional<Error> error_;
  FsLoadResult result_;
  ModelService* model_ = nullptr;  // while model_thread() runs
};

}  // namespace pmstore::tools
