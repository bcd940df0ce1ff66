// LogLoad: producers that append to logs as fast as they can, and a reader that checks everything
// that was acknowledged.
//
// Laps: all threads connect; all producers append until the time is over or a log is full; the
// first thread reads every log from the last lap's end on (tools/bench/log_audit.h) and trims it;
// and so on. Only the appends' time counts. Of replicated logs every replica is read and checked.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/histogram.h"
#include "base/spin_window.h"
#include "fabric/capabilities.h"
#include "persist/strategy.h"
#include "tools/bench/log_audit.h"
#include "tools/bench/model_options.h"
#include "tools/cli/session_options.h"

namespace pmstore::tools {

enum class LogMode : uint8_t {
  kExclusive,  // a log for each producer, which appends one-sided where that is durable
  kShared,     // one log, by RPC, group commit
};
std::string_view log_mode_name(LogMode mode);
Result<LogMode> parse_log_mode(std::string_view text);

struct LogLoadOptions {
  SessionOptions session;
  ModelOptions model;
  LogMode mode = LogMode::kExclusive;
  uint32_t producers = 1;   // connections
  uint32_t threads = 1;     // among which they are divided
  uint32_t coroutines = 1;  // appends at a time of each producer
  uint32_t batch = 1;       // entries of each append
  size_t payload_bytes = 128;
  uint64_t log_bytes = 2u << 20;  // of each log
  double seconds = 5;
  uint64_t appends = 0;  // altogether; 0: by time
  uint64_t seed = 1;
  base::PollMode poll = base::PollMode::kAdaptive;                  // of all threads
  persist::WriteStrategy strategy = persist::WriteStrategy::kAuto;  // of exclusive producers
  // Servers of each log's replicas, instead of the session's URI; exclusive only.
  std::vector<std::string> replicas;
};

struct LogLoadResult {
  double seconds = 0;  // of appending, all laps together
  Histogram append_ns;
  fabric::Counters counters;  // of the producers' connections, while they appended
  uint64_t laps = 0;
  LogAuditResult audit;                            // of replicated logs, all replicas together
  std::optional<persist::WriteStrategy> strategy;  // in force; exclusive only
  bool interrupted = false;                        // SIGINT or SIGTERM ended it early
  // On the modelled machine: its parameters, and its counters during the appends.
  nlohmann::ordered_json model_config;
  nlohmann::ordered_json model_counters;
  model::DimmCounters dimms;
};

// Makes logs named "bench/..." and deletes them at its end, and before that any that a run before
// has left. Shows its progress on a terminal. Errors of LogClient and LogProducer; Full when the
// pool has no room for the logs. An entry that the audit finds wrong is no error here.
Result<LogLoadResult> run_log_load(const LogLoadOptions& options);

}  // namespace pmstore::tools
