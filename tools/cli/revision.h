// The source revision of the programs; made by tools/cli/revision.cmake.
#pragma once

namespace pmstore::tools {

// Twelve hex digits of the git commit, "-changed" behind them when files differed from it;
// "unknown" when the sources were neither in a git repository nor from git archive.
extern const char* const kRevision;

// For people: "0.1.0 (revision 0123456789ab)"; without the parentheses when that is unknown.
extern const char* const kVersion;

}  // namespace pmstore::tools
