// MicroOptions: what bench micro and bench persist have in common on the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "tools/micro_place.h"
#include "tools/micro_report.h"

namespace pmstore::tools {

struct MicroOptions {
  MicroPlaceOptions place;
  MicroPoint point;
  std::string memory;
  std::string range;
  std::string ddio;
  std::string assume_domain;
  double seconds = 1;
  double warmup = -1;  // negative: the default
  bool json = false;
  std::string plot;

  // The options of where, how many and how long.
  void add_to(CLI::App& command);
  // After parsing by `command`: fills `point` and `place` from the texts. InvalidArgument, also for
  // an option that could not act.
  Status complete(const CLI::App& command);
  bool on_model() const { return !place.model.empty(); }
  Result<std::unique_ptr<MicroPlace>> open_place() const;
};

// Checks all cases, then measures one after the other, with a progress line. The first error ends
// it; with `keep_going`, a refusal (Unsupported) is a row without result.
Result<std::vector<MicroRow>> measure_all(MicroPlace& place, const std::vector<MicroCase>& cases,
                                          bool keep_going);

// Status 2 for InvalidArgument, else 1.
int fail_micro(std::string_view what, const Error& why);

}  // namespace pmstore::tools
