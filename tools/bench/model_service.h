// ModelService: a store on the modelled machine: one host that serves a pool in its persistent
// memory, further ones that are data servers of its files, and client hosts, all in this process
// and in virtual time.
//
// Threads: one, that of the executor, whose clock must be virtual. The executor outlives it;
// clients are closed and destroyed before it.
#pragma once

#include <sys/mman.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fs/files_server.h"
#include "model/cluster.h"
#include "persist/pool.h"
#include "pmstore/server.h"
#include "tools/bench/model_options.h"

namespace pmstore::tools {

// {"NReadReq", "NWriteReq", "NMediaRead", "NMediaWrite"}, the hardware's names.
nlohmann::ordered_json dimm_json(const model::DimmCounters& dimm);

struct ModelServiceOptions {
  ModelOptions model;
  persist::Domain domain = persist::Domain::kMemoryController;
  std::optional<LockDiscipline> discipline;
  uint32_t clients = 1;
  uint64_t seed = 1;
  uint64_t log_bytes = 0;   // of the pool, for logs from the beginning
  uint64_t file_bytes = 0;  // of the pool, for the data of files; 0: it serves no files
  // Of files: that of the pool, and others that have as much, on the hosts behind the first one.
  // Less than ModelOptions::hosts.
  uint32_t data_servers = 1;
};

class ModelService {
 public:
  // Errors of Cluster::create, format_pool, Server::start, FilesServer::start and ModelOptions.
  static Result<std::unique_ptr<ModelService>> start(Executor& executor,
                                                     const ModelServiceOptions& options);
  ~ModelService();

  const fabric::Uri& uri() const { return served_.front().uri; }
  persist::Rules rules() const { return rules_; }
  // The host and core of client `number`: the client hosts take turns, then their cores.
  fabric::DeviceOpener& client_core(uint32_t number);
  // Ends the server in order; once. Errors of Server::stop.
  Status stop();
  // {"machine", "hosts", "rules", ...}: the modelled machine.
  nlohmann::ordered_json config_json() const;
  // The counters of the server's RNIC and DIMMs since mark(), including the contents of the DIMMs'
  // combining buffers at both moments.
  void mark();
  // Operations between the two calls are not counted.
  void pause();
  void resume();
  model::DimmCounters dimms() const;  // all of them together
  nlohmann::ordered_json counters_json() const;

 private:
  struct Unmap {
    size_t bytes;
    void operator()(void* memory) const { munmap(memory, bytes); }
  };
  struct Mark {
    model::RnicCounters rnic;
    std::vector<model::DimmCounters> dimms;
    uint64_t busy_ps = 0;
    uint64_t now_ps = 0;
    Mark operator-(const Mark& other) const;
  };
  // A pool in the memory of a host, and what serves it.
  struct Served {
    uint32_t host = 0;
    std::unique_ptr<void, Unmap> memory;
    std::unique_ptr<persist::Pool> pool;
    std::unique_ptr<Server> server;
    std::unique_ptr<fs::FilesServer> files;
    fabric::Uri uri{fabric::Scheme::kLocal, {}, 0};
  };
  explicit ModelService(Executor& executor) : executor_(executor) {}
  Status open(const ModelServiceOptions& options);
  Status serve(Served& served, const std::string& name);
  // The other data servers are known to the file system.
  Status add_data_servers();
  Mark now() const;
  Mark counted() const;  // since mark(), without the pauses

  Executor& executor_;
  ModelServiceOptions options_;
  persist::Rules rules_ = persist::Rules::all();
  std::unique_ptr<model::Cluster> cluster_;
  std::vector<Served> served_;  // by host; of files, the first has the names
  Mark mark_;
  std::optional<Mark> paused_;
};

}  // namespace pmstore::tools
