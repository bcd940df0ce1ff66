// The parent forks and listens to a pipe; the child copies, opens, and says how it went. What has
// not been said when the pipe ends was prevented by the child's death.
#include "persist/internal/rehearsal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "persist/internal/pmemobj_format.h"
#include "persist/internal/pmemobj_library.h"
#include "persist/internal/pool_bytes.h"
#include "persist/padding.h"

namespace pmstore::persist::internal {
namespace {

// Damage can also make it endless. Opening takes some 10 ms of processor time; the other limit is
// for waiting, and for a machine that is very busy.
constexpr unsigned kProcessorSeconds = 3;
constexpr unsigned kRehearsalSeconds = 60;
constexpr size_t kPageBytes = 4096;
constexpr char kFine = 0;  // what the child says first; else 1 + its error's code

constexpr int kDeadly[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL,
                           SIGTRAP, SIGSYS, SIGALRM, SIGXCPU};

// ---- in the child ----

// It must leave nothing behind: no words on standard error, no core file, no reaction to signals
// that are meant for the parent (they are blocked since before the fork).
void become_quiet() {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  const rlimit processor{kProcessorSeconds, kProcessorSeconds + 1};
  setrlimit(RLIMIT_CPU, &processor);
  const FileDescriptor null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (null) dup2(null.get(), STDERR_FILENO);
  sigset_t deadly;
  sigemptyset(&deadly);
  for (int number : kDeadly) {
    signal(number, SIG_DFL);
    sigaddset(&deadly, number);
  }
  sigprocmask(SIG_UNBLOCK, &deadly, nullptr);
  alarm(kRehearsalSeconds);
}

bool is_zero(const std::byte* page) {
  return page[0] == std::byte{0} && std::memcmp(page, page + 1, kPageBytes - 1) == 0;
}

// Copies pages that are not zero. Holes of a file stay holes: read() does not fill them.
bool copy_range(const PoolFile& file, ByteRange range, int to) {
  static std::byte buffer[64 * kPageBytes];
  const uint64_t end = std::min<uint64_t>(file.bytes().size(), round_up(range.end, kPageBytes));
  for (uint64_t at = round_down(range.begin, kPageBytes); at < end;) {
    const size_t wanted = std::min<uint64_t>(sizeof buffer, end - at);
    const std::byte* from = buffer;
    if (file.facts().medium == Medium::kDeviceDax) {
      from = file.bytes().data() + at;
    } else if (pread(file.descriptor(), buffer, wanted, static_cast<off_t>(at)) !=
               static_cast<ssize_t>(wanted)) {
      return false;
    }
    size_t page = 0;
    while (page < wanted) {
      size_t end_of_data = page;
      while (end_of_data < wanted && !is_zero(from + end_of_data)) end_of_data += kPageBytes;
      const size_t data = end_of_data - page;
      if (data > 0 && pwrite(to, from + page, data, static_cast<off_t>(at + page)) !=
                          static_cast<ssize_t>(data)) {
        return false;
      }
      page = end_of_data + kPageBytes;  // past the page of zeroes
    }
    at += wanted;
  }
  return true;
}

Result<FileDescriptor> copy_metadata(const PoolFile& file, const Examined& examined,
                                     const std::string& path) {
  FileDescriptor copy(memfd_create("pmstore-rehearsal", MFD_CLOEXEC));
  if (!copy || ftruncate(copy.get(), static_cast<off_t>(file.bytes().size())) != 0) {
    return system_error(path, "make a copy of its metadata in memory");
  }
  for (const ByteRange range :
       metadata_ranges(file.bytes(), examined.facts, examined.catalog.extents)) {
    if (!copy_range(file, range, copy.get())) {
      return system_error(path, "copy its metadata to memory");
    }
  }
  // The copy does not lie on the pool's device, so its record of unsafe shutdowns is none.
  std::vector<std::byte> header(kPmemobjHeaderBytes);
  std::memcpy(header.data(), file.bytes().data(), header.size());
  clear_shutdown_state(header);
  if (pwrite(copy.get(), header.data(), header.size(), 0) != static_cast<ssize_t>(header.size())) {
    return system_error(path, "copy its header to memory");
  }
  return copy;
}

Status live_a_little(PMEMobjpool* pool, const Examined& examined, const std::string& path) {
  const std::span<std::byte> copy = mapping_of(pool, examined.facts.pool_bytes);
  const PMEMoid root = pmemobj_root(pool, kPmemobjRootBytes);
  if (root.off != examined.facts.root_offset) return bad_pool(path, "damaged heap (root object)");
  // libpmemobj has repaired what a crash had left; now the chunks have to be what we think.
  PMSTORE_TRY_STATUS(check_allocated(copy, examined.facts, examined.catalog.extents, path));
  rejoin_free_space(pool);
  // Allocation as in PmemobjPool::allocate_extent().
  pobj_action actions[2];
  const PMEMoid object = pmemobj_reserve(pool, &actions[0], kSmallestObject, 1);
  if (!OID_IS_NULL(object)) {
    if (examined.catalog.covers(object.off, kSmallestObject)) {
      return bad_pool(path, "damaged heap (an extent counts as free space)");
    }
    pmemobj_set_value(pool, &actions[1], reinterpret_cast<uint64_t*>(copy.data() + object.off), 1);
    if (pmemobj_publish(pool, actions, 2) != 0) return system_error(path, "allocate in a copy");
  }
  PMSTORE_TRY_STATUS(check_pmemobj(copy, path));
  return check_allocated(copy, examined.facts, examined.catalog.extents, path);
}

// The pool is left open: the process is about to end.
Status open_copy(const PoolFile& file, const Examined& examined, const std::string& path,
                 bool map_privately) {
  if (map_privately) {
    PMSTORE_TRY(PoolHandle pool, open_pmemobj_privately(path));
    if (pool) return live_a_little(pool.release(), examined, path);
  }
  PMSTORE_TRY(const FileDescriptor copy, copy_metadata(file, examined, path));
  const std::string copy_path = fmt::format("/proc/self/fd/{}", copy.get());
  PMSTORE_TRY(PoolHandle pool, open_pmemobj_copy(copy_path, path));
  return live_a_little(pool.release(), examined, path);
}

// One byte for the code, then the message; nothing is left to do after it, closing included.
// Nor may anything be thrown out of here into the parent's code.
[[noreturn]] void run_child(int pipe, const PoolFile& file, const Examined& examined,
                            const std::string& path, bool map_privately) noexcept {
  become_quiet();
  const Status status = open_copy(file, examined, path, map_privately);
  std::string said(1, kFine);
  if (!status) {
    said[0] = static_cast<char>(kFine + 1 + static_cast<int>(status.code()));
    said += status.error().message.substr(0, PIPE_BUF - 1);
  }
  _exit(write(pipe, said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
}

// ---- in the parent ----

std::string read_all(int fd) {
  std::string said;
  char buffer[512];
  for (;;) {
    const ssize_t count = read(fd, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return said;
    said.append(buffer, static_cast<size_t>(count));
  }
}

Error death(int status, const std::string& path) {
  const int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (number == SIGALRM || number == SIGXCPU)
    return bad_pool(path, "damaged (opening a copy does not end)");
  if (std::find(std::begin(kDeadly), std::end(kDeadly), number) == std::end(kDeadly)) {
    return make_error(ErrorCode::kIo,
                      fmt::format("{}: the process that tried to open a copy was ended from "
                                  "outside ({}): try again",
                                  path, number == 0 ? "exit" : strsignal(number)));
  }
  return bad_pool(path, fmt::format("damaged (opening a copy ended with '{}')", strsignal(number)));
}

class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

Status rehearse(const PoolFile& file, const Examined& examined, const std::string& path,
                bool map_privately) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return system_error(path, "make a pipe");
  const FileDescriptor from_child(ends[0]);
  FileDescriptor to_parent(ends[1]);
  const auto alone = lock_pmemobj();
  std::optional<SignalsBlocked> blocked(std::in_place);
  const pid_t child = fork();
  if (child < 0) return system_error(path, "start a process that opens a copy");
  if (child == 0) run_child(to_parent.get(), file, examined, path, map_privately);
  to_parent.reset();
  blocked.reset();
  const std::string said = read_all(from_child.get());
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno == EINTR) continue;
    status = SIGKILL;  // a program that ignores SIGCHLD does not learn how a child ended
    break;
  }
  if (said.empty()) return death(status, path);
  if (said[0] == kFine) return {};
  return make_error(static_cast<ErrorCode>(said[0] - kFine - 1), said.substr(1));
}

}  // namespace

Status rehearse_open(PoolFile& file, const Examined& examined, const std::string& path) {
  const bool is_device = file.facts().medium == Medium::kDeviceDax;
  if (!is_device) file.unlock();  // libpmemobj locks it for the child
  return rehearse(file, examined, path, !is_device);
}

Status rehearse_locked(const PoolFile& file, const Examined& examined, const std::string& path) {
  return rehearse(file, examined, path, false);
}

}  // namespace pmstore::persist::internal
