// One subcommand of kv: connect, do it, say goodbye.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/damage_warning.h"
#include "tools/cli/session_options.h"

namespace pmstore::tools {

struct KvOptions {
  SessionOptions session;
  std::string table = "default";
  std::string key;
  std::vector<std::string> keys;  // of get
  std::string file = "-";
  std::string value;
  bool literal = false;  // the value argument is the value, also "-" and "@..."
  bool raw = false;
  uint64_t limit = 0;  // 0: no limit
  std::string prefix;
  std::string from;  // of a range of an ordered table
  std::string to;
  bool reverse = false;
  bool all = false;      // the range is the whole table
  bool ordered = false;  // of a table that is made
  std::string transaction;
  std::string script_file = "-";
  std::optional<std::string> script_text;
};

// The value argument: itself, standard input for "-", a file for "@FILE". Io; TooLarge when it
// cannot be a value.
Result<std::string> read_argument(const std::string& argument, bool literal, size_t limit_bytes);

// The narrower one of --from and --to, and --prefix.
KeyRange range_of(const KvOptions& options);

// Connects and runs `body(Client&, const KvOptions&) -> Task<int>`, whose int is the exit status.
template <typename Body>
int with_client(const KvOptions& options, std::string_view what, Body body) {
  base::RealClock clock;
  Executor executor(clock);
  auto client = executor.run(
      Client::connect(executor, options.session.parsed_uri(), options.session.client_options()));
  if (!client) return fail(kProgram, what, client.error());
  warn_of_damage(kProgram, **client);
  const int status = executor.run(body(**client, options));
  executor.run((*client)->close());
  return status;
}

}  // namespace pmstore::tools
