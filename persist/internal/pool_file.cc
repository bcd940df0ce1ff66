#include "persist/internal/pool_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "persist/padding.h"

namespace pmstore::persist::internal {
namespace {

// /sys/dev/char/MAJOR:MINOR/NAME as a number; 0 when it is not there.
uint64_t read_device_number(const struct stat& status, const char* name) {
  std::ifstream file(
      fmt::format("/sys/dev/char/{}:{}/{}", major(status.st_rdev), minor(status.st_rdev), name));
  uint64_t value = 0;
  file >> value;
  return file ? value : 0;
}

bool is_fsdax(int fd) {
  struct statx status {};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &status) != 0) return false;
  return (status.stx_attributes_mask & STATX_ATTR_DAX) != 0 &&
         (status.stx_attributes & STATX_ATTR_DAX) != 0;
}

}  // namespace

std::string_view medium_name(Medium medium) {
  switch (medium) {
    case Medium::kDeviceDax: return "devdax";
    case Medium::kFsDax: return "fsdax";
    case Medium::kFile: return "file";
  }
  return "?";
}

bool is_in_memory(int fd) {
  struct statfs system {};
  return fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC;
}

std::optional<uint64_t> next_data_in(int fd, Medium medium, uint64_t offset) {
  if (medium == Medium::kDeviceDax) return offset;  // it has no holes
  const off_t data = lseek(fd, static_cast<off_t>(offset), SEEK_DATA);
  if (data >= 0) return static_cast<uint64_t>(data);
  if (errno == ENXIO) return std::nullopt;
  return offset;
}

Status read_bytes(int fd, const std::string& path, uint64_t offset, std::span<std::byte> to) {
  while (!to.empty()) {
    const ssize_t got = pread(fd, to.data(), to.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = EIO;  // whoever shortens a pool in use takes its bytes away
    if (got <= 0) return system_error(path, "read it");
    offset += static_cast<uint64_t>(got);
    to = to.subspan(static_cast<size_t>(got));
  }
  return {};
}

Error busy(std::string_view name) {
  return make_error(
      ErrorCode::kBusy,
      fmt::format("{}: in use by another process: stop it, or connect to its server", name));
}

Error system_error(std::string_view name, std::string_view what) {
  const int code = errno;
  const bool creates = what.starts_with("create");
  const char* advice = code == ENOENT && creates ? "make its folder before, or check the path"
                       : code == ENOENT          ? "check the path, or make a pool there"
                       : code == ENOTDIR         ? "check the path"
                       : code == EACCES || code == EPERM ? "get permission, or use another user"
                                                         : "see the system's log";
  return make_error(ErrorCode::kIo,
                    fmt::format("{}: cannot {}: {}: {}", name, what, std::strerror(code), advice));
}

Result<MediumFacts> probe_medium(int fd, std::string_view name) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return system_error(name, "look at it");
  if (S_ISREG(status.st_mode)) {
    return MediumFacts{is_fsdax(fd) ? Medium::kFsDax : Medium::kFile,
                       static_cast<uint64_t>(status.st_size), 4096};
  }
  if (S_ISCHR(status.st_mode)) {
    const uint64_t bytes = read_device_number(status, "size");
    uint64_t alignment = read_device_number(status, "align");
    // Older kernels do not tell; 2 MiB is the default of device DAX (Documentation/nvdimm).
    if (alignment == 0) alignment = 2u << 20;
    if (bytes > 0) {
      return MediumFacts{Medium::kDeviceDax, round_down(bytes, alignment), alignment};
    }
  }
  return make_error(ErrorCode::kBadPool,
                    fmt::format("{}: not a pool: neither a regular file nor a DAX device: give the "
                                "path of a pool",
                                name));
}

Result<PoolFile> PoolFile::open(const std::string& path) {
  PoolFile file;
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  file.fd_ = FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.fd_) return system_error(path, "open it");
  PMSTORE_TRY(file.facts_, probe_medium(file.fd_.get(), path));
  if (flock(file.fd_.get(), LOCK_SH | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return busy(path);
    return system_error(path, "lock it");
  }
  if (file.facts_.bytes == 0) {
    return make_error(ErrorCode::kBadPool,
                      fmt::format("{}: not a pool: it is empty: give the path of a pool", path));
  }
  void* mapped = mmap(nullptr, file.facts_.bytes, PROT_READ, MAP_SHARED, file.fd_.get(), 0);
  if (mapped == MAP_FAILED) return system_error(path, "map it");
  file.mapping_ = {static_cast<const std::byte*>(mapped), file.facts_.bytes};
  file.mapped_ = MappedPool(file.mapping_, path);
  return file;
}

void PoolFile::unlock() { flock(fd_.get(), LOCK_UN); }

PoolFile::PoolFile(PoolFile&& other) noexcept
    : fd_(std::move(other.fd_)),
      facts_(other.facts_),
      mapping_(std::exchange(other.mapping_, {})),
      mapped_(std::move(other.mapped_)) {}

PoolFile::~PoolFile() {
  if (!mapping_.empty()) munmap(const_cast<std::byte*>(mapping_.data()), mapping_.size());
}

}  // namespace pmstore::persist::internal
