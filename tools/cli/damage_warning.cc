#include "tools/cli/damage_warning.h"

#include <fmt/format.h>

#include "tools/cli/console.h"

namespace pmstore::tools {

void warn_of_damage(std::string_view program, const RecoveryReport& recovery) {
  if (recovery.damaged_records == 0) return;
  fail(program, fmt::format("warning: {} damaged records", recovery.damaged_records),
       "their media lost data; they are treated as deleted: see pmstore pool check");
}

void warn_of_damage(std::string_view program, Client& client) {
  if (const Server* const server = client.local_server()) {
    warn_of_damage(program, server->recovery());
  }
}

}  // namespace pmstore::tools
