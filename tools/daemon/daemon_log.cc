#include "tools/daemon/daemon_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace pmstore::tools {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"error", "warning", "info", "debug"};
constexpr std::array<char, 4> kPriorities = {'3', '4', '6', '7'};  // of syslog
// A pipe takes a line of this size as a whole or not at all (PIPE_BUF is 4096).
constexpr size_t kMaxLine = 4096;

std::string time_text() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc;
  gmtime_r(&now.tv_sec, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     now.tv_nsec / 1'000'000);
}

// JOURNAL_STREAM has the device and the inode of the stream that the journal reads.
bool is_journal(const char* journal_stream) {
  struct stat status {};
  if (journal_stream == nullptr || fstat(STDERR_FILENO, &status) != 0) return false;
  return fmt::format("{}:{}", status.st_dev, status.st_ino) == journal_stream;
}

}  // namespace

std::string_view log_level_name(LogLevel level) { return kNames[static_cast<size_t>(level)]; }

Result<LogLevel> parse_log_level(std::string_view text) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (text == kNames[i]) return static_cast<LogLevel>(i);
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "'" + std::string(text) + "' is not error, warning, info or debug");
}

DaemonLog::DaemonLog(const char* journal_stream) : journal_(is_journal(journal_stream)) {}

Status DaemonLog::open(const std::string& path) {
  base::FileDescriptor opened;
  if (!path.empty()) {
    // O_NONBLOCK: a pipe without a reader is refused, not waited for.
    opened = base::FileDescriptor(
        ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640));
    if (!opened) {
      return make_error(ErrorCode::kIo,
                        fmt::format("cannot open the log '{}': {}; check the path and its rights",
                                    path, std::strerror(errno)));
    }
  }
  file_ = std::move(opened);
  torn_ = false;
  return {};
}

std::string DaemonLog::line(LogLevel level, std::string_view text) const {
  const size_t number = static_cast<size_t>(level);
  std::string line = journal_ && !to_file()
                         ? fmt::format("<{}>{}", kPriorities[number], text)
                         : fmt::format("{} {} {}", time_text(), kNames[number], text);
  if (line.size() >= kMaxLine) line.resize(kMaxLine - 1);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return line + '\n';
}

bool DaemonLog::put(std::string_view line) {
  const int fd = to_file() ? file_.get() : STDERR_FILENO;
  pollfd room{fd, POLLOUT, 0};
  if (poll(&room, 1, 0) != 1 || (room.revents & POLLOUT) == 0) return false;
  const std::string whole = (torn_ ? "\n" : "") + std::string(line);
  const ssize_t written = ::write(fd, whole.data(), whole.size());
  if (written <= 0) return false;
  torn_ = static_cast<size_t>(written) != whole.size();
  return !torn_;
}

void DaemonLog::write(LogLevel level, std::string_view text) {
  if (level > level_) return;
  if (dropped_ > 0) {
    const std::string missing = fmt::format("log: {} lines could not be written here", dropped_);
    if (put(line(LogLevel::kWarning, missing))) dropped_ = 0;
  }
  if (dropped_ > 0 || !put(line(level, text))) ++dropped_;
}

bool LineLimit::allow() {
  if (over()) {
    began_ns_ = clock_.now_ns();
    allowed_ = 0;
  }
  if (allowed_ >= lines_) {
    ++suppressed_;
    return false;
  }
  ++allowed_;
  return true;
}

uint64_t LineLimit::take_suppressed() {
  return suppressed_ > 0 && over() ? std::exchange(suppressed_, 0) : 0;
}

}  // namespace pmstore::tools
