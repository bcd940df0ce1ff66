// The git revision that the programs were built from; made by tools/revision.cmake.
#pragma once

namespace pmstore::tools {

// Twelve hex digits, "-changed" behind them when files differed from it; "unknown" without git.
extern const char* const kRevision;

}  // namespace pmstore::tools
