#include "tools/cli/fs_session.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <ctime>

#include "tools/cli/bytes_text.h"

namespace pmstore::tools {

fs::Caller caller_of_process() {
  fs::Caller caller{.uid = geteuid(), .gid = getegid(), .groups = {}};
  const int count = getgroups(0, nullptr);
  if (count <= 0) return caller;
  caller.groups.resize(static_cast<size_t>(count));
  const int got = getgroups(count, caller.groups.data());
  caller.groups.resize(static_cast<size_t>(std::max(got, 0)));
  constexpr size_t kMostGroups = 64;  // of one message
  if (caller.groups.size() > kMostGroups) caller.groups.resize(kMostGroups);
  return caller;
}

fs::FileSystemOptions file_system_options(const SessionOptions& session) {
  const ClientOptions common = session.client_options();
  fs::FileSystemOptions options;
  options.caller = caller_of_process();
  options.call_timeout_ns = common.call_timeout_ns;
  options.connect_timeout_ns = common.connect_timeout_ns;
  options.assume_domain = common.assume_domain;
  return options;
}

uint16_t masked(uint16_t mode) {
  const mode_t mask = umask(0);
  umask(mask);
  return static_cast<uint16_t>(mode & ~mask);
}

std::string joined(const std::string& folder, std::string_view name) {
  std::string path = folder;
  if (path.empty() || path.back() != '/') path += '/';
  return path.append(name);
}

std::string absolute(std::string_view path) {
  std::string result = "/";
  while (!path.empty()) {
    const size_t slash = std::min(path.find('/'), path.size());
    const std::string_view name = path.substr(0, slash);
    if (!name.empty() && name != ".") result = joined(result, name);
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return result;
}

std::string last_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string posix_text(const PosixError& error) {
  return error.message.empty() ? std::strerror(error.number) : error.message;
}

void Failures::add(std::string_view path, const PosixError& why) { add(path, posix_text(why)); }

void Failures::add(std::string_view path, std::string_view why) {
  if (++count_ > kMostLines) return;
  fail(kProgram, what_ + " '" + printable(path) + "'", why);
}

int Failures::status() const {
  if (count_ > kMostLines) {
    fail(kProgram, what_, fmt::format("{} failed; the first {} are above", count_, kMostLines));
  }
  return count_ == 0 ? kDone : kFailed;
}

std::string_view type_name(fs::FileType type) {
  switch (type) {
    case fs::FileType::kRegular: return "regular";
    case fs::FileType::kDirectory: return "directory";
    case fs::FileType::kSymlink: return "symlink";
    case fs::FileType::kFifo: return "fifo";
    case fs::FileType::kSocket: return "socket";
    case fs::FileType::kCharDevice: return "char-device";
    case fs::FileType::kBlockDevice: return "block-device";
  }
  return "unknown";
}

char type_letter(fs::FileType type) {
  switch (type) {
    case fs::FileType::kRegular: return 'f';
    case fs::FileType::kDirectory: return 'd';
    case fs::FileType::kSymlink: return 'l';
    case fs::FileType::kFifo: return 'p';
    case fs::FileType::kSocket: return 's';
    case fs::FileType::kCharDevice: return 'c';
    case fs::FileType::kBlockDevice: return 'b';
  }
  return '?';
}

std::string mode_text(const fs::Attributes& attributes) {
  std::string text(1,
                   attributes.type == fs::FileType::kRegular ? '-' : type_letter(attributes.type));
  for (int bit = 8; bit >= 0; --bit) {
    text += (attributes.mode >> bit & 1) != 0 ? "xwr"[bit % 3] : '-';
  }
  const auto special = [&](uint16_t bit, size_t place, char with, char without) {
    if ((attributes.mode & bit) != 0) text[place] = text[place] == 'x' ? with : without;
  };
  special(04000, 3, 's', 'S');
  special(02000, 6, 's', 'S');
  special(01000, 9, 't', 'T');
  return text;
}

std::string time_text(uint64_t time_ns) {
  const auto seconds = static_cast<time_t>(time_ns / 1'000'000'000);
  std::tm parts{};
  if (localtime_r(&seconds, &parts) == nullptr) return "?";
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts)};
}

nlohmann::ordered_json attributes_json(std::string_view path, const fs::Attributes& attributes) {
  return {{"path", json_bytes(path)},
          {"inode", raw(attributes.ino)},
          {"type", type_name(attributes.type)},
          {"mode", fmt::format("{:04o}", attributes.mode)},
          {"uid", attributes.uid},
          {"gid", attributes.gid},
          {"links", attributes.links},
          {"size_bytes", attributes.size},
          {"data_bytes", attributes.data_bytes},
          {"accessed_ns", attributes.atime_ns},
          {"modified_ns", attributes.mtime_ns},
          {"changed_ns", attributes.ctime_ns},
          {"created_ns", attributes.created_ns}};
}

}  // namespace pmstore::tools
