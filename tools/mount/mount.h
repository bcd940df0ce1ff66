// Mount: a file system at a directory of this machine, through the kernel's FUSE.
//
// The kernel's questions are read from /dev/fuse, which the executor watches; each becomes a
// coroutine on a FileSystem (mount_names.cc, mount_attributes.cc, mount_files.cc,
// mount_directories.cc), which answers it.
// Bounded: at most kMostOperations questions and kMostDataBytes of data are being worked on; above
// that the kernel's next ones wait in the kernel.
// Threads: the executor's. Lifetimes: the executor and the FileSystem outlive it, but the
// FileSystem's connections must be gone (FileSystem::close()) before the buffers are: so it is
// close()d after drain() and unmount(), and before the Mount is destroyed.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "base/executor.h"
#include "base/result.h"
#include "fs/file_system.h"
#include "tools/mount/data_buffers.h"
#include "tools/mount/fuse.h"
#include "tools/mount/invalidator.h"
#include "tools/mount/mount_options.h"
#include "tools/mount/open_files.h"
#include "tools/mount/operations.h"
#include "tools/mount/request.h"

namespace pmstore::tools {

// Who may have locks of ranges of a file: inode and owner. They go when the owner closes any of its
// descriptors of the file.
using RangeOwners = std::set<std::pair<uint64_t, uint64_t>>;

class Mount final : private base::Watched, private base::Poller, private fs::FileCache {
 public:
  static constexpr size_t kMostOperations = 1024;
  static constexpr size_t kMostDataBytes = 128u << 20;
  // Of one read or write of the kernel.
  static constexpr size_t kMostRequestBytes = 1u << 20;
  // The kernel's question with the data of a write.
  static constexpr size_t kMessageBytes = kMostRequestBytes + 4096;

  // Mounts. `source` is what the mount table shows. Io: why not, in one line.
  static Result<std::unique_ptr<Mount>> start(base::Executor& executor, fs::FileSystem& files,
                                              const MountOptions& options,
                                              const std::string& source,
                                              const std::string& directory);
  ~Mount() override;

  // Ends when the kernel has asked the first question and has its answer: the mount can be used.
  // True; false: it was unmounted before that.
  base::Task<bool> until_ready();
  // Ends when it was unmounted, or after stop().
  base::Task<void> until_ended();
  // Any thread, also a signal handler.
  void stop();
  // No further questions; waits for those that are being answered, at most `patience_ns`, and
  // closes what is open.
  base::Task<void> drain(uint64_t patience_ns);
  // Takes the mount away, also when programs have files open there.
  void unmount();

  // ---- for the operations ----
  base::Executor& executor() { return executor_; }
  fs::FileSystem& files() { return files_; }
  const MountOptions& options() const { return options_; }
  OpenFiles& open_files() { return open_files_; }
  DataBuffers& buffers() { return buffers_; }
  // The memory of the question that is being taken, with the data of a write: once for each.
  DataBuffers::Buffer take_message();
  void start_operation(fuse_req_t request, base::Task<void> body) {
    operations_.start(request, std::move(body));
  }
  // As start_operation(), of what waits for another program.
  void start_waiting(fuse_req_t request, base::Task<void> body) {
    operations_.start(request, std::move(body), 0);
  }
  RangeOwners& range_owners() { return range_owners_; }
  void prepare_connection(fuse_conn_info& connection);
  // Before the first answer goes to the kernel.
  void complete_greeting(std::span<iovec> answer);
  // How a file was opened, as the kernel has to know it: through its pages, or without them.
  // `keeps`: the pages that it has of the file are right.
  void describe_opened(fuse_file_info& file, bool cached, bool keeps) const;
  // The kernel has no page of the file any more that it had before, unless it may keep them always.
  base::Task<void> invalidate(fs::Ino ino);

 private:
  Mount(base::Executor& executor, fs::FileSystem& files, const MountOptions& options);
  Status mount(const std::string& source, const std::string& directory);

  void on_ready(uint32_t events) override;
  size_t poll() override;
  uint64_t next_event_ns() const override { return operations_.next_due_ns(); }
  bool arm() override;
  base::Task<void> forget(fs::Ino ino) override { return invalidate(ino); }
  bool has_room() const;
  size_t receive();
  void end();
  base::Task<void> close_all();

  base::Executor& executor_;
  fs::FileSystem& files_;
  const MountOptions options_;
  DataBuffers buffers_{kMessageBytes};
  OpenFiles open_files_;
  RangeOwners range_owners_;
  fuse_session* session_ = nullptr;
  std::unique_ptr<Invalidator> invalidator_;  // with delegations
  Operations operations_;
  // Where the next question arrives; nothing when it was taken.
  std::optional<DataBuffers::Buffer> message_memory_;
  fuse_buf message_{};
  int descriptor_ = -1;
  bool mounted_ = false;
  bool watched_ = false;
  bool waits_for_room_ = false;
  bool readable_ = false;
  // While the executor is busy, or spins: a look costs a system call.
  static constexpr unsigned kPollsPerLook = 4;
  unsigned polls_ = 0;
  bool initialized_ = false;
  bool greeted_ = false;
  bool ended_ = false;
  std::atomic<bool> stop_requested_{false};
  base::WaitList changes_;
};

// The operations of mount_*.cc.
void add_name_calls(fuse_lowlevel_ops& calls);
void add_attribute_calls(fuse_lowlevel_ops& calls);
void add_file_calls(fuse_lowlevel_ops& calls);
void add_directory_calls(fuse_lowlevel_ops& calls);
void add_lock_calls(fuse_lowlevel_ops& calls);

inline Mount& mount_of(fuse_req_t request) {
  return *static_cast<Mount*>(fuse_req_userdata(request));
}
// Who asks, with all groups.
fs::Caller caller_of(fuse_req_t request);
// Who is not root takes the set-id bits from a file by changing its data. The kernel leaves that to
// the file system.
base::Task<fs::PosixStatus> drop_set_ids(Mount& mount, uint32_t user, const fs::Attributes& file);

}  // namespace pmstore::tools
