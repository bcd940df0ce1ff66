#include "fabric/internal/foreign_signals.h"

#include <dlfcn.h>
#include <signal.h>

#include <string_view>

namespace pmstore::fabric::internal {

namespace {

bool is_foreign(const struct sigaction& action) {
  void* handler = nullptr;
  if ((action.sa_flags & SA_SIGINFO) != 0) {
    handler = reinterpret_cast<void*>(action.sa_sigaction);
  } else if (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN) {
    handler = reinterpret_cast<void*>(action.sa_handler);
  }
  Dl_info where{};
  if (handler == nullptr || dladdr(handler, &where) == 0 || where.dli_fname == nullptr)
    return false;
  const std::string_view file = where.dli_fname;
  return file.find("libpsm") != file.npos || file.find("libinfinipath") != file.npos;
}

}  // namespace

void drop_foreign_signal_handlers() {
  for (const int number : {SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGINT, SIGTERM}) {
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) != 0 || !is_foreign(action)) continue;
    struct sigaction usual {};
    usual.sa_handler = SIG_DFL;
    sigaction(number, &usual, nullptr);
  }
}

}  // namespace pmstore::fabric::internal
