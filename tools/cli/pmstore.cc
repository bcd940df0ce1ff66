// pmstore: the command line of the store.
#include <algorithm>
#include <csignal>
#include <iterator>
#include <string_view>

#include "persist/bus_errors.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/revision.h"
#include "tools/cli/standard_descriptors.h"
#include "tools/doctor/doctor_command.h"
#include "tools/tune/tune_command.h"

using namespace pmstore::tools;

namespace {

void add_bench_commands(CLI::App& app, Invocation& invocation) {
  CLI::App* const bench = app.add_subcommand("bench", "measure, and audit");
  bench->require_subcommand(1);
  bench->footer("example: pmstore bench kv --uri local:/dev/shm/pool --seconds 5");
  add_bench_fs(*bench, invocation);
  add_bench_kv(*bench, invocation);
  add_bench_log(*bench, invocation);
  add_bench_smallbank(*bench, invocation);
  add_bench_ycsb(*bench, invocation);
  add_bench_micro(*bench, invocation);
  add_bench_persist(*bench, invocation);
  add_bench_msync(*bench, invocation);
}

struct Command {
  std::string_view name;
  void (*add)(CLI::App& app, Invocation& invocation);
};
// In the order of the help.
constexpr Command kCommands[] = {
    {"pool", add_pool_commands}, {"kv", add_kv_commands},           {"table", add_table_commands},
    {"log", add_log_commands},   {"fs", add_fs_commands},           {"bench", add_bench_commands},
    {"ddio", add_ddio_commands}, {"doctor", add_doctor_command},    {"tune", add_tune_commands},
    {"stat", add_stat_command},  {"session", add_session_commands}, {"tx", add_tx_commands},
};

// Declaring all commands takes longer than most of them: only the one that is named is declared,
// or all of them where none is, for the help and for words that are wrong.
void add_commands(CLI::App& app, std::string_view word, Invocation& invocation) {
  const bool named = std::any_of(std::begin(kCommands), std::end(kCommands),
                                 [word](const Command& one) { return one.name == word; });
  for (const Command& one : kCommands) {
    if (!named || one.name == word) one.add(app, invocation);
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_descriptors(ClosedOutput::kIsAnError);
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
  const std::string_view word = argc > 1 ? argv[1] : "";
  const bool only_version = argc == 2 && (word == "--version" || word == "version");
  if (!only_version) add_commands(app, word, invocation);
  return parse_and_run(app, argc, argv, invocation);
}
