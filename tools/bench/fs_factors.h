// FsFactors: bench fs --factors: reads and writes of 1 KiB to 1 MiB on the modelled machine, with
// all rules, with each rule alone switched off, and with each strategy of durable writes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/bench/fs_load.h"
#include "tools/bench/plot.h"

namespace pmstore::tools {

struct FsFactorRow {
  std::string operation;  // "read" or "write"
  std::string variant;    // "all", "-h3", "doorbell"
  bool is_strategy = false;
  uint64_t payload_bytes = 0;
  FsLoadResult result;
  std::string refused;  // why it has no result; else empty

  // NaN without a result.
  double rate_per_s() const;
  double gbit_per_s() const;
};

// Each on a machine of its own that is like the one of `base`, whose rules, strategy, payload,
// share of reads, and files are replaced. The first error but Unsupported, which is kept.
Result<std::vector<FsFactorRow>> run_fs_factors(const FsLoadOptions& base);
nlohmann::ordered_json fs_factors_json(const std::vector<FsFactorRow>& rows);
// For people: Gbit/s, a column for each payload.
std::string fs_factors_text(const std::vector<FsFactorRow>& rows);
Plot fs_factors_picture(const std::vector<FsFactorRow>& rows, const std::string& title);

}  // namespace pmstore::tools
