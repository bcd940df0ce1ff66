// SessionOptions: the options of every subcommand that talks to a store, and how they become the
// client library's.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "fabric/uri.h"
#include "pmstore/client.h"

namespace pmstore::tools {

struct SessionOptions {
  std::string uri;
  std::string assume_domain;
  std::string locks;
  double timeout_seconds = 5;
  bool json = false;

  // --uri (default: $PMSTORE_URI), --assume-domain, --locks, --timeout, --json. Wrong values are
  // usage errors of the parser.
  void add_to(CLI::App& command);
  // After parsing; what was checked there cannot fail here.
  fabric::Uri parsed_uri() const;
  ClientOptions client_options() const;
};

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

// "64", "256M", "1G" (powers of two). InvalidArgument when it is none of these, or too large.
Result<uint64_t> parse_bytes(std::string_view text);
Result<LockDiscipline> parse_locks(std::string_view text);

}  // namespace pmstore::tools
