// pmstore: the command line of the store.
#include <csignal>

#include "persist/bus_errors.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/revision.h"
#include "tools/cli/standard_descriptors.h"
#include "tools/doctor/doctor_command.h"
#include "tools/tune/tune_command.h"

using namespace pmstore::tools;

int main(int argc, char** argv) {
  open_standard_descriptors();
  pmstore::persist::explain_bus_errors("pmstore");
  // The parent process may ignore SIGCHLD; then this process would not notice the end of a child.
  std::signal(SIGCHLD, SIG_DFL);
  CLI::App app{"pmstore: durable transactions on persistent memory, from the command line",
               "pmstore"};
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("pmstore ") + kVersion);
  app.footer(
      "Exit status: 0 done, 1 failed (one line on standard error says why), 2 wrong usage.\n"
      "example: pmstore pool create /dev/shm/pool --size 256M && "
      "pmstore kv put --uri local:/dev/shm/pool name value");
  Invocation invocation;
  add_pool_commands(app, invocation);
  add_kv_commands(app, invocation);
  add_table_commands(app, invocation);
  add_log_commands(app, invocation);
  CLI::App* const bench = app.add_subcommand("bench", "measure, and audit");
  bench->require_subcommand(1);
  bench->footer("example: pmstore bench kv --uri local:/dev/shm/pool --seconds 5");
  add_bench_kv(*bench, invocation);
  add_bench_log(*bench, invocation);
  add_bench_smallbank(*bench, invocation);
  add_bench_micro(*bench, invocation);
  add_bench_persist(*bench, invocation);
  add_bench_msync(*bench, invocation);
  add_ddio_commands(app, invocation);
  add_doctor_command(app, invocation);
  add_tune_commands(app, invocation);
  add_stat_command(app, invocation);
  add_session_commands(app, invocation);
  return parse_and_run(app, argc, argv, invocation);
}
