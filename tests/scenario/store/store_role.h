// The server of the store scenarios: a pool in plain memory or in a file, and a Server on it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "persist/pool.h"
#include "pmstore/server.h"
#include "tests/scenario/harness.h"

namespace pmstore::scenario {

// How a server is started; travels as arguments of the role.
struct StoreSetup {
  LockDiscipline discipline = LockDiscipline::kCpu;
  // What the pool's memory is taken for.
  persist::Domain domain = persist::Domain::kCpuCache;
  std::string path;  // a file, made if it is not there; empty: plain memory, new each time
  uint32_t pool_mib = 32;
  // An emulated guest or a busy machine may leave a client without a processor for seconds.
  uint32_t lease_ms = scheme() == fabric::Scheme::kVerbs ? 60'000 : 20'000;
  uint32_t rings = 32;
  uint32_t ring_kib = 0;  // 0: the default for the pool's size
  // Transactions share drains, however short a drain is. Only under Domain::kNone.
  bool always_groups = false;

  std::vector<std::string> to_args() const;
  static StoreSetup from_args(const std::vector<std::string>& args);
};

class StoreRole final : public Role {
 public:
  Result<fabric::Uri> start(base::Executor& executor, const fabric::Uri& uri,
                            const std::vector<std::string>& args) override;

 private:
  Status open_pool(const StoreSetup& setup);

  struct FreeMemory {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, FreeMemory> memory_;
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<Server> server_;  // goes first
};

}  // namespace pmstore::scenario
