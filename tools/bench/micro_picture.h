// Pictures of what bench micro and bench persist have measured: which panels, bars and curves there
// are, and what they are called.
#pragma once

#include <string>
#include <vector>

#include "tools/bench/micro_report.h"
#include "tools/bench/plot.h"

namespace pmstore::tools {

struct PictureOptions {
  std::string path;
  bool latency = false;  // also p50 and p99, in panels of their own
};

// `axes` empty: a panel with bars for each group. Else curves over the last axis, whose values are
// numbers: one for each combination of the others, in a panel for each payload; over payloads, also
// how many bits those are. A row without a result is a bar of no height, or no point of its curve.
Plot picture_of(const std::vector<MicroRow>& rows, const std::vector<MicroAxis>& axes,
                const std::string& title, bool latency);
// Before a long measurement. InvalidArgument when the picture would have too many panels or curves,
// and the errors of check_plot().
Status check_picture(const std::vector<MicroCase>& cases, const std::vector<MicroAxis>& axes,
                     const PictureOptions& options);

}  // namespace pmstore::tools
