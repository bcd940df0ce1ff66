// file_mutants: small changes of what file systems are made of.
#include <cstdlib>
#include <memory>

#include "tests/mutants/unit_mutants.h"
#include "tests/scenario/fs/data/data_role.h"
#include "tests/scenario/harness.h"

int main(int argc, char** argv) {
  using pmstore::scenario::Role;
  pmstore::scenario::register_role("file_data", []() -> std::unique_ptr<Role> {
    return std::make_unique<pmstore::scenario::FileDataRole>();
  });
  // What is in the wrong order shows when it takes effect late.
  setenv("PMSTORE_TEST_LATE", "1", 0);
  return pmstore::mutation::run_unit_mutants("file_mutants", "tests/mutants/files/file_mutants.txt",
                                             argc, argv);
}
