#include "tools/mount/mount_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/file_descriptor.h"
#include "tools/cli/bytes_text.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/mount/mount.h"

namespace pmstore::tools {
namespace {

std::atomic<Mount*> mounted{nullptr};
std::atomic<bool> told_to_stop{false};

void on_signal(int) {
  told_to_stop.store(true);
  if (Mount* const mount = mounted.load()) mount->stop();
}

Error refuse(std::string why) { return make_error(ErrorCode::kIo, std::move(why)); }
Error refuse_by_errno(std::string_view what) {
  return refuse(std::string(what) + std::strerror(errno));
}

std::string what_of(const MountProgram& program) {
  return "fs mount '" + printable(program.directory) + "'";
}

int say(const MountProgram& program, const Error& why) {
  return fail(kProgram, what_of(program), why);
}

// A path as the mount table writes it: blanks and backslashes are octal there.
std::string as_in_mount_table(const std::string& path) {
  std::string text;
  for (const char c : path) {
    if (c == ' ' || c == '\t' || c == '\n' || c == '\\') {
      text += fmt::format("\\{:03o}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      text += c;
    }
  }
  return text;
}

bool is_mount_point(const std::string& directory) {
  const std::string wanted = as_in_mount_table(directory);
  std::ifstream table("/proc/self/mountinfo");
  for (std::string line; std::getline(table, line);) {
    size_t from = 0;  // the fifth word
    for (int word = 0; word < 4 && from != std::string::npos; ++word) {
      from = line.find(' ', from);
      if (from != std::string::npos) ++from;
    }
    if (from == std::string::npos) continue;
    if (line.compare(from, line.find(' ', from) - from, wanted) == 0) return true;
  }
  return false;
}

// From now on the process is nobody's: it outlives its terminal and keeps no directory busy.
void leave_terminal() {
  setsid();
  if (chdir("/") != 0) return;  // "/" is always there
  base::FileDescriptor nowhere(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!nowhere) return;
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    dup2(nowhere.get(), descriptor);
  }
}

void take_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaction(number, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

// The whole life of the mount; `ready` is called once when it can be used.
base::Task<Status> serve(base::Executor& executor, const MountProgram& program,
                         const std::function<void()>& ready) {
  constexpr uint64_t kDrainNs = 5'000'000'000;
  auto files = co_await fs::FileSystem::connect(executor, program.uri, program.files);
  if (!files) co_return std::move(files.error());
  const std::string source = program.uri.to_string();
  auto mount = Mount::start(executor, **files, program.mount, source, program.directory);
  if (!mount) {
    co_await (*files)->close();
    co_return std::move(mount.error());
  }
  // Where a device refuses it, data is copied once more.
  (void)co_await (*files)->register_buffer((*mount)->buffers().kept());
  mounted.store(mount->get());
  if (told_to_stop.load()) (*mount)->stop();  // before that
  if (co_await (*mount)->until_ready()) ready();
  co_await (*mount)->until_ended();
  mounted.store(nullptr);
  co_await (*mount)->drain(kDrainNs);
  (*mount)->unmount();
  co_await (*files)->close();
  co_return Status{};
}

int serve_to_the_end(const MountProgram& program, const std::function<void()>& ready) {
  take_signals();
  base::RealClock clock;
  base::Executor executor(clock);
  const Status served = executor.run(serve(executor, program, ready));
  return served ? kDone : say(program, served.error());
}

// The status that the process in the background writes when the mount can be used, or its end.
int wait_for_child(const MountProgram& program, pid_t child, base::FileDescriptor from) {
  char status = 0;
  ssize_t got = 0;
  do {
    got = ::read(from.get(), &status, 1);
  } while (got < 0 && errno == EINTR);
  if (got == 1) return status;
  int ended = 0;
  while (waitpid(child, &ended, 0) < 0 && errno == EINTR) {
  }
  // It has said why, unless a signal ended it.
  if (WIFEXITED(ended)) return WEXITSTATUS(ended) == kDone ? kFailed : WEXITSTATUS(ended);
  return say(program, refuse("the process in the background was killed"));
}

}  // namespace

Status check_mount_point(const std::string& directory) {
  struct stat found {};
  if (stat(directory.c_str(), &found) != 0) {
    const std::string why = errno == ENOTCONN
                                ? "a mount without its process is there; unmount it with "
                                  "fusermount3 -u, or umount"
                                : std::strerror(errno);
    return refuse(why);
  }
  if (!S_ISDIR(found.st_mode)) return refuse("it is no directory");
  if (is_mount_point(directory)) {
    return refuse("something is mounted there already; unmount it, or choose another directory");
  }
  const base::FileDescriptor device(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  if (!device) {
    return refuse_by_errno(
        "cannot open /dev/fuse; load the kernel's module fuse, or give the container the device: ");
  }
  return {};
}

int run_mount(const MountProgram& given) {
  MountProgram program = given;
  char* const whole = realpath(given.directory.c_str(), nullptr);
  if (whole != nullptr) program.directory = whole;
  std::free(whole);
  if (const Status checked = check_mount_point(program.directory); !checked) {
    return say(program, checked.error());
  }
  if (program.foreground) {
    return serve_to_the_end(program, [&] {
      print_text(fmt::format("pmstore: {} is mounted at {}\n", program.uri.to_string(),
                             printable(program.directory)));
      std::fflush(stdout);
    });
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return say(program, refuse_by_errno("cannot make a pipe: "));
  base::FileDescriptor from(ends[0]);
  base::FileDescriptor to(ends[1]);
  const pid_t child = fork();
  if (child < 0) return say(program, refuse_by_errno("cannot start a process: "));
  if (child > 0) {
    to.reset();
    return wait_for_child(program, child, std::move(from));
  }
  from.reset();
  const int status = serve_to_the_end(program, [&] {
    leave_terminal();
    const char ready = kDone;
    (void)!::write(to.get(), &ready, 1);
    to.reset();
  });
  std::fflush(nullptr);
  std::_Exit(status);
}

}  // namespace pmstore::tools
