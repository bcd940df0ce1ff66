// Parameters: every number of the modelled machine, with its source, in one place.
//
// A set of parameters has a name ("optane-cx5") and may be changed field by field from a TOML file
// whose tables are the sections below. Times are ns, rates bytes per ns (1 byte/ns = 8 Gb/s), sizes
// bytes. model/parameters.cc says for each field where its value comes from: published, derived, or
// fitted (and to what). Threads: plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pmstore::model {

// One Optane DIMM (model/dimm.h), and how many there are on a socket.
struct DimmParameters {
  double per_socket = 6;
  double interleave_bytes = 4096;
  double media_write_ns = 115.4;   // of one XPLine
  double media_read_ns = 38.4;     // of one XPLine
  double read_write_turn_ns = 40;  // more, when a read and a write follow each other
  double read_latency_ns = 250;    // of a 64-byte request that misses the buffer
  double combining_lines = 64;     // XPLines in the write-combining buffer
};

// The sets that there are, in the order in which they are listed to people.
struct Parameters {
  std::string name;
  DimmParameters dimm;
};

// What is known about one field.
struct ParameterInfo {
  std::string name;  // "dimm.media_write_ns"
  double value;
  std::string source;  // "published: ...", "derived: ..." or "fitted: ..."
};

std::vector<std::string> parameter_set_names();
// InvalidArgument naming the sets that there are.
Result<Parameters> named_parameters(std::string_view name);
// Changes `parameters` by the TOML file at `path`. InvalidArgument for a field that is not known
// (names those of its section), a value that is no number or out of its range, or a file that is
// not TOML; Io when it cannot be read. Nothing is changed then.
Status override_parameters(Parameters& parameters, const std::string& path);
// The same from TOML text; `origin` stands for the file in messages.
Status override_parameters_text(Parameters& parameters, std::string_view toml,
                                const std::string& origin);
std::vector<ParameterInfo> describe(const Parameters& parameters);

}  // namespace pmstore::model
