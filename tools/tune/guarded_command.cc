#include "tools/tune/guarded_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace pmstore::tools {
namespace {

[[noreturn]] void become(const std::vector<std::string>& words, const sigset_t& mask, int failed) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execvp(arguments[0], arguments.data());
  const int error = errno;
  if (::write(failed, &error, sizeof(error)) < 0) _exit(126);
  _exit(127);
}

bool ends_commands(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

}  // namespace

GuardedCommand::GuardedCommand() {
  sigemptyset(&guarded_);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGALRM, SIGUSR1, SIGUSR2}) {
    // A signal that is ignored, as nohup does with SIGHUP, stays ignored; if it were blocked, it
    // would arrive.
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) {
      sigaddset(&guarded_, signal);
    }
  }
  sigaddset(&guarded_, SIGCHLD);
  sigprocmask(SIG_BLOCK, &guarded_, &before_);
}

GuardedCommand::~GuardedCommand() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

Result<int> GuardedCommand::run(const std::vector<std::string>& words) {
  const auto failure = [&](int error) {
    return make_error(ErrorCode::kIo, fmt::format("cannot run '{}': {}: check its name and PATH",
                                                  words[0], std::strerror(error)));
  };
  int failed[2];  // tells that exec failed; closed by a successful one
  if (pipe2(failed, O_CLOEXEC) != 0) return failure(errno);
  const pid_t child = fork();
  if (child == 0) become(words, before_, failed[1]);
  const int fork_error = errno;
  ::close(failed[1]);
  int exec_error = 0;
  const bool started =
      child > 0 && ::read(failed[0], &exec_error, sizeof(exec_error)) != sizeof(exec_error);
  ::close(failed[0]);
  if (child < 0) return failure(fork_error);
  if (!started) {
    waitpid(child, nullptr, 0);
    return failure(exec_error);
  }
  bool asked = false;
  for (;;) {
    siginfo_t info;
    const int signal = sigwaitinfo(&guarded_, &info);
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) {
      if (signal > 0 && signal != SIGCHLD) raise(signal);
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (signal < 0 || signal == SIGCHLD) continue;
    if (asked && ends_commands(signal)) {
      kill(child, SIGKILL);
    } else if (info.si_code <= 0) {  // one from the terminal has reached the command already
      kill(child, signal);
    }
    asked |= ends_commands(signal);
  }
}

}  // namespace pmstore::tools
