// MicroOptions: what bench micro and bench persist have in common on the command line.
#pragma once

#include <memory>
#include <string>

#include "tools/bench/micro_picture.h"
#include "tools/bench/micro_place.h"
#include "tools/bench/micro_report.h"

namespace CLI {
class App;
}

namespace pmstore::tools {

struct MicroOptions {
  MicroPlaceOptions place;
  MicroPoint point;
  std::string memory;
  std::string range;
  std::string ddio;
  std::string assume_domain;
  double seconds = 1;
  uint32_t model_clients = 48;  // the default of --clients on a modelled machine: they saturate it
  double warmup = -1;           // negative: the default
  // The default on the modelled machine, as --help prints it.
  std::string model_warmup = "0.005, and 0.04 where the server's CPU stores through its cache";
  bool json = false;
  PictureOptions picture;

  // The options of where, how many and how long.
  void add_to(CLI::App& command);
  // --plot and --plot-latency; `draws` names the plotted quantity.
  void add_picture(CLI::App& command, const std::string& draws);
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

// Prints "pmstore: WHAT: WHY"; kWrongUsage for InvalidArgument, else kFailed.
int fail_command(std::string_view what, const Error& why);

}  // namespace pmstore::tools
