// The command line: what the sources that declare or parse options share. No other source includes
// CLI11, whose headers are its whole code and are compiled again with each source.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/result.h"

namespace pmstore::tools {

// The action of the program after its arguments are parsed; the callback of the chosen subcommand
// sets it.
struct Invocation {
  std::function<int()> run;
};

// Parses and runs; wrong usage is one line on standard error and status 2. `help COMMAND` and
// `version` do what --help and --version do.
int parse_and_run(CLI::App& app, int argc, char** argv, const Invocation& invocation);

// Parses once more, and runs nothing; InvalidArgument for wrong usage, also for --help.
Status parse_only(CLI::App& app, int argc, char** argv);

// A validator for CLI11 from a parser that gives a Result.
template <typename T>
CLI::Validator parsed_by(Result<T> (*parse)(std::string_view), std::string form) {
  CLI::Validator validator(
      [parse](std::string& text) {
        auto parsed = parse(text);
        return parsed ? std::string() : parsed.error().message;
      },
      std::move(form));
  return validator;
}

// A finite decimal number, all of `text`; whole ones also hexadecimal, behind 0x.
template <typename T>
bool parse_number(std::string_view text, T& number) {
  const bool hex = std::is_integral_v<T> && text.starts_with("0x");
  if (hex) text.remove_prefix(2);
  const char* const end = text.data() + text.size();
  std::from_chars_result read{};
  if constexpr (std::is_integral_v<T>) {
    read = std::from_chars(text.data(), end, number, hex ? 16 : 10);
  } else {
    read = std::from_chars(text.data(), end, number);
    if (!std::isfinite(number)) return false;
  }
  return read.ec == std::errc() && read.ptr == end;
}

// A number from `least` to `most`.
template <typename T>
CLI::Validator in_range(T least, T most) {
  return CLI::Validator(
      [=](std::string& text) {
        T number{};
        if (parse_number(text, number) && number >= least && number <= most) return std::string();
        return fmt::format("'{}' is not a {}number from {} to {}", text,
                           std::is_integral_v<T> ? "whole " : "", least, most);
      },
      fmt::format("from {} to {}", least, most));
}

// At least 1: a limit of nothing would be a command that does nothing.
CLI::Validator a_limit();

CLI::Validator one_of(std::vector<std::string> words);

// Of a file: not empty.
CLI::Validator a_path();

}  // namespace pmstore::tools
