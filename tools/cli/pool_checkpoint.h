// What an orderly stop has left in a pool, for `pmstore pool info`.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "persist/pool.h"
#include "pmstore/check.h"

namespace pmstore::tools {

// Adds the member "checkpoint" to what is known of a pool that is not served: as
// checkpoint_state(), or why the pool cannot be read.
inline void add_checkpoint(nlohmann::ordered_json& info, const std::string& path,
                           const persist::PoolInfo& pool) {
  const bool any = std::any_of(pool.extents.begin(), pool.extents.end(), [](const auto& extent) {
    return extent.kind == persist::ExtentKind::kCheckpoint;
  });
  if (!any) {
    info["checkpoint"] = "none";
    return;
  }
  const auto view = persist::Pool::view(path);
  const auto state = view ? checkpoint_state(**view) : Result<std::string>(view.error());
  info["checkpoint"] = state ? *state : "unknown: " + state.error().message;
}

}  // namespace pmstore::tools
