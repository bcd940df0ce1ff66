#include "fabric/ofi/internal/kept_signals.h"

#include <signal.h>

#include <array>

namespace pmstore::fabric::ofi {

struct KeptSignals::Actions {
  static constexpr std::array kNumbers = {SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGINT, SIGTERM};
  std::array<struct sigaction, kNumbers.size()> each;
};

KeptSignals::KeptSignals() : before_(std::make_unique<Actions>()) {
  for (size_t i = 0; i < Actions::kNumbers.size(); ++i) {
    sigaction(Actions::kNumbers[i], nullptr, &before_->each[i]);
  }
}

KeptSignals::~KeptSignals() {
  for (size_t i = 0; i < Actions::kNumbers.size(); ++i) {
    sigaction(Actions::kNumbers[i], &before_->each[i], nullptr);
  }
}

}  // namespace pmstore::fabric::ofi
