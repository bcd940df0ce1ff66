#include "tests/scenario/fs/fs_role.h"

int main(int argc, char** argv) {
  using pmstore::scenario::Role;
  pmstore::scenario::register_role("files", []() -> std::unique_ptr<Role> {
    return std::make_unique<pmstore::scenario::FilesRole>();
  });
  return pmstore::scenario::run_scenarios(argc, argv);
}
