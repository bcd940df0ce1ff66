// FreedBlocks: the blocks of a sparse file that lie in freed extents, until the file system has
// them back.
//
// Invariants: ranges_ is in order, without overlaps, and no extent lies in it. A pool whose blocks
// were reserved keeps them: nothing is noted then. Threads: one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "persist/internal/pmemobj_format.h"

namespace pmstore::persist::internal {

class FreedBlocks {
 public:
  // What a file system with a disk punches at a time: it writes the pages of a hole back before.
  static constexpr uint64_t kPieceOfADisk = 128 << 10;

  FreedBlocks() = default;
  // `fd` is borrowed; errors name `path`. Nothing is noted where the file has all of its blocks, or
  // is a device.
  FreedBlocks(int fd, std::string path);

  // An extent was in the range, and is durably gone.
  void add(ByteRange range);
  // An extent will be in the range: its blocks stay.
  void remove(ByteRange range);
  // Punches a hole of at most `most_bytes`, and of kPieceOfADisk but on tmpfs. False: there was
  // nothing left. A file system that cannot punch holes is not asked again. Io: another failure;
  // the next call tries the same again.
  Result<bool> release(uint64_t most_bytes);
  // The same of a range that is in an extent, now and as a whole. False: the file system cannot.
  Result<bool> release_now(ByteRange range);
  // Blocks can go back.
  bool can_release() const { return fd_ >= 0; }
  // The holes are durable on return, so what lies there is zero also after a power cut. Io.
  Status make_holes_durable();

 private:
  int fd_ = -1;  // below 0: blocks stay
  std::string path_;
  uint64_t piece_bytes_ = kPieceOfADisk;
  bool punched_ = false;  // since the holes were last made durable
  std::vector<ByteRange> ranges_;
};

}  // namespace pmstore::persist::internal
