// Who has what of a pool, for `pmstore pool info`.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "persist/pool.h"

namespace pmstore::tools {

// How many extents of each kind there are, and their bytes. `extents`: objects with kind and bytes.
inline nlohmann::ordered_json space_of(const nlohmann::ordered_json& extents) {
  nlohmann::ordered_json space = nlohmann::ordered_json::array();
  using persist::ExtentKind;
  for (const ExtentKind kind : {ExtentKind::kRecords, ExtentKind::kShardLog, ExtentKind::kRings,
                                ExtentKind::kLog, ExtentKind::kFileData, ExtentKind::kCheckpoint}) {
    const std::string name(persist::extent_name(kind));
    uint64_t count = 0;
    uint64_t bytes = 0;
    for (const nlohmann::ordered_json& extent : extents) {
      if (extent.value("kind", "") != name) continue;
      ++count;
      bytes += extent.value("bytes", uint64_t{0});
    }
    space.push_back({{"kind", name}, {"extents", count}, {"bytes", bytes}});
  }
  return space;
}

}  // namespace pmstore::tools
