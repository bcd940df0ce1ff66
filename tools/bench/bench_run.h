// Running a benchmark: threads with a client each, the phases they go through together, and the
// progress line.
//
// Phases: the first thread connects and prepares; the others connect; all work; the others close;
// the first one finishes (so an audit is alone with the store) and closes.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "fabric/capabilities.h"
#include "tools/bench/bench_control.h"
#include "tools/bench/bench_options.h"

namespace pmstore::tools {

class Bench {
 public:
  virtual ~Bench() = default;
  // On the first thread, before the others connect. Repeated when the server goes away meanwhile.
  virtual Task<Status> prepare(Client& client) = 0;
  // One coroutine of one thread. The error ends the whole run.
  virtual Task<Status> work(Client& client, uint32_t thread, uint32_t coroutine,
                            BenchControl& control) = 0;
  // Runs on the first thread, after all work, when no other client is connected. Repeated likewise.
  virtual Task<Status> finish(Client& client) = 0;
  // For the progress line; any time, from another thread.
  virtual std::string progress(double seconds) = 0;
};

struct BenchRun {
  double seconds = 0;  // from the first start to the last end of work
  fabric::Counters counters;
  SessionInfo session;  // of the first thread
  uint64_t reconnects = 0;
  bool interrupted = false;  // SIGINT or SIGTERM ended it early
  // On the modelled machine: what it was, and what it counted while there was work.
  nlohmann::ordered_json model_config;
  nlohmann::ordered_json model_counters;
};

// The error that ended it, or what happened.
Result<BenchRun> run_bench(Bench& bench, const BenchOptions& options);

}  // namespace pmstore::tools
