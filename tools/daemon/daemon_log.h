// DaemonLog: the log of pmstored, one line per event, to standard error or to a file.
//
// On a standard error that is connected to the journal (JOURNAL_STREAM) a line begins with its
// priority, <3> to <7>; everywhere else with the time in UTC and its level. Threads: one.
// Errors: a line that cannot be written, or that would have to wait for a reader, is dropped and
// counted; the next line that can be written is preceded by one that says how many are missing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/result.h"

namespace pmstore::tools {

enum class LogLevel : uint8_t { kError, kWarning, kInfo, kDebug };

std::string_view log_level_name(LogLevel level);
// InvalidArgument.
Result<LogLevel> parse_log_level(std::string_view text);

class DaemonLog {
 public:
  // To standard error, which is what `journal_stream` names, or is not.
  explicit DaemonLog(const char* journal_stream);

  // Appends to the file `path` from now on, and makes the file if it does not exist; empty: to
  // standard error. Io: nothing changes.
  Status open(const std::string& path);
  void set_level(LogLevel level) { level_ = level; }
  bool to_file() const { return static_cast<bool>(file_); }
  // Neither a file nor the journal: a person may read it, beside a program's one-line errors.
  bool to_plain_stderr() const { return !to_file() && !journal_; }
  void write(LogLevel level, std::string_view text);

 private:
  std::string line(LogLevel level, std::string_view text) const;
  bool put(std::string_view line);

  LogLevel level_ = LogLevel::kInfo;
  bool journal_;               // what standard error is connected to
  base::FileDescriptor file_;  // none: standard error
  uint64_t dropped_ = 0;
  bool torn_ = false;  // the last line lacks its end
};

// At most `lines` in each period; the others are counted.
class LineLimit {
 public:
  LineLimit(const base::Clock& clock, uint32_t lines, uint64_t period_ns)
      : clock_(clock), lines_(lines), period_ns_(period_ns) {}
  // May one more line be written?
  bool allow();
  // How many were not allowed in periods that are over, and have not been taken yet.
  uint64_t take_suppressed();
  // When take_suppressed() has something to give; kNever when no line was suppressed.
  static constexpr uint64_t kNever = UINT64_MAX;
  uint64_t due_ns() const { return suppressed_ == 0 ? kNever : began_ns_ + period_ns_; }

 private:
  bool over() const { return clock_.now_ns() - began_ns_ >= period_ns_; }
  const base::Clock& clock_;
  uint32_t lines_;
  uint64_t period_ns_;
  uint64_t began_ns_ = 0;
  uint32_t allowed_ = 0;
  uint64_t suppressed_ = 0;
};

}  // namespace pmstore::tools
