#include "persist/internal/pmemobj_library.h"

#include <fmt/format.h>
#include <malloc.h>

#include <cerrno>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "persist/internal/pool_file.h"
#include "persist/pool_layout.h"

namespace pmstore::persist::internal {
namespace {

std::mutex& library_mutex() {
  static std::mutex mutex;
  return mutex;
}

void set(const char* name, bool on) {
  int value = on ? 1 : 0;
  PMSTORE_CHECK(pmemobj_ctl_set(nullptr, name, &value) == 0, "libpmemobj lost one of its settings");
}

// Puts a setting back when the call that needed it is over.
class Setting {
 public:
  Setting(const char* name, bool on, bool normally) : name_(name), normally_(normally) {
    set(name, on);
  }
  ~Setting() { set(name_, normally_); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
  bool normally_;
};

// libpmemobj's words, about the path that the user knows.
std::string complaint(const std::string& opened, const std::string& path) {
  std::string text = pmemobj_errormsg();
  for (size_t at; opened != path && (at = text.find(opened)) != std::string::npos;) {
    text.replace(at, opened.size(), "it");
  }
  return text;
}

Error translate(const std::string& opened, const std::string& path, const char* what) {
  switch (errno) {
    case EWOULDBLOCK:
    case EBUSY: return busy(path);
    case EINVAL:
      return make_error(
          ErrorCode::kBadPool,
          fmt::format("{}: damaged (libpmemobj: {}): restore the file from a copy, or "
                      "make a new pool",
                      path, complaint(opened, path)));
    case ENOSPC:
      return make_error(
          ErrorCode::kFull,
          fmt::format("{}: no room in the file system: free some, or make a smaller pool", path));
    default: return system_error(path, what);
  }
}

// On damage libpmemobj also ends with errors that are no errno: what is not known to be about the
// system is about the copy.
Error refused_copy(const std::string& copy, const std::string& path) {
  switch (errno) {
    case EWOULDBLOCK:
    case EBUSY:
    case EACCES:
    case EPERM:
    case EROFS:
    case ENOENT:
    case ENOMEM:
    case EMFILE:
    case ENFILE: break;
    default: errno = EINVAL;
  }
  return translate(copy, path, "open it");
}

// libpmemobj has applied or dismissed every log by now. It leaves the checksum of a log that was
// torn; that word would send each later opening to libpmemobj.
void clear_judged_logs(PMEMobjpool* pool, const PmemobjFacts& facts) {
  const std::span<std::byte> bytes(reinterpret_cast<std::byte*>(pool), facts.pool_bytes);
  for (const uint64_t word : words_of_busy_lanes(bytes, facts)) {
    pmemobj_memset_persist(pool, bytes.data() + word, 0, sizeof(uint64_t));
  }
}

// libpmemobj had 14 MB for its lanes in thousands of pieces; free() alone keeps most of it.
ShutdownState close_it(PoolHandle pool) {
  const ShutdownState open =
      shutdown_state_in({reinterpret_cast<const std::byte*>(pool.get()), kPmemobjHeaderBytes});
  pool.reset();
  malloc_trim(0);
  return open;
}

}  // namespace

Result<ShutdownState> create_pmemobj(const std::string& file, const std::string& path,
                                     uint64_t root_bytes, bool allocate_blocks) {
  std::lock_guard guard(library_mutex());
  Setting fallocate("fallocate.at_create", allocate_blocks, true);
  // Size 0 stands for the size of what is there.
  PoolHandle pool(pmemobj_create(file.c_str(), kPoolLayoutName, 0, 0));
  if (!pool) return translate(file, path, "make a pool there");
  if (OID_IS_NULL(pmemobj_root(pool.get(), root_bytes))) {
    return system_error(path, "make its root object");
  }
  return close_it(std::move(pool));
}

Result<ShutdownState> recover_pmemobj(const std::string& file, const std::string& path,
                                      const PmemobjFacts& facts) {
  std::lock_guard guard(library_mutex());
  PoolHandle pool(pmemobj_open(file.c_str(), kPoolLayoutName));
  if (!pool) return translate(file, path, "open it");
  clear_judged_logs(pool.get(), facts);
  return close_it(std::move(pool));
}

std::unique_lock<std::mutex> lock_pmemobj() { return std::unique_lock(library_mutex()); }

Result<PoolHandle> open_pmemobj_privately(const std::string& path) {
  set("copy_on_write.at_open", true);
  PoolHandle pool(pmemobj_open(path.c_str(), kPoolLayoutName));
  set("copy_on_write.at_open", false);
  if (!pool && errno != ENOMEM) return refused_copy(path, path);
  return pool;
}

Result<PoolHandle> open_pmemobj_copy(const std::string& copy, const std::string& path) {
  PoolHandle pool(pmemobj_open(copy.c_str(), kPoolLayoutName));
  if (!pool) return refused_copy(copy, path);
  return pool;
}

}  // namespace pmstore::persist::internal
