// PoolService: a pool, a server on it, with its files, and where it listens; what pmstored runs,
// and what the benchmarks run in a thread of their own.
//
// Threads: one thread makes all calls, except request_stop() and wake(). Lifetimes: it owns the
// executor.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "fabric/uri.h"
#include "fs/files_server.h"
#include "persist/pool.h"
#include "pmstore/server.h"
#include "pmstore/space_rules.h"

namespace pmstore::tools {

struct ServiceOptions {
  std::string pool;
  std::vector<fabric::Uri> listen;
  persist::PoolOpenOptions open;
  ServerOptions server;
  base::ExecutorOptions executor;
  // Creates and formats the pool with this size when the path does not exist.
  std::optional<uint64_t> create_bytes;
  bool data_server = false;  // as fs::FilesServerOptions
  uint64_t max_inodes = 0;   // likewise
  size_t max_opens = fs::FilesServerOptions{}.max_opens;
  std::function<void(const Error&)> on_fenced = {};              // likewise
  std::function<void(const std::string&)> on_files_damage = {};  // as its on_damage
  bool files = false;                                            // as its make_area
};

// A new pool with a store in it; durable on return. A file appears with all of it, or not at all.
// Errors of Pool::create and format_store.
Result<std::unique_ptr<persist::Pool>> create_store(const std::string& path, uint64_t bytes,
                                                    const persist::PoolOpenOptions& open,
                                                    const FormatOptions& format, bool force);

class PoolService {
 public:
  // Errors of Pool::create, Pool::open, Server::start, FilesServer::start and Server::listen.
  static Result<std::unique_ptr<PoolService>> start(const ServiceOptions& options);
  ~PoolService();

  // Serves until request_stop(), then calls `stopping`, if there is one, and stops in order; the
  // errors of Server::stop().
  Status run(const std::function<void()>& stopping = {});
  // Any thread, also a signal handler.
  void request_stop() { executor_.request_stop(); }
  // The executor polls once more. Any thread, also a signal handler.
  void wake() { executor_.wake(); }

  const std::vector<fabric::Uri>& uris() const { return uris_; }
  const Server& server() const { return *server_; }
  const persist::PoolInfo& pool_info() const { return pool_->info(); }
  // Those in force: the pool's, and of this run.
  const persist::SpaceRules& space_rules() const { return pool_->space_rules(); }
  Result<std::optional<std::string>> excess_ring_reserve() {
    return pmstore::excess_ring_reserve(*pool_);
  }
  Executor& executor() { return executor_; }
  void set_outcome_retention_ms(uint32_t ms) { server_->set_outcome_retention_ms(ms); }

 private:
  explicit PoolService(const base::ExecutorOptions& options) : executor_(clock_, options) {}
  Status stop();
  base::RealClock clock_;
  Executor executor_;
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<fs::FilesServer> files_;  // outlives the server, which has its services
  std::unique_ptr<Server> server_;
  std::vector<fabric::Uri> uris_;
};

// A PoolService that serves on its own thread from start() to the destructor.
class ServiceThread {
 public:
  static Result<std::unique_ptr<ServiceThread>> start(const ServiceOptions& options);
  ~ServiceThread();

 private:
  ServiceThread() = default;
  PoolService* service_ = nullptr;  // lives on thread_'s stack
  std::thread thread_;
};

}  // namespace pmstore::tools
