// GuardedCommand: while it exists, no signal except SIGKILL ends this process, so that every
// changed setting is restored. A command of the user may run meanwhile.
//
// Threads: made, used and destroyed by the main thread, before there are others. SIGCHLD must not
// be ignored.
#pragma once

#include <signal.h>

#include <string>
#include <vector>

#include "base/result.h"

namespace pmstore::tools {

class GuardedCommand {
 public:
  GuardedCommand();
  // A signal that came when no command was running has its effect now.
  ~GuardedCommand();
  GuardedCommand(const GuardedCommand&) = delete;
  GuardedCommand& operator=(const GuardedCommand&) = delete;

  // Runs the command to its end and gives its exit status, or 128 + the signal that ended it. A
  // signal that is sent to this process is passed on; the second one of those that ask a program to
  // end (SIGINT, SIGTERM, SIGHUP, SIGQUIT) kills the command. Io when it cannot be started.
  Result<int> run(const std::vector<std::string>& words);

 private:
  sigset_t guarded_;
  sigset_t before_;
};

}  // namespace pmstore::tools
