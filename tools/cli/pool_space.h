// Who has what of a pool, for `pmstore pool info`.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/size_text.h"
#include "persist/pool.h"

namespace pmstore::tools {

// How many extents of each kind there are, and their bytes. `extents`: objects with kind and bytes.
// `files`: what the pool's server says of its files, which has what they may still take.
inline nlohmann::ordered_json space_of(
    const nlohmann::ordered_json& extents,
    const nlohmann::ordered_json& files = nlohmann::ordered_json::object()) {
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
    if (kind == ExtentKind::kFileData && files.contains("growable_bytes")) {
      space.back()["growable_bytes"] = files["growable_bytes"];
    }
  }
  return space;
}

// One of them in words.
inline std::string space_text(const nlohmann::ordered_json& kind) {
  const auto bytes = [&](const char* member) {
    return base::size_text(kind.value(member, uint64_t{0}));
  };
  const uint64_t extents = kind.value("extents", uint64_t{0});
  const std::string has =
      fmt::format("{} in {} extent{}", bytes("bytes"), extents, extents == 1 ? "" : "s");
  if (!kind.contains("growable_bytes")) return has;
  return has + ", and may take " + bytes("growable_bytes") + " more";
}

}  // namespace pmstore::tools
