// The main() of programs that make small changes of the product, one at a time, and say whether
// unit tests and scenarios notice. Their objects are linked into the program, which registers the
// roles that the scenarios need.
#pragma once

namespace pmstore::mutation {

// `name` of the program, and `list` from the repository root.
int run_unit_mutants(const char* name, const char* list, int argc, char** argv);

}  // namespace pmstore::mutation
