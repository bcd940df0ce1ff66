// DimmSource: who is asked for the counters of this machine's DIMMs: libipmctl, or the program
// ipmctl.
//
// Threads: one at a time. Both need root.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "tools/tune/dimm_samples.h"

namespace pmstore::tools {

class DimmSource {
 public:
  virtual ~DimmSource() = default;
  // Now. Io, naming who was asked; NotFound when there are no DIMMs.
  virtual Result<DimmSample> read() = 0;
};

// `program` when it is not empty; else the library where it is installed, else the program ipmctl.
Result<std::unique_ptr<DimmSource>> open_dimm_source(const std::string& library,
                                                     const std::string& program);

}  // namespace pmstore::tools
