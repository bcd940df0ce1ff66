// SessionOptions: the options of every subcommand that talks to a store, and how they become the
// client library's.
#pragma once

#include <string>
#include <string_view>

#include "fabric/uri.h"
#include "pmstore/client.h"

namespace CLI {
class App;
}

namespace pmstore::tools {

struct SessionOptions {
  std::string uri;
  std::string assume_domain;
  std::string locks;
  double timeout_seconds = 5;
  bool json = false;
  bool uri_given = false;  // on the command line, not by the environment

  // --uri (default: $PMSTORE_URI), --assume-domain, --locks, --timeout, --json. Wrong values are
  // usage errors of the parser.
  void add_to(CLI::App& command);
  // The errors of wrong combinations of options. add_to() has the parser call it when it is done,
  // unless the command sets a parse_complete_callback() of its own, which then calls it.
  void check_together() const;
  // Call after parsing; checks made there cannot fail here.
  fabric::Uri parsed_uri() const;
  ClientOptions client_options() const;
};

// "64", "256M", "1G" (powers of two). InvalidArgument when it is none of these, or too large.
Result<uint64_t> parse_bytes(std::string_view text);
// The same, and UINT64_MAX for "none": a limit that is none.
Result<uint64_t> parse_bytes_or_none(std::string_view text);
Result<LockDiscipline> parse_locks(std::string_view text);

}  // namespace pmstore::tools
