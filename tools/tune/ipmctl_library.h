// IpmctlLibrary: Intel's libipmctl, where it is installed: health and counters of Optane DIMMs. It
// is loaded at run time, so that the programs do not need it.
//
// Threads: one at a time. Answers need root. Reads only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "tools/tune/dimm_samples.h"

namespace pmstore::tools {

// The soname of ipmctl 2 and 3.
inline constexpr char kIpmctlLibrary[] = "libipmctl.so.5";

class IpmctlLibrary {
 public:
  struct Dimm {
    uint32_t handle = 0;  // the NFIT's, which ipmctl prints as DimmID and libndctl knows, too
    std::string uid;
  };

  // NotFound when there is no such library; Io when it lacks a function, or does not start.
  static Result<std::unique_ptr<IpmctlLibrary>> open(const std::string& path = kIpmctlLibrary);
  ~IpmctlLibrary();
  IpmctlLibrary(const IpmctlLibrary&) = delete;
  IpmctlLibrary& operator=(const IpmctlLibrary&) = delete;

  // In order of their handles. Io when it does not answer.
  Result<std::vector<Dimm>> dimms() const;
  // "ok", "non-critical", "critical", "fatal", "unmanageable", "non-functional"; nothing when the
  // DIMM does not say.
  std::optional<std::string> health(const Dimm& dimm) const;
  // Since the DIMM was made, unlike those of the program ipmctl; in the same units.
  Result<DimmReading> counters(const Dimm& dimm) const;

 private:
  struct Calls;
  explicit IpmctlLibrary(std::unique_ptr<Calls> calls);
  const std::unique_ptr<Calls> calls_;
};

}  // namespace pmstore::tools
