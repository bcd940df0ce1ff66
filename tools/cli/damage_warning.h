// Warns about damage that recovery has found.
#pragma once

#include <string_view>

#include "pmstore/client.h"
#include "pmstore/server.h"

namespace pmstore::tools {

// A line on standard error when records were lost: reads and scans pass over them in silence.
void warn_of_damage(std::string_view program, const RecoveryReport& recovery);
// Warns about the server in this process that `client` has for local:PATH. Other servers log the
// damage themselves when they start.
void warn_of_damage(std::string_view program, Client& client);

}  // namespace pmstore::tools
