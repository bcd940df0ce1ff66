// Checks before parsing: words that name no command or option, options that are given twice or
// without their value, too many arguments. The parser would first report other missing arguments,
// or take an option for the value of the one before it.
//
// Threads: values, no sharing. Lifetimes: `command` belongs to the given app.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace pmstore::tools {

struct WordCheck {
  const CLI::App* command;  // the last one that was named
  std::string wrong;        // empty: nothing
};

// `words`: the program's arguments, in their order. Looks no further than --help and --version.
WordCheck check_words(const CLI::App& app, const std::vector<std::string>& words);

// "pmstore kv get"
std::string full_name(const CLI::App& command);

// The name that `word` was probably meant to be, or nothing.
std::string nearest(std::string_view word, const std::vector<std::string>& names);

}  // namespace pmstore::tools
