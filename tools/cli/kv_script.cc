#include "tools/cli/kv_script.h"

#include <fmt/format.h>

#include <array>

#include "pmstore/types.h"
#include "tools/cli/bytes_text.h"

namespace pmstore::tools {
namespace {

using Kind = ScriptStep::Kind;

struct Form {
  std::string_view name;
  Kind kind;
  size_t words;  // after the name
};
constexpr std::array kForms = {Form{"get", Kind::kGet, 1}, Form{"put", Kind::kPut, 2},
                               Form{"insert", Kind::kInsert, 2}, Form{"del", Kind::kDel, 1},
                               Form{"check", Kind::kCheck, 2}};

const char* read_quoted(std::string_view& rest, std::string& word) {
  while (!rest.empty()) {
    const char c = rest.front();
    rest.remove_prefix(1);
    if (c == '"') return nullptr;
    if (c != '\\') {
      word += c;
      continue;
    }
    if (const char* wrong = read_escape(rest, word)) return wrong;
  }
  return "a quote is not closed";
}

// nullptr, or what is wrong.
const char* split(std::string_view rest, std::vector<std::string>& words) {
  for (;;) {
    const size_t start = rest.find_first_not_of(" \t\r");
    if (start == std::string_view::npos || rest[start] == '#') return nullptr;
    rest.remove_prefix(start);
    std::string& word = words.emplace_back();
    if (rest.front() == '"') {
      rest.remove_prefix(1);
      if (const char* wrong = read_quoted(rest, word)) return wrong;
      continue;
    }
    const size_t end = std::min(rest.find_first_of(" \t\r\"#"), rest.size());
    word = rest.substr(0, end);
    rest.remove_prefix(end);
  }
}

Error wrong_line(size_t line, std::string_view why) {
  return make_error(ErrorCode::kInvalidArgument, fmt::format("line {}: {}", line, why));
}

}  // namespace

std::string_view step_name(Kind kind) {
  for (const Form& form : kForms) {
    if (form.kind == kind) return form.name;
  }
  return "unknown";
}

Result<std::vector<ScriptStep>> parse_script(std::string_view text) {
  std::vector<ScriptStep> steps;
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::vector<std::string> words;
    if (const char* wrong = split(text.substr(0, end), words)) return wrong_line(line, wrong);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (words.empty()) continue;
    const Form* form = nullptr;
    for (const Form& candidate : kForms) {
      if (candidate.name == words[0]) form = &candidate;
    }
    if (form == nullptr) {
      return wrong_line(line, "'" + printable(words[0]) +
                                  "' is no operation; there are get, put, insert, del and check");
    }
    const std::string about = words.size() == 1
                                  ? std::string(form->name)
                                  : fmt::format("{} '{}'", form->name, printable(words[1]));
    if (words.size() != form->words + 1) {
      return wrong_line(line, fmt::format("{} takes {}, got {} word{}", about,
                                          form->words == 1 ? "a key" : "a key and a value",
                                          words.size() - 1, words.size() == 2 ? "" : "s"));
    }
    std::string value = form->words == 2 ? std::move(words[2]) : std::string();
    if (auto sizes = check_sizes(words[1], value); !sizes) {
      return make_error(sizes.code(),
                        fmt::format("line {}: {}: {}", line, about, sizes.error().message));
    }
    steps.push_back({form->kind, std::move(words[1]), std::move(value), line});
  }
  return steps;
}

}  // namespace pmstore::tools
