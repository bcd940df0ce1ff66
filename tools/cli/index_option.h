// An index as the command line names it.
#pragma once

#include <string_view>

#include "base/result.h"
#include "pmstore/check.h"

namespace pmstore::tools {

// "BASE:INDEX:OFFSET+BYTES", with ":unique" behind it or not: an index by a field of the value. No
// name has a colon. InvalidArgument.
Result<IndexToCheck> parse_index(std::string_view text);

}  // namespace pmstore::tools
