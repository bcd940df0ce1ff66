#include "persist/internal/owned_pool_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "persist/padding.h"

namespace pmstore::persist::internal {
namespace {

// Of large pages on x86-64; what a DAX device asks for may be more.
constexpr uint64_t kLargePage = 2u << 20;

// The kernel names a range of addresses; what lies before and behind the aligned part goes back.
void* reserve_aligned(uint64_t bytes, uint64_t alignment) {
  void* const range = mmap(nullptr, bytes + alignment, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return MAP_FAILED;
  const auto begin = reinterpret_cast<uintptr_t>(range);
  const uintptr_t aligned = round_up(begin, alignment);
  if (aligned > begin) munmap(range, aligned - begin);
  munmap(reinterpret_cast<void*>(aligned + bytes), begin + alignment - aligned);
  return reinterpret_cast<void*>(aligned);
}

void* map_shared(int fd, const MediumFacts& facts) {
  const uint64_t bytes = round_up(facts.bytes, 4096);
  void* const where = reserve_aligned(bytes, std::max(kLargePage, facts.map_alignment));
  if (where == MAP_FAILED) return MAP_FAILED;
  constexpr int kRights = PROT_READ | PROT_WRITE;
  void* mapped =
      mmap(where, facts.bytes, kRights, MAP_SHARED_VALIDATE | MAP_SYNC | MAP_FIXED, fd, 0);
  if (mapped == MAP_FAILED && (errno == EOPNOTSUPP || errno == EINVAL)) {
    mapped = mmap(where, facts.bytes, kRights, MAP_SHARED | MAP_FIXED, fd, 0);
  }
  if (mapped == MAP_FAILED) {
    const int error = errno;
    munmap(where, bytes);
    errno = error;
  }
  return mapped;
}

}  // namespace

Result<OwnedPoolFile> OwnedPoolFile::open(const std::string& file, const std::string& path) {
  OwnedPoolFile owned;
  // O_NONBLOCK: opening a pipe must not wait for a reader.
  owned.fd_ = FileDescriptor(::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!owned.fd_) return system_error(path, "open it");
  PMSTORE_TRY(owned.facts_, probe_medium(owned.fd_.get(), path));
  if (flock(owned.fd_.get(), LOCK_EX | LOCK_NB) != 0) {
    return errno == EWOULDBLOCK ? busy(path) : system_error(path, "lock it");
  }
  if (owned.facts_.bytes == 0) {
    return make_error(ErrorCode::kBadPool,
                      fmt::format("{}: not a pool: it is empty: give the path of a pool", path));
  }
  void* const mapped = map_shared(owned.fd_.get(), owned.facts_);
  if (mapped == MAP_FAILED) return system_error(path, "map it");
  owned.mapping_ = {static_cast<std::byte*>(mapped), owned.facts_.bytes};
  owned.mapped_ = MappedPool(owned.mapping_, path);
  return owned;
}

void OwnedPoolFile::forget_pages(uint64_t begin, uint64_t end) const {
  const uint64_t first = round_up(begin, facts_.map_alignment);
  const uint64_t behind =
      round_down(std::min<uint64_t>(end, mapping_.size()), facts_.map_alignment);
  // Of a shared mapping this drops page table entries. Where the kernel refuses, the pages stay.
  if (first < behind) madvise(mapping_.data() + first, behind - first, MADV_DONTNEED);
}

OwnedPoolFile::OwnedPoolFile(OwnedPoolFile&& other) noexcept { *this = std::move(other); }

OwnedPoolFile& OwnedPoolFile::operator=(OwnedPoolFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(facts_, other.facts_);
  std::swap(mapping_, other.mapping_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

OwnedPoolFile::~OwnedPoolFile() {
  if (!mapping_.empty()) munmap(mapping_.data(), mapping_.size());
}

}  // namespace pmstore::persist::internal
