#include "tools/console.h"

#include <unistd.h>

#include <cstdio>

namespace pmstore::tools {

int fail(std::string_view program, std::string_view what, std::string_view why) {
  std::string line(program);
  line.append(": ").append(what).append(": ").append(why);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
  return kFailed;
}

int fail(std::string_view program, std::string_view what, const Error& why) {
  return fail(program, what, why.message.empty() ? why.to_string() : why.message);
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
