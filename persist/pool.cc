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

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/size_text.h"
#include "persist/internal/new_file.h"
#include "persist/internal/pmemobj_pool.h"
#include "persist/internal/pool_view.h"
#include "persist/internal/rehearsal.h"
#include "persist/padding.h"

namespace pmstore::persist {
namespace {

using internal::FileDescriptor;
using internal::Medium;
using internal::MediumFacts;
using internal::NewFile;
using internal::PmemobjPool;
using internal::PoolFile;
using internal::PoolView;
using internal::system_error;

Error already_exists(const std::string& path, const char* what) {
  return make_error(ErrorCode::kAlreadyExists, fmt::format("{}: {}", path, what));
}

Status check_size(const std::string& path, uint64_t bytes) {
  if (bytes >= kMinPoolBytes) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("{}: a pool of {} is too small: use at least {}", path,
                                base::size_text(bytes), base::size_text(kMinPoolBytes)));
}

Status make_sized(const NewFile& file, const std::string& path, uint64_t bytes) {
  if (ftruncate(file.descriptor(), static_cast<off_t>(round_up(bytes, 4096))) != 0) {
    return system_error(path, "give it its size");
  }
  return {};
}

using Fill = std::function<Status(Pool&)>;

// A DAX device that is not there, or not by this name, would become a file of the system's memory.
Status check_place(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path where = fs::weakly_canonical(fs::absolute(path, error), error);
  if (error || fs::exists(where, error)) return {};  // what it is, Pool::create() judges
  const std::string text = where.string();
  if (!text.starts_with("/dev/") || text.starts_with("/dev/shm/")) return {};
  return make_error(
      ErrorCode::kNotFound,
      fmt::format(
          "{}: there is no such device, and a file below /dev is no persistent memory: look "
          "for the DAX device's name (daxctl list), or name a file elsewhere",
          path));
}

Status check_room(const NewFile& file, const std::string& path, uint64_t bytes) {
  struct statfs system {};
  if (fstatfs(file.descriptor(), &system) != 0)
    return system_error(path, "look at its file system");
  const uint64_t room = uint64_t{system.f_bavail} * static_cast<uint64_t>(system.f_bsize);
  if (room >= bytes) return {};
  return make_error(
      ErrorCode::kFull,
      fmt::format("{}: a pool of {} does not fit, its file system has {}: free some, or make "
                  "a smaller pool",
                  path, base::size_text(bytes), base::size_text(room)));
}

Result<std::unique_ptr<Pool>> create_in_file(const std::string& path, uint64_t bytes,
                                             const PoolOpenOptions& options, const Fill& fill) {
  PMSTORE_TRY_STATUS(check_place(path));
  PMSTORE_TRY_STATUS(check_size(path, bytes));
  PMSTORE_TRY(NewFile file, NewFile::make(path));
  PMSTORE_TRY_STATUS(make_sized(file, path, bytes));
  PMSTORE_TRY_STATUS(check_room(file, path, bytes));
  PMSTORE_TRY(
      const auto open,
      internal::create_pmemobj(file.name(), path, internal::kPmemobjRootBytes, !options.sparse));
  PMSTORE_TRY(auto pool, PmemobjPool::make(path, file.name(), open, true, options));
  if (fill) {
    PMSTORE_TRY_STATUS(fill(*pool));
  }
  PMSTORE_TRY_STATUS(file.publish());
  return pool;
}

// The new file has blocks for everything, and is written where the bytes are not zero.
Status write_copy(const NewFile& file, const std::string& path, std::span<const std::byte> bytes) {
  constexpr size_t kPieceBytes = 1 << 20;
  const int fd = file.descriptor();
  if (const int error = posix_fallocate(fd, 0, static_cast<off_t>(bytes.size())); error != 0) {
    errno = error;
    return system_error(path, "give it its size");
  }
  for (size_t at = 0; at < bytes.size(); at += kPieceBytes) {
    auto piece = bytes.subspan(at, std::min(kPieceBytes, bytes.size() - at));
    if (std::all_of(piece.begin(), piece.end(), [](std::byte b) { return b == std::byte{0}; })) {
      continue;
    }
    for (auto place = static_cast<off_t>(at); !piece.empty();) {
      const ssize_t written = pwrite(fd, piece.data(), piece.size(), place);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return system_error(path, "write it");
      place += written;
      piece = piece.subspan(static_cast<size_t>(written));
    }
  }
  return {};
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

std::string_view extent_name(ExtentKind kind) {
  switch (kind) {
    case ExtentKind::kRecords: return "records";
    case ExtentKind::kRings: return "rings";
    case ExtentKind::kLog: return "log";
    case ExtentKind::kFileData: return "file data";
    case ExtentKind::kShardLog: return "shard log";
    case ExtentKind::kCheckpoint: return "checkpoint";
    case ExtentKind::kUnused: break;
  }
  return "unknown";
}

uint64_t Pool::room_for(ExtentKind kind, uint64_t kept_for_rings) {
  if (!space_rules_.has_reserves()) {
    const uint64_t largest = largest_free_extent();
    return largest - std::min(largest, kept_for_rings);
  }
  const std::vector<uint64_t> free = free_extents();
  return space_rules_.room(kind, {info().extents, free, least_extent()}, kept_for_rings);
}

Result<std::unique_ptr<Pool>> Pool::create(const std::string& path, uint64_t bytes,
                                           const PoolOpenOptions& options, bool force,
                                           const Fill& fill) {
  if (!is_device(path)) return create_in_file(path, bytes, options, fill);
  PMSTORE_TRY_STATUS(clear_device(path, force));
  PMSTORE_TRY(const auto open,
              internal::create_pmemobj(path, path, internal::kPmemobjRootBytes, false));
  PMSTORE_TRY(auto pool, PmemobjPool::make(path, path, open, true, options));
  if (fill) {
    PMSTORE_TRY_STATUS(fill(*pool));
  }
  return pool;
}

Status Pool::copy(const std::string& from, const std::string& to,
                  const std::function<Status(Pool&)>& change) {
  if (is_device(to)) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("{}: a copy of a pool can only be a file: name one", to));
  }
  PMSTORE_TRY(const PoolFile source, PoolFile::open(from));
  PMSTORE_TRY(const internal::Examined examined, internal::examine(source, from));
  PMSTORE_TRY_STATUS(internal::rehearse_locked(source, examined, from));
  PMSTORE_TRY_STATUS(check_place(to));
  PMSTORE_TRY(NewFile file, NewFile::make(to));
  PMSTORE_TRY_STATUS(check_room(file, to, source.bytes().size()));
  PMSTORE_TRY_STATUS(write_copy(file, to, source.bytes()));
  PMSTORE_TRY(const auto open, internal::recover_pmemobj(file.name(), to, examined.facts));
  PMSTORE_TRY(auto pool, PmemobjPool::make(to, file.name(), open, false, {}));
  PMSTORE_TRY_STATUS(change(*pool));
  return file.publish();
}

