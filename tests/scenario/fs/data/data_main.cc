#include "tests/scenario/fs/data/data_role.h"

int main(int argc, char** argv) {
  using pmstore::scenario::Role;
  pmstore::scenario::register_role("file_data", []() -> std::unique_ptr<Role> {
    return std::make_unique<pmstore::scenario::FileDataRole>();
  });
  return pmstore::scenario::run_scenarios(argc, argv);
}
