// What persistent memory the kernel reports on this host: NVDIMM regions, the DIMMs and namespaces
// in them, by libndctl. For people who look after the machine; pools do not need it.
//
// Threads: any. Reads only; health needs root.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "persist/domain.h"

namespace pmstore::persist {

struct NvmDimm {
  std::string name;                   // "nmem0"
  std::optional<std::string> health;  // "ok", "non-critical", "critical", "fatal"; nothing: unknown
  uint32_t handle = 0;                // the NFIT's
};

struct NvmNamespace {
  std::string name;    // "namespace0.0"
  std::string mode;    // "devdax", "fsdax", "raw", "sector"
  std::string device;  // "/dev/dax0.0", "/dev/pmem0"; empty when disabled
  uint64_t bytes = 0;
  uint64_t alignment = 0;  // of mappings, devdax and fsdax only
};

struct NvmRegion {
  std::string name;  // "region0"
  uint64_t bytes = 0;
  std::optional<int> numa_node;
  uint32_t interleaved_dimms = 0;
  std::optional<Domain> domain;  // nothing: the platform does not say
  uint32_t bad_blocks = 0;
  std::vector<NvmDimm> dimms;
  std::vector<NvmNamespace> namespaces;
};

// Regions of persistent memory in order of their numbers; none where there are none. Io when
// libndctl cannot look.
Result<std::vector<NvmRegion>> list_nvm_regions();

}  // namespace pmstore::persist
