#include "tests/scenario/log/log_role.h"

int main(int argc, char** argv) {
  using pmstore::scenario::Role;
  pmstore::scenario::register_role("logs", []() -> std::unique_ptr<Role> {
    return std::make_unique<pmstore::scenario::LogRole>();
  });
  return pmstore::scenario::run_scenarios(argc, argv);
}
