// namespace_mutants: small changes of the namespace of file systems and of their service.
#include "tests/mutants/unit_mutants.h"

int main(int argc, char** argv) {
  return pmstore::mutation::run_unit_mutants(
      "namespace_mutants", "tests/mutants/namespace/namespace_mutants.txt", argc, argv);
}
