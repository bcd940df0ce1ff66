// UncutReplicasRun: servers with replicas, without power cuts. Such a run checks itself while it
// runs, at turns that it chooses. Its trace is empty, and a start on it finds nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/executor.h"
#include "model/page_bytes.h"
#include "persist/memory.h"
#include "tests/crash/recorded_run.h"
#include "tests/crash/replica_servers.h"

namespace pmstore::crash {

using Servers = std::vector<size_t>;

class UncutReplicasRun : public RecordedRun {
 public:
  Result<std::unique_ptr<Restarted>> restart(std::span<std::byte> memory) const override {
    return std::unique_ptr<Restarted>(new Nobody(memory));
  }

 protected:
  // Starts all servers.
  UncutReplicasRun(const std::string& scenario, uint64_t seed, size_t servers)
      : RecordedRun(scenario, seed),
        executor_(clock_, base::ExecutorOptions{.seed = seed + 1}),
        memory_(ReplicaServers::memory_bytes(servers)) {
    ReplicaServers::format(memory_.bytes(), servers, kDomain);
    servers_.emplace(executor_, memory_.bytes(), servers, kDomain);
    must(servers_->open());
    for (size_t i = 0; i < servers; ++i) must(servers_->start(i));
  }
  // The constructor of a derived class calls this when the run is over and everything that it
  // opened is closed.
  void end() {
    servers_.reset();
    trace_.domain = kDomain;
    trace_.initial.assign(64, std::byte());
    allow({kNothing});
  }

  static void must(const Status& done) {
    PMSTORE_CHECK(done.has_value(), done ? "" : done.error().message.c_str());
  }
  static std::vector<std::string> uris(const Servers& servers) {
    std::vector<std::string> all;
    for (const size_t server : servers) all.push_back(ReplicaServers::uri(server));
    return all;
  }

  base::VirtualClock clock_;
  base::Executor executor_;
  model::PageBytes memory_;
  std::optional<ReplicaServers> servers_;

 private:
  static constexpr auto kDomain = persist::Domain::kMemoryController;

  class Nobody final : public Restarted {
   public:
    explicit Nobody(std::span<std::byte> memory) : memory_(memory, {.domain = kDomain}) {}
    std::vector<persist::Memory*> memories() override { return {&memory_}; }
    Result<uint64_t> recover() override { return kNothing; }
    Result<uint64_t> work() override { return kNothing; }

   private:
    persist::Memory memory_;
  };
};

}  // namespace pmstore::crash
