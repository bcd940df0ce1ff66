// BenchOptions: what every benchmark takes, and the parts of the object that every one prints.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/histogram.h"
#include "fabric/capabilities.h"
#include "tools/bench/model_options.h"
#include "tools/cli/session_options.h"

namespace CLI {
class App;
}

namespace pmstore::tools {

// Those of both, of which --uri or --model is needed. Both outlive the command.
void add_place_to(CLI::App& command, SessionOptions& session, ModelOptions& model);
// Checks combinations of options; errors are the parser's. With a model it changes the session's
// URI.
void check_place(SessionOptions& session, const ModelOptions& model);

struct BenchOptions {
  SessionOptions session;
  uint32_t threads = 1;
  uint32_t coroutines = 1;
  double seconds = 5;
  uint64_t ops = 0;  // 0: by time
  uint64_t seed = 1;
  uint64_t client_id = 0;  // of the first thread; the others count on; 0: random
  double ride_through_seconds = 0;
  std::string strategy = "auto";
  bool no_one_sided = false;
  std::string misses = "auto";
  std::string poll = "adaptive";
  uint64_t cache_entries = ClientOptions{}.location_cache_entries;
  ModelOptions model;

  // `threads_option`: what threads are called, "--threads" or "--clients".
  void add_to(CLI::App& command, const std::string& threads_option);
  // Checks that the parser cannot make: errors of ModelOptions::check(), and InvalidArgument where
  // an option has no meaning on the modelled machine or contradicts another option.
  Status check() const;
  // The options of the thread with this number.
  ClientOptions client_options(uint32_t thread) const;
  // A local:PATH with several threads: the server has a thread of its own, too.
  bool serves_itself() const;
};

// The results of the first connection's handshake, and the options, for "config".
nlohmann::ordered_json config_json(const BenchOptions& options, const SessionInfo& session);
// "domain adr (assumed), locks cpu, two_sided, reads one-sided, ..." for people.
std::string config_text(const BenchOptions& options, const SessionInfo& session);
// {"doorbells_per_op": ...}.
nlohmann::ordered_json counters_json(const fabric::Counters& counters, uint64_t ops);
// {"name", "ops", "rate_per_s", "p50_us", "p99_us", "p999_us", "max_us"}
nlohmann::ordered_json result_json(std::string_view name, const Histogram& latency_ns,
                                   double seconds);
std::string us_text(uint64_t ns);

}  // namespace pmstore::tools
