#include "tools/bench/micro_child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "tools/cli/commands.h"

namespace pmstore::tools {
namespace {

Error cannot(std::string_view what) {
  return make_error(ErrorCode::kIo, fmt::format("cannot start a server process: {}: {}", what,
                                                std::strerror(errno)));
}

std::vector<std::string> arguments_of(const MicroServiceOptions& options) {
  std::vector<std::string> arguments = {"pmstore",
                                        "bench",
                                        "micro",
                                        "--serve",
                                        options.listen.to_string(),
                                        "--server-threads",
                                        std::to_string(options.threads),
                                        "--memory",
                                        std::to_string(options.bytes),
                                        "--ddio",
                                        options.ddio ? "on" : "off"};
  if (!options.pool.empty()) arguments.insert(arguments.end(), {"--pool", options.pool});
  if (options.force) arguments.push_back("--force");
  if (options.assume_domain) {
    arguments.insert(arguments.end(), {"--assume-domain",
                                       std::string(persist::domain_name(*options.assume_domain))});
  }
  return arguments;
}

// Runs between fork and exec: only calls that are safe there.
[[noreturn]] void become(std::vector<char*>& arguments, int output, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it was gone before the line above
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execv("/proc/self/exe", arguments.data());
  _exit(127);
}

}  // namespace

Result<std::unique_ptr<MicroChild>> MicroChild::start(const MicroServiceOptions& options) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) return cannot("pipe");
  std::unique_ptr<MicroChild> child(new MicroChild);
  child->output_ = pipe_ends[0];
  std::vector<std::string> arguments = arguments_of(options);
  std::vector<char*> raw;
  for (std::string& argument : arguments) raw.push_back(argument.data());
  raw.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) become(raw, pipe_ends[1], parent);
  close(pipe_ends[1]);
  if (pid < 0) return cannot("fork");
  child->pid_ = pid;
  PMSTORE_TRY(child->uri_, child->wait_for_address());
  return child;
}

Result<fabric::Uri> MicroChild::wait_for_address() {
  std::string text;
  char byte;
  while (text.find('\n') == std::string::npos) {
    const ssize_t got = read(output_, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text += byte;
  }
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (text.starts_with(kServingPrefix)) {
    const std::string rest = text.substr(kServingPrefix.size());
    return fabric::parse_uri(rest.substr(0, rest.find(' ')));
  }
  const std::string own_name = fmt::format("{}: bench micro: ", kProgram);
  if (text.starts_with(own_name)) text = text.substr(own_name.size());
  return make_error(ErrorCode::kIo,
                    text.empty() ? "the server process ended without a word" : "server: " + text);
}

MicroChild::~MicroChild() {
  if (pid_ > 0) {
    kill(pid_, SIGTERM);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  if (output_ >= 0) close(output_);
}

}  // namespace pmstore::tools
