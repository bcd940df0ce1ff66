// Who has what of a pool, and may have, for `pmstore pool info`.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/size_text.h"
#include "persist/pool.h"

namespace pmstore::tools {

// Reserves and limits as JSON.
inline nlohmann::ordered_json space_rules_json(const persist::SpaceRules& rules) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const persist::ExtentKind kind : persist::SpaceRules::kKinds) {
    const persist::SpaceRule& rule = rules.of(kind);
    const bool has_limit = rule.limit_bytes != UINT64_MAX;
    all.push_back({{"kind", persist::extent_name(kind)},
                   {"reserve_bytes", rule.reserve_bytes},
                   {"limit_bytes", has_limit ? nlohmann::ordered_json(rule.limit_bytes)
                                             : nlohmann::ordered_json()}});
  }
  return all;
}

// How many extents of each kind there are, and their bytes. `extents`: objects with kind and bytes.
// `rules`: reserves and limits, as space_rules_json() or the pool's server says them. `store`: what
// the server says of itself, which has the limits in force, and what files may still take.
inline nlohmann::ordered_json space_of(
    const nlohmann::ordered_json& extents, const nlohmann::ordered_json& rules,
    const nlohmann::ordered_json& store = nlohmann::ordered_json::object()) {
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
    for (const nlohmann::ordered_json& rule : rules) {
      if (rule.value("kind", "") != name) continue;
      if (rule.value("reserve_bytes", nlohmann::ordered_json(0)) != 0) {
        space.back()["reserve_bytes"] = rule["reserve_bytes"];
      }
      if (rule.contains("limit_bytes") && rule["limit_bytes"].is_number()) {
        space.back()["limit_bytes"] = rule["limit_bytes"];
      }
    }
    const auto add = [&](const char* member, const char* place) {
      const nlohmann::ordered_json::json_pointer from(place);
      if (store.contains(from) && store[from].is_number()) space.back()[member] = store[from];
    };
    if (kind == ExtentKind::kRecords) add("limit_bytes", "/records_limit_bytes");
    if (kind == ExtentKind::kLog) add("limit_bytes", "/logs/limit_bytes");
    if (kind == ExtentKind::kFileData) add("limit_bytes", "/files/limit_bytes");
    if (kind == ExtentKind::kFileData) add("growable_bytes", "/files/growable_bytes");
  }
  return space;
}

// One of them in words.
inline std::string space_text(const nlohmann::ordered_json& kind) {
  const auto bytes = [&](const char* member) {
    return base::size_text(kind.value(member, uint64_t{0}));
  };
  const uint64_t extents = kind.value("extents", uint64_t{0});
  std::string has =
      fmt::format("{} in {} extent{}", bytes("bytes"), extents, extents == 1 ? "" : "s");
  if (kind.contains("reserve_bytes")) has += ", reserved " + bytes("reserve_bytes");
  if (kind.contains("limit_bytes")) has += ", limited to " + bytes("limit_bytes");
  if (kind.contains("growable_bytes")) {
    has += ", and may take " + bytes("growable_bytes") + " more";
  }
  return has;
}

}  // namespace pmstore::tools
