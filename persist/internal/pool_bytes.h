// What the readers of pool files have in common.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/result.h"

namespace pmstore::persist::internal {

// The value at `offset`, which need not be aligned. The caller has checked that it is inside.
template <typename T>
T read_as(std::span<const std::byte> bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// `name` is no pool any more, for the reason `what`.
inline Error bad_pool(std::string_view name, std::string_view what) {
  return make_error(
      ErrorCode::kBadPool,
      fmt::format("{}: {}: restore the file from a copy, or make a new pool", name, what));
}

}  // namespace pmstore::persist::internal
