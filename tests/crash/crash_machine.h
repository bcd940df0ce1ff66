// CrashMachine: servers and a client host of the modelled machine, in virtual time, and a record of
// all that happens to the servers' persistent memory: what its CPU does, what its RNIC writes,
// and the packets in between. So the real code of both sides can live in it, and the power of the
// server can be cut at each event afterwards.
//
// Threads: one. Same options, same record. Everything that uses the devices is destroyed before it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "model/cluster.h"
#include "model/crash_recorder.h"

namespace pmstore::crash {

class CrashMachine {
 public:
  struct Options {
    bool ddio = false;
    // The time for which the server's RNIC keeps acknowledged bytes, unless a READ pushes them out.
    double hold_ns = 0;
    // The memory controller takes a line each 500 ns, and writes wait for it.
    bool slow_memory = false;
    uint64_t msync_ns = 0;    // for which an msync keeps the server's CPU from all else
    uint32_t send_queue = 0;  // work requests that a queue pair takes; 0: the model's
    uint64_t seed = 1;
    uint32_t servers = 1;
  };
  explicit CrashMachine(const Options& options);
  ~CrashMachine();

  base::Executor& executor() { return executor_; }
  model::Host& server(size_t index = 0) { return cluster_->host(index); }
  // Core `core` of the client's host.
  fabric::DeviceOpener& client(size_t core) { return cluster_->host(servers_).on_core(core); }

  // `memory` is persistent memory of the server from here on, and recorded. Borrowed until taken.
  void record(persist::Memory& memory);
  // The same for several servers. The first parts of `whole` are theirs, in their order; the other
  // parts are behind no RNIC.
  void record(std::span<persist::Memory* const> parts, std::span<const std::byte> whole);
  model::CrashRecorder& recorder() { return *recorder_; }
  // Ends the record.
  model::Trace take();

  template <typename T>
  T run(base::Task<T> task) {
    return executor_.run(std::move(task));
  }
  void pass(uint64_t ns);

 private:
  // Lets time pass in each msync.
  class SlowSync final : public persist::Observer {
   public:
    SlowSync(base::VirtualClock& clock, uint64_t ns) : clock_(clock), ns_(ns) {}
    bool takes_time() const { return ns_ > 0; }
    void on_store(const void*, const void*, size_t, bool) override {}
    void on_flush(const void*, size_t) override {}
    void on_drain() override {}
    void on_sync(const void*, size_t) override { clock_.advance_to(clock_.now_ns() + ns_); }

   private:
    base::VirtualClock& clock_;
    const uint64_t ns_;
  };

  base::VirtualClock clock_;
  SlowSync slow_sync_;
  base::Executor executor_;
  std::unique_ptr<model::Cluster> cluster_;
  const uint32_t servers_;
  std::vector<persist::Memory*> memories_;  // by server
  std::optional<model::CrashRecorder> recorder_;
};

}  // namespace pmstore::crash
