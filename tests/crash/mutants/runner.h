// Runs mutants of the product, each in a process of its own, since it may end or hang it, and says
// which were noticed. What looks for a mutant is the caller's.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <functional>

#include "tests/crash/mutants/mutation.h"
#include "tests/crash/share.h"

namespace pmstore::mutation {

struct Runner {
  const char* program;  // in messages
  const char* list;     // the file of the mutants
  unsigned seconds;     // of a mutant's processor time, unless --seconds says it; then it hangs
  // Says whether the product without a mutant passes: a test that finds something wrong with it
  // would seem to catch every mutant. Of what it tries it may try this share only.
  std::function<bool(const tests::Share&)> finds_nothing;
  // Looks for the active mutant, in a process of its own.
  std::function<bool(const Mutant&, bool verbose)> notices;
  // One run may notice what another does not: threads meet in different ways.
  bool may_differ = false;
};

// Ends this process, as one that hangs, when it has used so much processor time in all, or after
// ten times as long. Replaces what was set before.
void limit_time(unsigned seconds);

// Adds the options that all have to `app`, which may have others, and runs. Gives the exit status:
// 0 every mutant was noticed, 1 one was not, 2 wrong usage.
int run_mutants(const Runner& runner, CLI::App& app, int argc, char** argv);

}  // namespace pmstore::mutation
