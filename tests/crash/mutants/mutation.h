// Which mutant of the product runs. make_mutants.py makes copies of product sources in which every
// mutant is a branch on `active`; the product itself knows nothing of it. Threads: one.
#pragma once

#include <cstddef>
#include <span>

namespace pmstore::mutation {

struct Mutant {
  const char* name;       // source, function, what is missing
  const char* redundant;  // why nothing can notice; nullptr: it must be caught
  const char*
      near;    // the scenarios that are tried first, with spaces between; or a filter of tests
  bool stale;  // what the list says of it does not fit the sources any more
  bool open;   // nothing reaches it yet
  bool slow;   // it is noticed after minutes
};
std::span<const Mutant> mutants();

inline int active = -1;  // index in mutants()
inline bool skipping = false;

inline bool is(int mutant) { return active == mutant; }
// The next flush or drain is left out, and of the next write the flush, if this mutant is active.
inline void arm(int mutant) { skipping = is(mutant); }
inline bool take_skip() {
  const bool skip = skipping;
  skipping = false;
  return skip;
}

}  // namespace pmstore::mutation
