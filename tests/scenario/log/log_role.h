// The server of the log service's scenarios: a pool in plain memory with a log area, and a LogHost.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "log/log_host.h"
#include "persist/pool.h"
#include "tests/scenario/harness.h"

namespace pmstore::scenario {

// How a server is started; travels as arguments of the role.
struct LogsSetup {
  persist::Domain domain = persist::Domain::kCpuCache;
  persist::WriteLanding landing = persist::WriteLanding::kMemory;
  uint32_t area_kib = 16 << 10;
  // An emulated guest or a busy machine may leave a client without a processor for seconds.
  uint32_t lease_ms = scheme() == fabric::Scheme::kVerbs ? 60'000 : 20'000;

  std::vector<std::string> to_args() const;
  static LogsSetup from_args(const std::vector<std::string>& args);
};

class LogRole final : public Role {
 public:
  ~LogRole() override;
  Result<fabric::Uri> start(base::Executor& executor, const fabric::Uri& uri,
                            const std::vector<std::string>& args) override;

 private:
  struct FreeMemory {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, FreeMemory> memory_;
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<log::LogHost> host_;  // goes first
};

}  // namespace pmstore::scenario
