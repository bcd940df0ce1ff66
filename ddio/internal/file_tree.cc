#include "ddio/internal/file_tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

namespace pmstore::ddio::internal {
namespace {

constexpr size_t kMostBytes = 1 << 20;

Error file_error(const std::string& path, int error) {
  return make_error(error == ENOENT || error == ENOTDIR ? ErrorCode::kNotFound : ErrorCode::kIo,
                    fmt::format("cannot read {}: {}{}", path, std::strerror(error),
                                error == EACCES || error == EPERM ? "; try it as root" : ""));
}

}  // namespace

Result<std::string> FileTree::read_text(const std::string& path) const {
  const int fd = ::open(outside(path).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return file_error(path, errno);
  std::string content;
  char piece[4096];
  ssize_t got;
  while ((got = ::read(fd, piece, sizeof(piece))) > 0 && content.size() < kMostBytes) {
    content.append(piece, static_cast<size_t>(got));
  }
  const int error = errno;
  ::close(fd);
  if (got < 0) return file_error(path, error);
  while (!content.empty() && content.back() == '\n') content.pop_back();
  return content;
}

Result<std::vector<std::string>> FileTree::list(const std::string& path) const {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator at(outside(path), error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  if (error) return file_error(path, error.value());
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::string> FileTree::resolve(const std::string& path) const {
  const std::unique_ptr<char, decltype(&std::free)> target(realpath(outside(path).c_str(), nullptr),
                                                           &std::free);
  if (!target) return file_error(path, errno);
  std::string text(target.get());
  if (!text.starts_with(root_)) {
    return make_error(ErrorCode::kIo,
                      fmt::format("cannot follow {}: it leads out of {}", path, root_));
  }
  return text.substr(root_.size());
}

Error FileTree::refused(const std::string& what, int error) const {
  std::string why = std::strerror(error);
  if (error == EPERM || error == EACCES) {
    const auto lockdown = read_text("/sys/kernel/security/lockdown");
    if (lockdown && lockdown->find('[') != lockdown->npos && !lockdown->starts_with("[none]")) {
      why = fmt::format(
          "the kernel is locked down ({}): switch Secure Boot off, or boot with "
          "lockdown=none",
          *lockdown);
    } else if (geteuid() != 0) {
      why += ": try it as root";
    } else {
      why +=
          ", although you are root: a container or a security module forbids it; try it on the "
          "host";
    }
  }
  return make_error(ErrorCode::kIo, fmt::format("{}: {}", what, why));
}

Error FileTree::refused_msr_write(const std::string& what, int error) const {
  const std::string setting = "/sys/module/msr/parameters/allow_writes";
  const auto allowed = read_text(setting);
  if (error != EPERM || !allowed || !allowed->starts_with("off")) return refused(what, error);
  return make_error(
      ErrorCode::kIo,
      fmt::format("{}: the kernel forbids writes to MSRs (msr.allow_writes=off): echo on > {}",
                  what, setting));
}

}  // namespace pmstore::ddio::internal
