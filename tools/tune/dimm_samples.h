// Readings of the DIMMs' performance counters, and rates between two readings.
//
// A reading is what `ipmctl show -dimm -performance` prints. Its manual settles the units: media
// reads and writes are counted in 64 bytes (each access of 256 bytes counts four), requests are
// transactions of 64 bytes. MediaReads counts the writes as well: Intel's own pmwatch subtracts
// them (src/pmw_collect.c), and ipmctl's issue 205 measured a random read and a random write of 64
// bytes as 8.4 of it and 4.3 of MediaWrites.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pmstore::tools {

struct DimmReading {
  std::string name;            // "0x0001"
  uint64_t read_requests = 0;  // all four in units of 64 bytes
  uint64_t write_requests = 0;
  uint64_t media_reads = 0;  // and writes, as the DIMM counts
  uint64_t media_writes = 0;
  bool operator==(const DimmReading&) const = default;
};

struct DimmSample {
  double seconds = 0;  // of some clock that goes on
  std::vector<DimmReading> dimms;
};

// InvalidArgument, naming the missing part, when `text` is no output of ipmctl.
Result<std::vector<DimmReading>> parse_ipmctl(std::string_view text);
// The ipmctl command whose output parse_ipmctl() reads.
std::string ipmctl_text(const std::vector<DimmReading>& dimms);
// A recorded trace: readings, each behind a line "time SECONDS". InvalidArgument likewise, also for
// fewer than two, for times that do not grow, and for DIMMs that change.
Result<std::vector<DimmSample>> parse_trace(std::string_view text);

// Between two readings of one DIMM, or the sum over several.
struct DimmDelta {
  std::string name;
  double seconds = 0;
  uint64_t read_requests = 0, write_requests = 0;
  uint64_t media_reads = 0;  // reads alone
  uint64_t media_writes = 0;

  // Media bytes for each byte asked for; 0 when none was.
  double write_amplification() const;
  double read_amplification() const;
  // Requests to read for each one to write; 0 without writes.
  double reads_per_write() const;
  double megabytes_per_s(uint64_t units) const;
};

// InvalidArgument, naming what differs, unless both readings are of the same DIMMs in the same
// order.
Status check_same_dimms(const DimmSample& before, const DimmSample& after);

// One for each DIMM, then their sum, named "all". A counter that went back (a power cycle) counts
// 0. Requires check_same_dimms().
std::vector<DimmDelta> deltas(const DimmSample& before, const DimmSample& after);

// One line: which rule these figures say is broken, if any.
std::string advice(const DimmDelta& all);

}  // namespace pmstore::tools
