#include "persist/internal/freed_blocks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "persist/internal/pool_file.h"

namespace pmstore::persist::internal {
namespace {

bool has_holes(int fd) {
  constexpr int64_t kBlockBytes = 512;  // of st_blocks, whatever the file system's are
  struct stat status {};
  return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
         status.st_blocks * kBlockBytes < status.st_size;
}

}  // namespace

FreedBlocks::FreedBlocks(int fd, std::string path)
    : fd_(has_holes(fd) ? fd : -1),
      path_(std::move(path)),
      piece_bytes_(is_in_memory(fd) ? UINT64_MAX : kPieceOfADisk) {}

void FreedBlocks::add(ByteRange range) {
  if (fd_ < 0) return;
  const auto behind = std::find_if(ranges_.begin(), ranges_.end(), [&](const ByteRange& each) {
    return each.begin >= range.begin;
  });
  PMSTORE_CHECK(range.begin < range.end &&
                    (behind == ranges_.end() || range.end <= behind->begin) &&
                    (behind == ranges_.begin() || (behind - 1)->end <= range.begin),
                "what is freed had been an extent");
  ranges_.insert(behind, range);
}

void FreedBlocks::remove(ByteRange range) {
  std::vector<ByteRange> left;
  for (const ByteRange& each : ranges_) {
    const uint64_t before = std::min(each.end, range.begin);
    const uint64_t behind = std::max(each.begin, range.end);
    if (each.begin < before) left.push_back({each.begin, before});
    if (behind < each.end) left.push_back({behind, each.end});
  }
  ranges_ = std::move(left);
}

Result<bool> FreedBlocks::release(uint64_t most_bytes) {
  if (ranges_.empty()) return false;
  PMSTORE_CHECK(fd_ >= 0, "ranges are noted where blocks can go back");
  const ByteRange first = ranges_.front();
  const uint64_t bytes = std::min({most_bytes, piece_bytes_, first.end - first.begin});
  PMSTORE_TRY(const bool released, release_now({first.begin, first.begin + bytes}));
  if (!released) return false;
  ranges_.front().begin += bytes;
  if (first.begin + bytes == first.end) ranges_.erase(ranges_.begin());
  return true;
}

Result<bool> FreedBlocks::release_now(ByteRange range) {
  if (fd_ < 0) return false;
  if (fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(range.begin),
                static_cast<off_t>(range.end - range.begin)) != 0) {
    if (errno != EOPNOTSUPP && errno != ENOSYS && errno != EPERM) {
      return system_error(path_, "give blocks of freed space back");
    }
    fd_ = -1;
    ranges_.clear();
    return false;
  }
  punched_ = true;
  return true;
}

Status FreedBlocks::make_holes_durable() {
  if (!punched_) return {};
  if (fdatasync(fd_) != 0) return system_error(path_, "make its holes durable");
  punched_ = false;
  return {};
}

}  // namespace pmstore::persist::internal
