#include "tests/scenario/store/store_role.h"

int main(int argc, char** argv) {
  using pmstore::scenario::Role;
  pmstore::scenario::register_role("store", []() -> std::unique_ptr<Role> {
    return std::make_unique<pmstore::scenario::StoreRole>();
  });
  return pmstore::scenario::run_scenarios(argc, argv);
}
