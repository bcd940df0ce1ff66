#include "tools/mount/request.h"

#include <sys/sysmacros.h>

#include <algorithm>

namespace pmstore::tools {
namespace {

mode_t type_bits(fs::FileType type) {
  switch (type) {
    case fs::FileType::kRegular: return S_IFREG;
    case fs::FileType::kDirectory: return S_IFDIR;
    case fs::FileType::kSymlink: return S_IFLNK;
    case fs::FileType::kFifo: return S_IFIFO;
    case fs::FileType::kSocket: return S_IFSOCK;
    case fs::FileType::kCharDevice: return S_IFCHR;
    case fs::FileType::kBlockDevice: return S_IFBLK;
  }
  return 0;
}

timespec timespec_of(uint64_t time_ns) {
  constexpr uint64_t kSecond = 1'000'000'000;
  return {static_cast<time_t>(time_ns / kSecond), static_cast<long>(time_ns % kSecond)};
}

}  // namespace

struct stat stat_of(const fs::Attributes& attributes) {
  constexpr uint64_t kBlockBytes = 512;
  struct stat answer {};
  answer.st_ino = raw(attributes.ino);
  answer.st_mode = type_bits(attributes.type) | attributes.mode;
  answer.st_uid = attributes.uid;
  answer.st_gid = attributes.gid;
  answer.st_nlink = attributes.links;
  answer.st_size = static_cast<off_t>(attributes.size);
  answer.st_blksize = fs::kUnitBytes;
  const uint64_t used = attributes.data_bytes == 0 && attributes.type == fs::FileType::kRegular &&
                                attributes.is_inline
                            ? attributes.size
                            : attributes.data_bytes;
  answer.st_blocks = static_cast<blkcnt_t>((used + kBlockBytes - 1) / kBlockBytes);
  answer.st_rdev = attributes.device;
  answer.st_atim = timespec_of(attributes.atime_ns);
  answer.st_mtim = timespec_of(attributes.mtime_ns);
  answer.st_ctim = timespec_of(attributes.ctime_ns);
  return answer;
}

// The node of the kernel is the inode's number, which is never used again: there is no generation,
// and no table of what the kernel knows.
fuse_entry_param Request::entry_of(const fs::Attributes& attributes) const {
  fuse_entry_param entry{};
  entry.ino = raw(attributes.ino);
  entry.attr = stat_of(attributes);
  entry.attr_timeout = options_->attribute_seconds;
  entry.entry_timeout = options_->entry_seconds;
  return entry;
}

}  // namespace pmstore::tools
