#include "log/log_types.h"

#include <fmt/format.h>

#include <algorithm>

#include "log/ring_layout.h"

namespace pmstore::log {

std::string_view full_policy_name(FullPolicy policy) {
  switch (policy) {
    case FullPolicy::kBackPressure: return "back-pressure";
    case FullPolicy::kTrimOldest: return "trim-oldest";
  }
  return "unknown";
}

Result<FullPolicy> parse_full_policy(std::string_view text) {
  for (FullPolicy policy : {FullPolicy::kBackPressure, FullPolicy::kTrimOldest}) {
    if (text == full_policy_name(policy)) return policy;
  }
  return make_error(
      ErrorCode::kInvalidArgument,
      fmt::format("'{}' is no policy of a full log: use back-pressure or trim-oldest", text));
}

bool is_lost(const LogInfo& info) {
  return info.damaged.size() == 1 && info.damaged[0].to_lsn == kMaxLsn;
}

Status check_log_name(std::string_view name) {
  // Signed or not, bytes of other encodings are not printable ASCII.
  const auto plain = [](char c) { return c > ' ' && c < 0x7f; };
  if (!name.empty() && name.size() <= kMaxLogNameBytes &&
      std::all_of(name.begin(), name.end(), plain)) {
    return {};
  }
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("a log's name has 1 to {} printable ASCII characters and no space",
                                kMaxLogNameBytes));
}

}  // namespace pmstore::log
