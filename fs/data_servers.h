// DataServers: which servers have the data of a file system: the list that is durable in its
// namespace, servers that are added, and servers that are drained.
//
// A server is added in this order: it records in its area whose it is; the namespace records it;
// new data goes there. One is drained in this order: the namespace records that; what it has is
// moved to the others, and waits in quarantine until no client uses the old places; the namespace
// records that it is gone; its area has no owner any more. A crash between two steps leaves what
// the next start, or the same command, goes on with. Threads: one executor's. Lifetimes: client and
// spaces outlive it; it outlives stop() of the file service. Errors of add() and drain(): EPERM,
// EINVAL, EEXIST, EBUSY, EACCES, ENOSPC, EIO with a line that says why.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/running_tasks.h"
#include "base/task.h"
#include "fabric/device.h"
#include "fabric/uri.h"
#include "fs/internal/data_server_records.h"
#include "fs/namespace.h"
#include "fs/posix_error.h"
#include "fs/striped_data_space.h"
#include "fs/types.h"

namespace pmstore::fs {

struct DataServersOptions {
  fabric::DeviceOpener* devices = nullptr;
  uint64_t epoch = 0;      // of this start of the namespace server
  uint32_t admin_uid = 0;  // who may change the list, beside root
};

class DataServers {
 public:
  static constexpr size_t kMost = 64;  // at the same time

  DataServers(Client& client, LocalDataSpace& local, StripedDataSpace& space,
              DataServersOptions options);

  // Before the namespace is opened: the servers of its list are added to the space. One that is
  // away is tried again in the background.
  base::Task<Status> open();
  // From here on the list can be changed. Goes on with what was being drained.
  void serve(Namespace& names);
  // Before the namespace goes.
  void stop();

  std::vector<DataServerInfo> list() const;
  // Gives its index.
  base::Task<PosixResult<uint16_t>> add(const Caller& caller, std::string uri);
  // Returns when that is recorded; the server is gone later. `undo`: it is used again, unless it is
  // gone.
  base::Task<PosixStatus> drain(const Caller& caller, uint16_t index, bool undo);

  // Another namespace server, on a copy of this pool, has taken a data server. As
  // RemoteArea::on_fenced.
  std::function<void(const Error&)> on_fenced;
  // As RemoteArea::on_restarted, of any of them.
  std::function<void()> on_restarted;

 private:
  using Entry = internal::DataServerEntry;
  class Changing;

  PosixStatus may_change(const Caller& caller) const;
  internal::RemoteAreaOptions area_options(uint16_t index) const;
  void watch_fences(internal::RemoteArea& area);
  base::Task<Result<uint64_t>> identity_at(const fabric::Uri& uri);
  base::Task<PosixResult<uint16_t>> add_found(fabric::Uri uri);
  base::Task<PosixStatus> take_in(Entry entry, std::unique_ptr<internal::RemoteArea> area,
                                  bool is_recorded, bool was_ours);
  base::Task<Status> record(Entry entry);
  void start_draining(uint16_t index);
  base::Task<void> drain_all(uint16_t index);
  void note_problem(uint16_t index, std::string what);
  base::Task<Status> finish(uint16_t index);

  base::Executor& executor_;
  LocalDataSpace& local_;
  StripedDataSpace& space_;
  const DataServersOptions options_;
  const uint64_t start_;  // RemoteAreaOptions::start
  internal::DataServerRecords records_;
  Namespace* names_ = nullptr;
  uint64_t file_system_ = 0;
  std::map<uint16_t, Entry> entries_;
  bool changing_ = false;                     // one change of the list at a time
  std::set<uint16_t> drained_;                // by a task that runs
  std::map<uint16_t, std::string> problems_;  // of servers that are drained
  base::RunningTasks draining_;
};

}  // namespace pmstore::fs
