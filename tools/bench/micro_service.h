// MicroService: the server of the remote-access benchmark on a real machine: memory, and threads
// that serve it.
//
// Threads: one thread makes all calls. The memory is scratch: nvm is a pool that is made for the
// run, and whose file is gone when the run is.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fabric/uri.h"
#include "persist/pool.h"
#include "tools/bench/micro_server.h"

namespace pmstore::tools {

struct MicroServiceOptions {
  fabric::Uri listen{fabric::Scheme::kLocal, {}, 0};
  uint32_t threads = 1;
  uint64_t bytes = 64u << 20;  // of each medium
  std::string pool;            // nvm: a file to be made, or a DAX device; empty: no nvm
  bool force = false;          // overwrite the pool on the DAX device
  std::optional<persist::Domain> assume_domain;
  bool ddio = true;  // what is said of the machine
  // Whether a server started with one is what the other asks for.
  bool same_server(const MicroServiceOptions& other) const;
};

class MicroService {
 public:
  // Errors of Pool::create, of opening the fabric, of MicroServer::start.
  static Result<std::unique_ptr<MicroService>> start(const MicroServiceOptions& options);
  // Ends the threads.
  ~MicroService();

  // Of the first thread; clients need only this one.
  const fabric::Uri& uri() const { return uri_; }

 private:
  class Worker;
  explicit MicroService(const MicroServiceOptions& options);
  Status prepare_dram();
  Status prepare_nvm();

  MicroServiceOptions options_;
  fabric::Uri uri_;
  std::span<std::byte> mapping_;  // of the DRAM
  std::unique_ptr<persist::Pool> pool_;
  MicroServerOptions memory_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace pmstore::tools