Result<std::unique_ptr<Pool>> Pool::open(const std::string& path, const PoolOpenOptions& options) {
  internal::ShutdownState open{};
  internal::PmemobjFacts facts{};
  bool repair = false;
  {
    PMSTORE_TRY(PoolFile file, PoolFile::open(path));
    PMSTORE_TRY(const internal::Examined examined, internal::examine(file, path));
    if (options.accept) {
      PMSTORE_TRY(const auto view, PoolView::of(file, examined, path));
      PMSTORE_TRY_STATUS(options.accept(*view));
    }
    facts = examined.facts;
    repair = internal::needs_libpmemobj(file, examined);
    if (repair) {
      // libpmemobj may die of damage, and repairs what it then refuses: let it try a copy first.
      PMSTORE_TRY_STATUS(internal::rehearse_open(file, examined, path));
    } else {
      PMSTORE_TRY_STATUS(internal::check_heap(file, examined, path));
    }
  }
  if (repair) {
    PMSTORE_TRY(open, internal::recover_pmemobj(path, path, facts));
  }
  return PmemobjPool::make(path, path, open, false, options);
}

Result<std::unique_ptr<Pool>> Pool::view(const std::string& path) {
  PMSTORE_TRY(PoolFile file, PoolFile::open(path));
  PMSTORE_TRY(internal::Examined examined, internal::examine(file, path));
  if (internal::needs_libpmemobj(file, examined)) {
    PMSTORE_TRY_STATUS(internal::rehearse_locked(file, examined, path));
  } else {
    PMSTORE_TRY_STATUS(internal::check_heap(file, examined, path));
  }
  PMSTORE_TRY(auto view, PoolView::of(file, std::move(examined), path));
  view->keep(std::move(file));
  return view;
}

Result<PoolInfo> Pool::inspect(const std::string& path) {
  PMSTORE_TRY(const PoolFile file, PoolFile::open(path));
  PMSTORE_TRY(const internal::Examined examined, internal::examine(file, path));
  return internal::info_of(examined, path);
}

}  // namespace pmstore::persist
