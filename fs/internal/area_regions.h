// AreaRegions: what the sessions of FileDataService may reach through one device: for each section
// of the area its units and its generation words.
//
// Invariant: a region covers memory of a section that the space has. Threads: the executor's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "fabric/memory_region.h"
#include "service/service.h"

namespace pmstore::fs::internal {

struct AreaRegions final : service::EndpointPart {
  struct Section {
    std::unique_ptr<fabric::MemoryRegion> units;
    std::unique_ptr<fabric::MemoryRegion> words;
  };
  std::map<uint64_t, Section> sections;  // by the number of the first unit
};

}  // namespace pmstore::fs::internal
