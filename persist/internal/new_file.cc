#include "persist/internal/new_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

namespace pmstore::persist::internal {
namespace {

constexpr mode_t kMode = 0600;

std::string folder_of(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

Error exists(const std::string& path) {
  return make_error(ErrorCode::kAlreadyExists,
                    fmt::format("{}: it exists: remove it, or choose another path", path));
}

// Gives a file a second name, which must be free, or where a file system cannot, another name.
int name_it(NewFile::Kind kind, const char* from, const char* to) {
  if (linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW) == 0) return 0;
  const bool no_links = errno == EPERM || errno == EOPNOTSUPP;  // FAT, some of FUSE
  if (!no_links || kind == NewFile::Kind::kUnnamed) return -1;
  return renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
}

}  // namespace

NewFile::NewFile(FileDescriptor fd, Kind kind, std::string name, std::string path)
    : fd_(std::move(fd)), kind_(kind), name_(std::move(name)), path_(std::move(path)) {}

NewFile::NewFile(NewFile&& other) noexcept
    : fd_(std::move(other.fd_)),
      kind_(other.kind_),
      name_(std::exchange(other.name_, {})),
      path_(std::move(other.path_)) {}

NewFile::~NewFile() {
  if (kind_ == Kind::kNamed && !name_.empty()) unlink(name_.c_str());
}

Result<NewFile> NewFile::make(const std::string& path, Kind first) {
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0) return exists(path);
  if (first == Kind::kUnnamed) {
    FileDescriptor fd(::open(folder_of(path).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kMode));
    if (fd) {
      std::string name = fmt::format("/proc/self/fd/{}", fd.get());
      // Without /proc it could never be named.
      if (access(name.c_str(), F_OK) == 0)
        return NewFile(std::move(fd), Kind::kUnnamed, std::move(name), path);
    }
    if (!fd && errno != EOPNOTSUPP && errno != EISDIR) return system_error(path, "create it");
  }
  std::string name = fmt::format("{}.creating-{}", path, getpid());
  FileDescriptor fd(::open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, kMode));
  if (!fd && errno == EEXIST) return exists(name);
  if (!fd) return system_error(path, "create it");
  return NewFile(std::move(fd), Kind::kNamed, std::move(name), path);
}

Status NewFile::publish() {
  if (fsync(fd_.get()) != 0) return system_error(path_, "make it durable");
  const FileDescriptor folder(::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return system_error(folder_of(path_), "read it, which making a name durable needs");
  // Unlike rename(), this replaces nothing.
  if (name_it(kind_, name_.c_str(), path_.c_str()) != 0) {
    return errno == EEXIST ? exists(path_) : system_error(path_, "give it its name");
  }
  if (kind_ == Kind::kNamed) unlink(name_.c_str());
  name_.clear();
  if (fsync(folder.get()) == 0) return {};
  Error error = system_error(path_, "make it durable");
  unlink(path_.c_str());
  return error;
}

}  // namespace pmstore::persist::internal
