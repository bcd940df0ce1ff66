#include "tools/bench/bench_control.h"

namespace pmstore::tools {
namespace {

std::atomic<BenchControl*> interruptible{nullptr};
std::atomic<bool> was_interrupted{false};

void on_signal(int) {
  was_interrupted.store(true);
  if (BenchControl* const control = interruptible.load()) control->stop();
}

}  // namespace

StopOnSignal::StopOnSignal(BenchControl& control) {
  interruptible.store(&control);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, &old_int_);
  sigaction(SIGTERM, &action, &old_term_);
}

StopOnSignal::~StopOnSignal() {
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
  interruptible.store(nullptr);
}

bool StopOnSignal::interrupted() { return was_interrupted.load(); }

}  // namespace pmstore::tools
