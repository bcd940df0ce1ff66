// Making, opening and inspecting pools: the order of the checks is what keeps refused files
// untouched.
#include "persist/pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "persist/internal/pmemobj_pool.h"
#include "persist/internal/rehearsal.h"
#include "persist/padding.h"

namespace pmstore::persist {
namespace {

using internal::FileDescriptor;
using internal::Medium;
using internal::MediumFacts;
using internal::PmemobjPool;
using internal::PoolFile;
using internal::system_error;

constexpr long kTmpfsMagic = 0x01021994;  // linux/magic.h

Error already_exists(const std::string& path, const char* what) {
  return make_error(ErrorCode::kAlreadyExists, fmt::format("{}: {}", path, what));
}

Status check_size(const std::string& path, uint64_t bytes) {
  if (bytes >= kMinPoolBytes) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("{}: a pool of {} bytes is too small: use at least {}", path, bytes,
                                kMinPoolBytes));
}

// Removes a file that did not become a pool.
class Removal {
 public:
  explicit Removal(std::string path) : path_(std::move(path)) {}
  ~Removal() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  Removal(const Removal&) = delete;
  Removal& operator=(const Removal&) = delete;
  void cancel() { path_.clear(); }

 private:
  std::string path_;
};

Status sync_directory_of(const std::string& path) {
  auto parent = std::filesystem::path(path).parent_path();
  if (parent.empty()) parent = ".";
  const FileDescriptor directory(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory || fsync(directory.get()) != 0) return system_error(path, "make it durable");
  return {};
}

Result<std::unique_ptr<Pool>> create_in_file(const std::string& path, uint64_t bytes,
                                             const PoolOpenOptions& options) {
  PMSTORE_TRY_STATUS(check_size(path, bytes));
  const FileDescriptor fd(::open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  if (!fd && errno == EEXIST) {
    return already_exists(path, "it exists: remove it, or choose another path");
  }
  if (!fd) return system_error(path, "create it");
  Removal removal(path);
  if (ftruncate(fd.get(), static_cast<off_t>(round_up(bytes, 4096))) != 0) {
    return system_error(path, "give it its size");
  }
  struct statfs system {};
  if (fstatfs(fd.get(), &system) != 0) return system_error(path, "look at its file system");
  // Memory of a tmpfs is precious: take it when it is used, as long as there is enough now.
  const bool sparse = system.f_type == kTmpfsMagic;
  const uint64_t room = uint64_t{system.f_bavail} * static_cast<uint64_t>(system.f_bsize);
  if (room < bytes) {
    return make_error(
        ErrorCode::kFull,
        fmt::format("{}: {} bytes do not fit, its file system has {}: free some, or make "
                    "a smaller pool",
                    path, bytes, room));
  }
  PMSTORE_TRY(auto handle, internal::create_pmemobj(path, !sparse));
  PMSTORE_TRY(auto pool, PmemobjPool::make(path, std::move(handle), true, options));
  if (fsync(fd.get()) != 0) return system_error(path, "make it durable");
  PMSTORE_TRY_STATUS(sync_directory_of(path));
  removal.cancel();
  return pool;
}

// libpmemobj makes a pool only where the header is zero.
Status clear_device(const std::string& path, bool force) {
  const FileDescriptor fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) return system_error(path, "open it");
  PMSTORE_TRY(const MediumFacts facts, internal::probe_medium(fd.get(), path));
  PMSTORE_TRY_STATUS(check_size(path, facts.bytes));
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return errno == EWOULDBLOCK ? internal::busy(path) : system_error(path, "lock it");
  }
  const size_t mapped = round_up(internal::kPmemobjHeaderBytes, facts.map_alignment);
  void* start = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (start == MAP_FAILED) return system_error(path, "map it");
  const bool holds_pool =
      std::memcmp(start, internal::kPmemobjSignature, sizeof internal::kPmemobjSignature) == 0;
  Status cleared;
  if (holds_pool && !force) {
    cleared = already_exists(path, "it holds a pool: force it if that one may go");
  } else {
    // Whatever the domain is, flushing is right.
    Memory header({static_cast<std::byte*>(start), internal::kPmemobjHeaderBytes},
                  MemoryOptions{.domain = Domain::kMemoryController, .non_temporal_bytes = 256});
    header.zero(start, internal::kPmemobjHeaderBytes);
    header.flush(start, internal::kPmemobjHeaderBytes);
    if (auto durable = header.drain(); !durable) cleared = durable.error();
  }
  munmap(start, mapped);
  return cleared;
}

bool is_device(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_character_file(path, ignored);
}

}  // namespace

Result<std::unique_ptr<Pool>> Pool::create(const std::string& path, uint64_t bytes,
                                           const PoolOpenOptions& options, bool force) {
  if (!is_device(path)) return create_in_file(path, bytes, options);
  PMSTORE_TRY_STATUS(clear_device(path, force));
  PMSTORE_TRY(auto handle, internal::create_pmemobj(path, false));
  return PmemobjPool::make(path, std::move(handle), true, options);
}

Result<std::unique_ptr<Pool>> Pool::open(const std::string& path, const PoolOpenOptions& options) {
  {
    PMSTORE_TRY(PoolFile file, PoolFile::open(path));
    PMSTORE_TRY(const internal::Examined examined, internal::examine(file, path));
    // libpmemobj may die of damage, and repairs what it then refuses: let it try a copy first.
    PMSTORE_TRY_STATUS(internal::rehearse_open(file, examined, path));
  }
  PMSTORE_TRY(auto handle, internal::open_pmemobj(path));
  return PmemobjPool::make(path, std::move(handle), false, options);
}

Result<PoolInfo> Pool::inspect(const std::string& path) {
  PMSTORE_TRY(const PoolFile file, PoolFile::open(path));
  PMSTORE_TRY(internal::Examined examined, internal::examine(file, path));
  PMSTORE_TRY(DomainReport report, detect_domain(path));
  PoolInfo info{};
  info.path = path;
  info.medium = internal::medium_name(examined.medium.medium);
  info.format_version = kPoolFormatVersion;
  info.bytes = examined.facts.pool_bytes;
  info.free_bytes = examined.largest_free_extent;
  info.detected_domain = info.domain = report.domain;
  info.domain_source = std::move(report.source);
  info.extents = std::move(examined.catalog.extents);
  return info;
}

}  // namespace pmstore::persist
