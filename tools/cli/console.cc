#include "tools/cli/console.h"

#include <unistd.h>

#include <cstdio>

namespace pmstore::tools {
namespace {

// A wrong word or name may be of any length; what is to be done stands at the end of the line.
void cut_middle(std::string& line) {
  constexpr size_t kBegin = 800;
  constexpr size_t kEnd = 400;
  if (line.size() > kBegin + kEnd) line.replace(kBegin, line.size() - kBegin - kEnd, " [...] ");
}

}  // namespace

int fail(std::string_view program, std::string_view what, std::string_view why) {
  std::string line(program);
  line.append(": ").append(what).append(": ").append(why);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  cut_middle(line);
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
  return kFailed;
}

int fail(std::string_view program, std::string_view what, const Error& why) {
  return fail(program, what, why_text(why));
}

int fail_at(std::string_view program, std::string_view what, std::string_view path,
            const Error& why) {
  std::string text = why_text(why);
  const std::string prefix = std::string(path) + ": ";
  if (text.starts_with(prefix)) text.erase(0, prefix.size());
  return fail(program, std::string(what) + " '" + std::string(path) + "'", text);
}

std::string why_text(const Error& error) {
  if (!error.message.empty()) return error.message;
  switch (error.code) {
    case ErrorCode::kInvalidArgument: return "the request is wrong";
    case ErrorCode::kNotFound: return "it is not there";
    case ErrorCode::kAlreadyExists: return "it is there already";
    case ErrorCode::kConflict:
      return "another transaction was faster, and nothing was changed: try again";
    case ErrorCode::kFull: return "the pool has no room: delete something";
    case ErrorCode::kTooLarge: return "it is too large";
    case ErrorCode::kUnknownTable: return "there is no such table in this pool";
    case ErrorCode::kBusy: return "it is in use by another process";
    case ErrorCode::kBadPool: return "the pool is damaged: see pmstore pool check";
    case ErrorCode::kVersionMismatch:
      return "the other side has another version: use the same on both";
    case ErrorCode::kUnsupported: return "this machine or server cannot do it";
    case ErrorCode::kDisconnected:
      return "the connection is lost, and nothing is in doubt: check that pmstored runs, try again";
    case ErrorCode::kTimeout:
      return "no answer in time: check that pmstored runs, or give a longer --timeout";
    case ErrorCode::kCommitUnknown: return "it is not known whether it has happened";
    case ErrorCode::kOutcomeExpired: return "the outcome of that transaction is no longer kept";
    case ErrorCode::kProtocol: return "the other side sent a malformed message";
    case ErrorCode::kBackPressure: return "all is in use for the moment: try again later";
    case ErrorCode::kAccess: return "access to that memory was not granted";
    case ErrorCode::kIo: return "the operating system refused";
    case ErrorCode::kTrimmed: return "it is no longer kept: begin again from the start";
    case ErrorCode::kSealed: return "the log is sealed: nothing can be appended";
    case ErrorCode::kFenced: return "another producer has taken the log over";
    case ErrorCode::kDamaged: return "the medium has lost it";
  }
  return "an unknown error";
}

void print_json(const nlohmann::ordered_json& object) {
  print_text(object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

void print_text(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

ProgressLine::ProgressLine() : terminal_(isatty(STDERR_FILENO) == 1) {}

ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::update(std::string_view text) {
  if (!terminal_) return;
  std::fprintf(stderr, "\r\x1b[K%.*s", static_cast<int>(text.size()), text.data());
  std::fflush(stderr);
  dirty_ = true;
}

void ProgressLine::clear() {
  if (!dirty_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  dirty_ = false;
}

}  // namespace pmstore::tools
