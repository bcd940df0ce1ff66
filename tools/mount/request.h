// Request: one question of the kernel, which is answered exactly once.
//
// Threads: one. Lifetimes: ends before its session does. A request that is destroyed without an
// answer is answered with EINTR: its operation was given up.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "fs/file_system.h"
#include "tools/mount/fuse.h"
#include "tools/mount/mount_options.h"

namespace pmstore::tools {

struct stat stat_of(const fs::Attributes& attributes);

class Request {
 public:
  Request(fuse_req_t request, const MountOptions& options)
      : request_(request), options_(&options) {}
  Request(Request&& other) noexcept
      : request_(std::exchange(other.request_, nullptr)), options_(other.options_) {}
  Request& operator=(Request&&) = delete;
  ~Request() {
    if (request_ != nullptr) error(EINTR);
  }

  fuse_req_t handle() const { return request_; }

  void error(int number) { fuse_reply_err(take(), number); }
  void error(const fs::PosixError& why) { error(why.number); }
  void done() { error(0); }
  void status(const fs::PosixStatus& status) { error(status ? 0 : status.error().number); }
  void entry(const fs::Attributes& attributes) {
    const fuse_entry_param entry = entry_of(attributes);
    fuse_reply_entry(take(), &entry);
  }
  void created(const fs::Attributes& attributes, const fuse_file_info& file) {
    const fuse_entry_param entry = entry_of(attributes);
    fuse_reply_create(take(), &entry, &file);
  }
  void opened(const fuse_file_info& file) { fuse_reply_open(take(), &file); }
  void attributes(const fs::Attributes& attributes) {
    attributes_for(attributes, options_->attribute_seconds);
  }
  // The kernel may believe them for so long.
  void attributes_for(const fs::Attributes& attributes, double seconds) {
    const struct stat answer = stat_of(attributes);
    fuse_reply_attr(take(), &answer, seconds);
  }
  void link_target(const std::string& target) { fuse_reply_readlink(take(), target.c_str()); }
  void written(size_t bytes) { fuse_reply_write(take(), bytes); }
  void data(std::span<const std::byte> bytes) {
    fuse_reply_buf(take(), reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  // For a caller with room for `room` bytes; 0: who only asks how many there are.
  void xattr(std::span<const std::byte> value, size_t room) {
    if (room == 0) {
      fuse_reply_xattr(take(), value.size());
    } else if (value.size() > room) {
      error(ERANGE);
    } else {
      data(value);
    }
  }
  void usage(const struct statvfs& usage) { fuse_reply_statfs(take(), &usage); }
  void lock(const struct flock& lock) { fuse_reply_lock(take(), &lock); }
  void position(off_t offset) { fuse_reply_lseek(take(), offset); }

  fuse_entry_param entry_of(const fs::Attributes& attributes) const;

 private:
  fuse_req_t take() {
    PMSTORE_CHECK(request_ != nullptr, "a request is answered once");
    return std::exchange(request_, nullptr);
  }

  fuse_req_t request_;
  const MountOptions* options_;
};

}  // namespace pmstore::tools
