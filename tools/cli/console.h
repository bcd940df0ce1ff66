// How the programs talk: results on standard output, errors as one line on standard error,
// progress only where a person looks.
//
// Threads: one thread at a time.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pmstore::tools {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kWrongUsage = 2;

// Prints "PROGRAM: WHAT: WHY", as one line whatever is in it, and gives kFailed.
int fail(std::string_view program, std::string_view what, const Error& why);
int fail(std::string_view program, std::string_view what, std::string_view why);

// The same about the pool, or another file, at `path`: "PROGRAM: WHAT 'PATH': WHY", whether the
// error names the path or not.
int fail_at(std::string_view program, std::string_view what, std::string_view path,
            const Error& why);
// The text for people: the message, or a sentence about the code. Never the code's name.
std::string why_text(const Error& error);

// Prints one line of JSON. Bytes that are not UTF-8 are replaced: what may hold such bytes is
// passed through json_bytes() (bytes_text.h) before.
void print_json(const nlohmann::ordered_json& object);
// Prints `text` unchanged.
void print_text(std::string_view text);

// A line on standard error that replaces itself; nothing at all when that is not a terminal.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  bool shown() const { return terminal_; }
  void update(std::string_view text);
  // Takes the line away.
  void clear();

 private:
  bool terminal_;
  bool dirty_ = false;
};

}  // namespace pmstore::tools
