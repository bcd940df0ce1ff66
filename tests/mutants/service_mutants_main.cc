// service_mutants: small changes of services and clients of store and log.
#include <memory>

#include "tests/mutants/unit_mutants.h"
#include "tests/scenario/harness.h"
#include "tests/scenario/log/log_role.h"
#include "tests/scenario/store/store_role.h"

int main(int argc, char** argv) {
  using pmstore::scenario::Role;
  pmstore::scenario::register_role("store", []() -> std::unique_ptr<Role> {
    return std::make_unique<pmstore::scenario::StoreRole>();
  });
  pmstore::scenario::register_role("logs", []() -> std::unique_ptr<Role> {
    return std::make_unique<pmstore::scenario::LogRole>();
  });
  return pmstore::mutation::run_unit_mutants("service_mutants", "tests/mutants/service_mutants.txt",
                                             argc, argv);
}
