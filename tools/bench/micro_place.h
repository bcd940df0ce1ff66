// MicroPlace: where measurements are made: in this process, between processes, between machines,
// on a modelled machine.
//
// Threads: one thread makes all calls.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/bench/micro_service.h"
#include "tools/bench/micro_workload.h"

namespace pmstore::tools {

struct MicroResult {
  MicroTally tally;
  // Values that only a modelled machine has, per operation where the name says so; in order.
  nlohmann::ordered_json machine;
};

// The limits of the machine, whatever the program does.
struct MicroLimit {
  double per_s;         // requests
  std::string_view of;  // what would be busy all the time: "link", "NVM media"
};

class MicroPlace {
 public:
  virtual ~MicroPlace() = default;
  // Unsupported, in one line, when the point asks for something that cannot be had here.
  virtual Status check(const MicroPoint& point) const = 0;
  // Requires check_point(point) and check(point).
  virtual Result<MicroResult> measure(const MicroPoint& point) = 0;
  // Nothing on a real machine, where it is unknown.
  virtual std::optional<MicroLimit> limit(const MicroPoint& /*point*/) const { return {}; }
  // Rules that no measurement here can switch; they are as the machine is.
  virtual persist::Rules fixed_rules() const = 0;
  // For "config".
  virtual nlohmann::ordered_json config() const = 0;
  // For people: "local", "modelled machine optane-cx5".
  virtual std::string name() const = 0;
};

// How the user said where. At most one of uri, model; neither: a server of our own on `fabric`.
struct MicroPlaceOptions {
  std::string uri;  // of a running server
  std::string fabric = "local";
  std::string address = "127.0.0.1";  // of this machine, for a server of our own on tcp and verbs
  uint64_t memory_bytes = 0;          // of a server of our own; 0: the range
  std::string pool;
  bool force = false;
  std::string model;             // a set of parameters of the modelled machine
  std::string model_parameters;  // a TOML file that changes some of them
  uint32_t hosts = 5;            // modelled: one server, the others clients
  std::string dimm_trace;        // modelled: a file that gets the counters of the server's DIMMs
};

// Real machines. A server of our own is a thread with `local` and a child process otherwise; it is
// started with the first measurement, and again whenever one needs another server.
Result<std::unique_ptr<MicroPlace>> open_real_place(const MicroPlaceOptions& options);
// The modelled machine `options.model`, in virtual time: the same point gives the same result,
// wherever it is measured. Each measurement has a machine of its own: host 0 serves, client i is
// on one of the others. Rule H1 off puts the target memory on the other socket than RNIC and server
// threads. InvalidArgument for an unknown model, parameter or number of hosts.
Result<std::unique_ptr<MicroPlace>> open_model_place(const MicroPlaceOptions& options);

}  // namespace pmstore::tools
