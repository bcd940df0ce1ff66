// The report of bench micro and bench persist: rows of measurements as a table and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/micro_place.h"
#include "tools/bench/micro_sweep.h"

namespace pmstore::tools {

struct MicroRow {
  MicroCase measured;
  std::optional<MicroResult> result;
  std::string refused;  // why there is no result
  std::optional<MicroLimit> limit;
};

// One entry of "results".
nlohmann::ordered_json row_json(const MicroRow& row);
// All rows. `relative`: how much faster than the first and than the previous row of the group.
std::string rows_text(const std::vector<MicroRow>& rows, bool relative);
// {"bench", "revision", "config": {place, rules that are fixed, `more`}, "results"}.
nlohmann::ordered_json report_json(std::string_view bench, const MicroPlace& place,
                                   nlohmann::ordered_json more, const std::vector<MicroRow>& rows);
// "modelled machine optane-cx5; h1, h3 as the machine is; revision ..."
std::string place_text(const MicroPlace& place);

// Payload bits moved in a second.
double gbit_per_s(const MicroRow& row);

}  // namespace pmstore::tools
