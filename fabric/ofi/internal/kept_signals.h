// KeptSignals: saves the actions of SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGINT and SIGTERM, and
// restores them when it is destroyed, whatever a library has installed meanwhile. Any thread; the
// program itself must not change them meanwhile.
#pragma once

#include <memory>

namespace pmstore::fabric::ofi {

class KeptSignals {
 public:
  KeptSignals();
  ~KeptSignals();
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;

 private:
  struct Actions;
  const std::unique_ptr<Actions> before_;
};

}  // namespace pmstore::fabric::ofi
