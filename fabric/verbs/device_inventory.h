// The verbs devices of this host and their properties, for the administrator of the machine.
//
// Threads: any. Opens each device for a moment; needs no root.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "fabric/capabilities.h"

namespace pmstore::fabric {

struct VerbsPort {
  uint32_t number = 0;
  bool active = false;
  bool ethernet = false;
  uint32_t mtu_bytes = 0;  // in use
  uint32_t most_mtu_bytes = 0;
};

struct VerbsDeviceFacts {
  std::string name;       // "mlx5_0"
  bool software = false;  // a CPU moves the data, as Soft-RoCE's
  AtomicScope atomics = AtomicScope::kNone;
  bool on_demand_paging = false;  // for RC's WRITE; the library here pins
  bool native_flush = false;      // its driver reports FLUSH to persistence, used or not
  std::vector<VerbsPort> ports;
};

// Every device that can be opened. Io when there are devices but one cannot be opened or asked.
Result<std::vector<VerbsDeviceFacts>> list_verbs_devices();

}  // namespace pmstore::fabric
