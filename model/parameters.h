// Parameters: all numbers of the modelled machine, with the source of each.
//
// A set of parameters has a name ("optane-cx5") and may be changed field by field from a TOML file
// whose tables are the sections below. Times are ns, rates bytes per ns (1 byte/ns = 8 Gb/s), sizes
// bytes. model/parameters.cc says for each field where its value comes from: published, derived,
// fitted (and to what), or assumed (docs/model.md says what depends on it). Threads: plain
// data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/rnic_parameters.h"

namespace pmstore::model {

// One Optane DIMM (model/dimm.h), and how many there are on a socket.
struct DimmParameters {
  double per_socket = 6;
  double interleave_bytes = 4096;
  double media_write_ns = 115.4;   // of one XPLine
  double media_read_ns = 38.4;     // of one XPLine
  double read_write_turn_ns = 15;  // more, when a read and a write follow each other
  double read_latency_ns = 250;    // of a 64-byte request that misses the buffer
  double buffer_latency_ns = 90;   // of one that finds its XPLine there
  double combining_lines = 64;     // XPLines in the buffer, which reads and writes share
  double media_queue = 8;          // XPLines on their way from the buffer to the media
  // With that many CPU cores writing, the DIMM begins to lose, and has lost crowd_loss of its speed
  // with crowd_full cores. Devices do not count. The cause is not known: see docs/model.md.
  double crowd_begin = 4;
  double crowd_full = 20;
  double crowd_loss = 0.37;
};

// The memory controllers of a socket (model/memory_controller.h).
struct ImcParameters {
  double write_queue = 64;  // requests of 64 bytes, for each DIMM
  double request_ns = 3;    // of the bus to a DIMM, for 64 bytes
};

// The DRAM of a socket (model/dram.h).
struct DramParameters {
  double channels = 6;
  double line_ns = 3;      // of a channel, for 64 bytes
  double latency_ns = 62;  // from the controller and back
};

// The last-level cache of a socket (model/last_level_cache.h).
struct LlcParameters {
  double kib = 33792;
  double ways = 11;
  double ddio_ways = 2;
  double hit_ns = 20;           // from a core and back
  double second_oldest = 0.18;  // share of evictions that take the second oldest line
};

// The way between two sockets (model/interconnect.h).
struct NumaParameters {
  double latency_ns = 65;       // one way
  double read_line_ns = 3.2;    // of the link, for 64 bytes read
  double full_line_ns = 10.24;  // for 64 bytes written without reading them first
  double owned_line_ns = 57.2;  // for 64 bytes read, changed and written back
};

// The path between an RNIC and its socket (model/pcie.h).
struct PcieParameters {
  double latency_ns = 250;      // one way
  double bytes_per_ns = 15.75;  // each direction
  double max_payload_bytes = 256;
  double header_bytes = 26;   // of a transaction packet, with framing
  double posted_lines = 256;  // lines written that the root complex works on at a time
};

// A core's ways to memory (model/cpu_memory_path.h). What code costs beside that is not here.
struct CpuParameters {
  double cores_per_socket = 24;
  double private_hit_ns = 1;  // a line that this core was the last to touch
  double store_ns = 1;        // to issue a store, a streaming store or a write-back of one line
  double fill_buffers = 12;   // lines on their way to or from one core
  double write_back_ns = 60;  // from clwb until the controller has the line
  // A core that waits for a line which a device writes past the cache: beyond reading it.
  double bypassed_ns = 250;
  double streaming_ns = 89;  // from a streaming store until the controller has the line
};

// All sets, in the order in which the command line lists them.
struct Parameters {
  std::string name;
  DimmParameters dimm;
  ImcParameters imc;
  DramParameters dram;
  LlcParameters llc;
  NumaParameters numa;
  PcieParameters pcie;
  CpuParameters cpu;
  RnicParameters rnic;
  LinkParameters link;
  CoreParameters core;
};

// One field, with its value and source.
struct ParameterInfo {
  std::string name;  // "dimm.media_write_ns"
  double value;
  std::string source;  // "published: ...", "derived: ...", "fitted: ..." or "assumed: ..."
};

std::vector<std::string> parameter_set_names();
// InvalidArgument, with the names of all sets, for an unknown name.
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
