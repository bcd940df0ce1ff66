#include "persist/bus_errors.h"

#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "persist/internal/mapped_pool.h"

namespace pmstore::persist {
namespace {

const char* program_name = "";

// One line, built without what a signal handler must not call.
class Line {
 public:
  Line& operator<<(const char* text) {
    for (; *text != '\0'; ++text) add(*text);
    return *this;
  }
  Line& operator<<(uint64_t number) {
    char digits[20];
    size_t count = 0;
    do {
      digits[count++] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number > 0);
    while (count > 0) add(digits[--count]);
    return *this;
  }
  // What a path holds that would be another line, or a terminal's command, is shown as '?'.
  Line& path(const char* text) {
    for (; *text != '\0'; ++text) {
      const auto byte = static_cast<unsigned char>(*text);
      add(byte < 0x20 || byte == 0x7f ? '?' : *text);
    }
    return *this;
  }
  void print() {
    add('\n');
    static_cast<void>(!write(STDERR_FILENO, text_, used_));
  }

 private:
  void add(char c) {
    if (used_ < sizeof text_) text_[used_++] = c;
  }
  char text_[1024];
  size_t used_ = 0;
};

void on_bus_error(int, siginfo_t* info, void*) {
  const internal::MappedPool::Found pool = internal::MappedPool::find(info->si_addr);
  if (pool.path == nullptr) {  // not ours: the usual end, when this instruction is tried again
    signal(SIGBUS, SIG_DFL);
    if (info->si_code <= 0) raise(SIGBUS);  // somebody has sent it
    return;
  }
  Line line;
  line << program_name << ": pool '";
  line.path(pool.path) << "': ";
  if (info->si_code == BUS_MCEERR_AR || info->si_code == BUS_MCEERR_AO) {
    line << "the medium lost byte " << pool.offset
         << ": stop using it, look at pmstore pool check, and restore it from a copy";
  } else {
    line << "byte " << pool.offset
         << " has no memory: its file system is full, or somebody cut the file short: make room "
            "there and start again (what was acknowledged is kept), and do not make pools --sparse";
  }
  line.print();
  _exit(1);
}

}  // namespace

void explain_bus_errors(const char* program) {
  program_name = program;
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace pmstore::persist
