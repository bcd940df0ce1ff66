#include "fabric/shm/internal/segment.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace pmstore::fabric::shm {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Error no_segment(const char* what) {
  return make_error(ErrorCode::kIo, std::string("cannot ") + what +
                                        " for a shm connection: " + strerror(errno) +
                                        "; free memory or raise the limit of open files");
}

// Memory that could fault (a file, or pages of another size) is none.
bool is_memory(int fd) {
  struct stat file {};
  struct statfs system {};
  const int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & kSeals) == kSeals && fstat(fd, &file) == 0 &&
         file.st_size == static_cast<off_t>(kSegmentBytes) && fstatfs(fd, &system) == 0 &&
         system.f_type == TMPFS_MAGIC;
}

base::FileDescriptor new_memory() {
  constexpr unsigned kNoExec = 8;  // MFD_NOEXEC_SEAL, which Linux 6.3 has and may demand
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  base::FileDescriptor memory(memfd_create("pmstore-shm", kFlags | kNoExec));
  if (memory || errno != EINVAL) return memory;
  return base::FileDescriptor(memfd_create("pmstore-shm", kFlags));
}

bool allocate(int memory) {
  int failed;
  do {
    failed = fallocate(memory, 0, 0, kSegmentBytes);
  } while (failed != 0 && errno == EINTR);  // each signal interrupts it
  return failed == 0;
}

// One that does not block when it is rung.
bool is_bell(int fd) {
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  char target[64];
  const ssize_t bytes = readlink(link.c_str(), target, sizeof target);
  const int flags = fcntl(fd, F_GETFL);
  return bytes > 0 &&
         std::string_view(target, static_cast<size_t>(bytes)) == "anon_inode:[eventfd]" &&
         flags >= 0 && (flags & O_NONBLOCK) != 0;
}

}  // namespace

Segment::Segment(Descriptors descriptors, bool dialed)
    : descriptors_(std::move(descriptors)), dialed_(dialed) {}

Segment::Segment(Segment&& other) noexcept
    : descriptors_(std::move(other.descriptors_)),
      dialed_(other.dialed_),
      memory_(std::exchange(other.memory_, nullptr)) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(descriptors_, other.descriptors_);
  std::swap(dialed_, other.dialed_);
  std::swap(memory_, other.memory_);
  return *this;
}

Segment::~Segment() {
  if (memory_ != nullptr) munmap(memory_, kMappedBytes);
}

Result<Segment> Segment::create() {
  Descriptors made;
  made[0] = new_memory();
  const int memory = made[0].get();
  // All pages are allocated now: later, a signal would say that there is no memory.
  if (memory < 0 || ftruncate(memory, kSegmentBytes) != 0 || !allocate(memory) ||
      fcntl(memory, F_ADD_SEALS, kSeals) != 0) {
    return no_segment("allocate memory");
  }
  for (size_t i = 1; i < kDescriptors; ++i) {
    made[i] = base::FileDescriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!made[i]) return no_segment("create an eventfd");
  }
  Segment segment(std::move(made), true);
  PMSTORE_TRY_STATUS(segment.map());
  return segment;
}

Result<Segment> Segment::adopt(Descriptors descriptors) {
  if (access("/proc/self/fd", X_OK) != 0) {
    return make_error(ErrorCode::kIo,
                      "cannot check what a peer's descriptors are: /proc is not mounted; mount it");
  }
  if (!is_memory(descriptors[0].get()) || !is_bell(descriptors[1].get()) ||
      !is_bell(descriptors[2].get())) {
    return make_error(ErrorCode::kProtocol, "the peer's shared memory is not what its hello says");
  }
  Segment segment(std::move(descriptors), false);
  PMSTORE_TRY_STATUS(segment.map());
  segment.close_memory();
  return segment;
}

Status Segment::map() {
  void* const reserved = mmap(nullptr, kMappedBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) return no_segment("reserve addresses");
  memory_ = static_cast<std::byte*>(reserved);
  const auto map_piece = [&](std::byte* to, size_t bytes, size_t offset) {
    return mmap(to, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
                descriptors_[0].get(), static_cast<off_t>(offset)) != MAP_FAILED;
  };
  bool mapped = map_piece(memory_, kStateBytes, 0);
  for (size_t i = 0; i < 2; ++i) {
    const size_t offset = kStateBytes + i * kRingBytes;
    mapped = mapped && map_piece(ring(i), kRingBytes, offset) &&
             map_piece(ring(i) + kRingBytes, kRingBytes, offset);
  }
  if (!mapped) return no_segment("map memory");
  return {};
}

std::array<int, Segment::kDescriptors> Segment::descriptors() const {
  return {descriptors_[0].get(), descriptors_[1].get(), descriptors_[2].get()};
}

void Segment::ring_peer() const {
  const uint64_t one = 1;
  // A full counter has a ring that the peer has not heard yet, which is as good.
  [[maybe_unused]] const ssize_t put = write(descriptors_[dialed_ ? 2 : 1].get(), &one, sizeof one);
}

}  // namespace pmstore::fabric::shm
