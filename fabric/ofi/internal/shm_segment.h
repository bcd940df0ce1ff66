// ShmSegment: reads the files that libfabric's shm provider keeps in /dev/shm, one for each
// endpoint: whether the owner makes progress, and whether the spin lock is held. Also names the
// files.
//
// The layout is private to libfabric: it is compared with a segment of this process before it is
// relied on. One page of the file is mapped. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace pmstore::fabric::ofi {

// The first page of an endpoint's segment, mapped.
class ShmSegment {
 public:
  // Disconnected when there is none of that name: the peer is gone, or its /dev/shm is not ours.
  static Result<std::unique_ptr<ShmSegment>> map(const std::string& name);
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  // Whether it looks like a fresh segment of this process, as libfabric 1.17 lays it out.
  bool recognized() const;
  // How many commands its owner has taken from it so far.
  uint64_t commands_taken() const;
  bool lock_is_held() const;
  // Drops the commands that are queued, then unlocks. Only when the holder is dead.
  void break_lock();

 private:
  struct Layout;
  explicit ShmSegment(void* page, uint64_t file_bytes);
  Layout* layout_;
  uint64_t file_bytes_;
};

// A unique name for a new endpoint: pmstore-ofi-endpoint-PID-RANDOM.
Result<std::string> new_segment_name();
// Whether it may have been made by the above; it becomes a file name.
bool is_segment_name(const std::string& name);
void unlink_segment(const std::string& name);
// Io when /dev/shm has no room for one more: a tmpfs that is full says so by SIGBUS, when it is too
// late.
Status check_segment_room();
// Unlinks what processes have left that died in the middle of a handshake. Later than that the
// files have no names any more.
void remove_stale_segments();

}  // namespace pmstore::fabric::ofi
