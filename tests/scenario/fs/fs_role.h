// The server of the file system's scenarios: a pool in plain memory or in a file, a Server on it,
// and its files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fs/files_server.h"
#include "persist/pool.h"
#include "pmstore/server.h"
#include "tests/scenario/harness.h"

namespace pmstore::scenario {

// How a server is started; travels as arguments of the role.
struct FilesSetup {
  // What the pool's memory is taken for.
  persist::Domain domain = persist::Domain::kCpuCache;
  persist::WriteLanding landing = persist::WriteLanding::kMemory;
  std::string path;  // a file, made if it is not there; empty: plain memory, new each time
  uint32_t pool_mib = 48;
  uint32_t files_mib = 16;
  bool data_server = false;  // it serves no names
  // An emulated guest or a busy machine may leave a client without a processor for seconds.
  uint32_t lease_ms = scheme() == fabric::Scheme::kVerbs ? 60'000 : 20'000;

  std::vector<std::string> to_args() const;
  static FilesSetup from_args(const std::vector<std::string>& args);
};

class FilesRole final : public Role {
 public:
  ~FilesRole() override;
  Result<fabric::Uri> start(base::Executor& executor, const fabric::Uri& uri,
                            const std::vector<std::string>& args) override;

 private:
  Status open_pool(const FilesSetup& setup);

  struct FreeMemory {
    void operator()(std::byte* memory) const;
  };
  base::Executor* executor_ = nullptr;
  std::unique_ptr<std::byte, FreeMemory> memory_;
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<fs::FilesServer> files_;
  std::unique_ptr<Server> server_;  // goes first
};

}  // namespace pmstore::scenario
