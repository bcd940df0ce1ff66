// One subcommand that asks a server as its administrator: connect, ask, go.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "pmstore/admin_client.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"

namespace pmstore::tools {

struct AdminCommandOptions {
  std::string uri;
  double timeout_seconds = 5;
  bool json = false;

  // --uri, --timeout and --json.
  void add_to(CLI::App& command);
  AdminOptions admin_options() const;
};

// InvalidArgument for a URI without a server of its own.
Result<fabric::Uri> parse_server_uri(std::string_view text);
// The parsed answer; Protocol when the answer is no JSON object.
Result<nlohmann::ordered_json> parse_report(const Result<std::string>& text);
// All pages.
base::Task<Result<std::vector<nlohmann::ordered_json>>> all_sessions(AdminClient& admin);

// Runs `body(AdminClient&) -> int`; its errors and its exit status are the command's.
template <typename Body>
int with_admin(const AdminCommandOptions& options, std::string_view what, Body body) {
  base::RealClock clock;
  Executor executor(clock);
  auto admin = executor.run(
      AdminClient::connect(executor, *fabric::parse_uri(options.uri), options.admin_options()));
  if (!admin) return fail(kProgram, what, admin.error());
  return body(executor, **admin);
}

}  // namespace pmstore::tools
