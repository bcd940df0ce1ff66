// The side of a copy that is this machine's file system. Its calls block: they are of files that
// the kernel has in memory, or brings soon.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "base/file_descriptor.h"
#include "tools/cli/file_time.h"
#include "tools/cli/fs_copy.h"

namespace pmstore::tools {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

PosixError last_error() { return {errno}; }

fs::PosixStatus status_of(int result) {
  if (result == 0) return {};
  return last_error();
}

timespec timespec_of(uint64_t time_ns) {
  return {static_cast<time_t>(time_ns / kSecond), static_cast<long>(time_ns % kSecond)};
}

fs::FileType type_of(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFDIR: return fs::FileType::kDirectory;
    case S_IFLNK: return fs::FileType::kSymlink;
    case S_IFIFO: return fs::FileType::kFifo;
    case S_IFSOCK: return fs::FileType::kSocket;
    case S_IFCHR: return fs::FileType::kCharDevice;
    case S_IFBLK: return fs::FileType::kBlockDevice;
    default: return fs::FileType::kRegular;
  }
}

class LocalFile final : public CopyFile {
 public:
  explicit LocalFile(base::FileDescriptor file) : file_(std::move(file)) {}

  base::Task<fs::PosixResult<uint64_t>> read(std::span<std::byte> into, uint64_t offset) override {
    uint64_t done = 0;
    while (done < into.size()) {
      const ssize_t got = ::pread(file_.get(), into.data() + done, into.size() - done,
                                  static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) co_return last_error();
      if (got == 0) break;
      done += static_cast<uint64_t>(got);
    }
    co_return done;
  }
  base::Task<fs::PosixStatus> write(std::span<const std::byte> from, uint64_t offset) override {
    uint64_t done = 0;
    while (done < from.size()) {
      const ssize_t put = ::pwrite(file_.get(), from.data() + done, from.size() - done,
                                   static_cast<off_t>(offset + done));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) co_return last_error();
      done += static_cast<uint64_t>(put);
    }
    co_return fs::PosixStatus{};
  }
  // A file system may keep an error until here.
  base::Task<fs::PosixStatus> close() override { co_return status_of(::close(file_.release())); }

 private:
  base::FileDescriptor file_;
};

class LocalSide final : public CopySide {
 public:
  base::Task<fs::PosixResult<FileFacts>> facts(const std::string& path, bool follow) override {
    struct stat is {};
    const int result = follow ? ::stat(path.c_str(), &is) : ::lstat(path.c_str(), &is);
    if (result != 0) co_return last_error();
    co_return FileFacts{.type = type_of(is.st_mode),
                        .mode = static_cast<uint16_t>(is.st_mode & 07777),
                        .uid = is.st_uid,
                        .gid = is.st_gid,
                        .size = static_cast<uint64_t>(is.st_size),
                        .atime_ns = kept_time_ns(is.st_atim),
                        .mtime_ns = kept_time_ns(is.st_mtim),
                        .device = is.st_dev,
                        .inode = is.st_ino};
  }
  base::Task<fs::PosixResult<std::vector<std::string>>> names(const std::string& path) override {
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), ::closedir);
    if (!directory) co_return last_error();
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* const entry = ::readdir(directory.get())) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    if (errno != 0) co_return last_error();
    co_return names;
  }
  base::Task<fs::PosixResult<std::string>> read_link(const std::string& path) override {
    std::string target(PATH_MAX, '\0');
    const ssize_t got = ::readlink(path.c_str(), target.data(), target.size());
    if (got < 0) co_return last_error();
    target.resize(static_cast<size_t>(got));
    co_return target;
  }
  base::Task<fs::PosixResult<std::unique_ptr<CopyFile>>> open(const std::string& path) override {
    base::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) co_return last_error();
    co_return std::make_unique<LocalFile>(std::move(file));
  }
  base::Task<fs::PosixResult<std::unique_ptr<CopyFile>>> create(const std::string& path,
                                                                uint16_t mode,
                                                                uint64_t size) override {
    base::FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode));
    if (!file) co_return last_error();
    struct stat is {};
    if (::fstat(file.get(), &is) != 0) co_return last_error();
    if (S_ISREG(is.st_mode) && size > 0 && ::ftruncate(file.get(), static_cast<off_t>(size)) != 0) {
      co_return last_error();
    }
    co_return std::make_unique<LocalFile>(std::move(file));
  }
  base::Task<fs::PosixStatus> make_directory(const std::string& path, uint16_t mode) override {
    co_return status_of(::mkdir(path.c_str(), mode));
  }
  base::Task<fs::PosixStatus> make_symlink(const std::string& target,
                                           const std::string& path) override {
    co_return status_of(::symlink(target.c_str(), path.c_str()));
  }
  base::Task<fs::PosixStatus> remove(const std::string& path) override {
    struct stat is {};
    if (::lstat(path.c_str(), &is) != 0) co_return last_error();
    if (!S_ISREG(is.st_mode) && !S_ISLNK(is.st_mode)) co_return fs::PosixStatus{};
    co_return status_of(::unlink(path.c_str()));
  }
  base::Task<fs::PosixStatus> set_facts(const std::string& path, const FileFacts& facts) override {
    // The owner first: a change of it clears set-id bits. Only root gives files away.
    if (::geteuid() == 0 && ::lchown(path.c_str(), facts.uid, facts.gid) != 0) {
      co_return last_error();
    }
    if (facts.type != fs::FileType::kSymlink && ::chmod(path.c_str(), facts.mode) != 0) {
      co_return last_error();
    }
    const timespec times[] = {timespec_of(facts.atime_ns), timespec_of(facts.mtime_ns)};
    co_return status_of(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW));
  }
};

}  // namespace

std::unique_ptr<CopySide> local_side() { return std::make_unique<LocalSide>(); }

}  // namespace pmstore::tools
