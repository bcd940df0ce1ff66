#include "fabric/ofi/internal/shm_segment.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "fabric/internal/region_key.h"

namespace pmstore::fabric::ofi {

namespace {

constexpr size_t kPageBytes = 4096;
// glibc's spin lock on x86-64: 1 is free, below is held.
constexpr int32_t kFree = 1;
// What one endpoint of libfabric 1.17 takes.
constexpr uint64_t kSegmentBytes = 16u << 20;
constexpr const char* kDirectory = "/dev/shm";
// Far longer than a handshake may take, and a guard against other PID namespaces, whose processes
// look dead from here.
constexpr time_t kStaleSeconds = 60;

}  // namespace

// smr_region of libfabric 1.17 (its version byte is 4).
struct ShmSegment::Layout {
  uint8_t version;
  uint8_t reserved;
  uint16_t flags;
  int32_t pid;
  uint64_t unused1;
  uint64_t base_address;
  int32_t lock;
  int32_t signal;
  uint64_t map;
  uint64_t total_bytes;
  uint64_t free_commands;
  uint64_t unused2;
  uint64_t command_queue_offset;
  uint64_t unused3[7];
  struct {
    uint64_t entries;
    uint64_t mask;
    uint64_t read;
    uint64_t written;
  } commands;
};

ShmSegment::ShmSegment(void* page, uint64_t file_bytes)
    : layout_(static_cast<Layout*>(page)), file_bytes_(file_bytes) {
  static_assert(offsetof(Layout, lock) == 24 && offsetof(Layout, commands) == 128);
}

ShmSegment::~ShmSegment() { munmap(layout_, kPageBytes); }

Result<std::unique_ptr<ShmSegment>> ShmSegment::map(const std::string& name) {
  const int fd = shm_open(("/" + name).c_str(), O_RDWR | O_CLOEXEC, 0);
  struct stat info {};
  void* page = MAP_FAILED;
  if (fd >= 0) {
    if (fstat(fd, &info) == 0 && info.st_size >= static_cast<off_t>(kPageBytes)) {
      page = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    close(fd);
  }
  if (page == MAP_FAILED) {
    return make_error(ErrorCode::kDisconnected,
                      "cannot map the peer's segment /dev/shm/" + name +
                          "; both sides must see the same /dev/shm (containers: share the IPC "
                          "namespace) and run as the same user");
  }
  return std::unique_ptr<ShmSegment>(new ShmSegment(page, static_cast<uint64_t>(info.st_size)));
}

bool ShmSegment::recognized() const {
  return layout_->version == 4 && layout_->pid == getpid() && layout_->lock == kFree &&
         layout_->total_bytes == file_bytes_ &&
         layout_->command_queue_offset == offsetof(Layout, commands) &&
         layout_->commands.entries == layout_->free_commands &&
         layout_->commands.mask == layout_->commands.entries - 1 && layout_->commands.read == 0 &&
         layout_->commands.written == 0;
}

uint64_t ShmSegment::commands_taken() const {
  return __atomic_load_n(&layout_->commands.read, __ATOMIC_RELAXED);
}

bool ShmSegment::lock_is_held() const {
  return __atomic_load_n(&layout_->lock, __ATOMIC_ACQUIRE) < kFree;
}

void ShmSegment::break_lock() {
  __atomic_store_n(&layout_->commands.read,
                   __atomic_load_n(&layout_->commands.written, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
  __atomic_store_n(&layout_->lock, kFree, __ATOMIC_RELEASE);
}

Result<std::string> new_segment_name() {
  PMSTORE_TRY(uint64_t random, internal::random_key());
  char name[64];
  std::snprintf(name, sizeof name, "pmstore-ofi-endpoint-%d-%016" PRIx64,
                static_cast<int>(getpid()), random);
  return std::string(name);
}

bool is_segment_name(const std::string& name) {
  return name.starts_with("pmstore-ofi-endpoint-") &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
         });
}

void unlink_segment(const std::string& name) { shm_unlink(("/" + name).c_str()); }

Status check_segment_room() {
  struct statvfs room {};
  if (statvfs(kDirectory, &room) == 0 &&
      static_cast<uint64_t>(room.f_bavail) * room.f_bsize >= kSegmentBytes) {
    return {};
  }
  return make_error(ErrorCode::kIo,
                    "/dev/shm has no room for a connection (16 MiB on each side); enlarge it "
                    "(mount -o remount,size=..., docker: --shm-size) or use tcp://");
}

void remove_stale_segments() {
  DIR* directory = opendir(kDirectory);
  if (directory == nullptr) return;
  const time_t now = time(nullptr);
  while (const dirent* entry = readdir(directory)) {
    int pid = 0;
    int random_at = 0;
    struct stat info {};
    if (std::sscanf(entry->d_name, "pmstore-ofi-endpoint-%d-%n", &pid, &random_at) != 1 ||
        pid <= 0 || random_at == 0 ||
        std::strspn(entry->d_name + random_at, "0123456789abcdef") != 16 ||
        entry->d_name[random_at + 16] != 0) {
      continue;
    }
    if (kill(pid, 0) == 0 || errno != ESRCH) continue;
    if (fstatat(dirfd(directory), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (info.st_uid == geteuid() && now - info.st_mtime > kStaleSeconds) {
      unlinkat(dirfd(directory), entry->d_name, 0);
    }
  }
  closedir(directory);
}

}  // namespace pmstore::fabric::ofi
