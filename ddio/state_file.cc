#include "ddio/state_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "base/checksum.h"

namespace pmstore::ddio {
namespace {

Error file_error(const std::string& path, const char* what) {
  const int error = errno;
  return make_error(ErrorCode::kIo,
                    fmt::format("cannot {} {}: {}: run it as root, or name another file with "
                                "--state",
                                what, path, std::strerror(error)));
}

Error bad_file() {
  return make_error(ErrorCode::kIo,
                    "it is damaged, so nothing is undone: look at it, set the registers by hand, "
                    "then remove it");
}

std::string checksum_line(std::string_view text) {
  return fmt::format("crc32c {:08x}\n", base::crc32c(std::as_bytes(std::span(text))));
}

Status write_durably(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put < 0) return make_error(ErrorCode::kIo);
    text.remove_prefix(static_cast<size_t>(put));
  }
  return fsync(fd) == 0 ? Status() : make_error(ErrorCode::kIo);
}

bool sync_folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool done = fsync(fd) == 0;
  ::close(fd);
  return done;
}

std::optional<uint64_t> hexadecimal(const std::string& word) {
  if (!word.starts_with("0x") || word.size() > 18) return std::nullopt;
  char* end = nullptr;
  const uint64_t value = std::strtoull(word.c_str() + 2, &end, 16);
  if (word.size() == 2 || *end != '\0') return std::nullopt;
  return value;
}

}  // namespace

std::string encode_state(const State& state) {
  std::string text = "pmstore-ddio 1\nboot " + state.boot + "\n";
  for (const Change& change : state.changes) {
    text += fmt::format("{} mask {:#x} before {:#x} after {:#x}\n", change.where.text(),
                        change.mask, change.before, change.after);
  }
  return text + checksum_line(text);
}

Result<State> decode_state(std::string_view text) {
  const size_t last = text.rfind("crc32c ");
  if (last == text.npos || text.substr(last) != checksum_line(text.substr(0, last))) {
    return bad_file();
  }
  std::istringstream lines{std::string(text.substr(0, last))};
  std::string line;
  State state;
  if (!std::getline(lines, line) || line != "pmstore-ddio 1") return bad_file();
  if (!std::getline(lines, line) || !line.starts_with("boot ")) return bad_file();
  state.boot = line.substr(5);
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string where, mask_word, mask, before_word, before, after_word, after, more;
    words >> where >> mask_word >> mask >> before_word >> before >> after_word >> after;
    const auto at = parse_register(where);
    const auto bits = hexadecimal(mask), from = hexadecimal(before), to = hexadecimal(after);
    if (!at || !bits || !from || !to || mask_word != "mask" || before_word != "before" ||
        after_word != "after" || (words >> more)) {
      return bad_file();
    }
    state.changes.push_back({*at, *bits, *from, *to});
  }
  return state;
}

Result<std::unique_ptr<StateFile>> StateFile::open(const std::string& path) {
  std::error_code ignored;  // opening the lock tells
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const std::string lock = path + ".lock";
  const int fd = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return file_error(lock, "open");
  std::unique_ptr<StateFile> file(new StateFile(path, fd));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return make_error(ErrorCode::kBusy,
                      fmt::format("another 'pmstore ddio' is at work (it holds {}): wait until it "
                                  "has ended",
                                  lock));
  }
  return file;
}

StateFile::~StateFile() { ::close(lock_); }

Result<State> StateFile::read(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT) return State();
    return file_error(path, "read");
  }
  std::string text;
  char piece[4096];
  ssize_t got;
  while ((got = ::read(fd, piece, sizeof(piece))) > 0) text.append(piece, static_cast<size_t>(got));
  ::close(fd);
  if (got < 0) return file_error(path, "read");
  auto state = decode_state(text);
  if (!state) {
    return make_error(ErrorCode::kIo,
                      fmt::format("cannot read {}: {}", path, state.error().message));
  }
  return state;
}

Status StateFile::save(const State& state) const {
  if (state.changes.empty()) {
    if (::unlink(path_.c_str()) != 0 && errno != ENOENT) return file_error(path_, "remove");
    return {};
  }
  const std::string draft = path_ + ".new";
  const int fd = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) return file_error(draft, "write");
  const Status written = write_durably(fd, encode_state(state));
  if (!written) {
    const Error error = file_error(draft, "write");
    ::close(fd);
    return error;
  }
  ::close(fd);
  if (::rename(draft.c_str(), path_.c_str()) != 0 || !sync_folder_of(path_)) {
    return file_error(path_, "write");
  }
  return {};
}

}  // namespace pmstore::ddio
