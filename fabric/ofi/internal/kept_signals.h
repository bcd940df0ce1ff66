// KeptSignals: the actions of SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGINT and SIGTERM are at its end
// what they were at its beginning, whatever a library has installed meanwhile. Any thread; the
// program does not change them itself meanwhile.
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
