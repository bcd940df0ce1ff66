// FsScaling: bench fs --scaling: reads and writes of 64 KiB to 1 MiB on the modelled machine, with
// files that are striped over 1, 2, 4 and 8 data servers.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/bench/fs_load.h"
#include "tools/bench/plot.h"

namespace pmstore::tools {

struct FsScalingRow {
  std::string operation;  // "read" or "write"
  uint32_t data_servers = 0;
  uint64_t payload_bytes = 0;
  FsLoadResult result;

  double rate_per_s() const;
  double gbit_per_s() const;
};

// Each on a machine of its own that is like the one of `base`, with a host for each data server and
// each client. The first error.
Result<std::vector<FsScalingRow>> run_fs_scaling(const FsLoadOptions& base);
nlohmann::ordered_json fs_scaling_json(const std::vector<FsScalingRow>& rows);
// For people: Gbit/s, a column for each number of data servers.
std::string fs_scaling_text(const std::vector<FsScalingRow>& rows);
Plot fs_scaling_picture(const std::vector<FsScalingRow>& rows, const std::string& title);

}  // namespace pmstore::tools
