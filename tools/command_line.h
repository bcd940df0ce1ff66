// The command line: what the sources that declare or parse options share. No other source includes
// CLI11, whose headers are its whole code and are compiled again with each source.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace pmstore::tools {

// What the program does once its arguments are parsed; set by the callback of the subcommand used.
struct Invocation {
  std::function<int()> run;
};

// Parses and runs; wrong usage is one line on standard error and status 2.
int parse_and_run(CLI::App& app, int argc, char** argv, const Invocation& invocation);

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

}  // namespace pmstore::tools
