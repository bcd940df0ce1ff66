// A limit of bytes as JSON: a number, or null where there is none. Threads: values, no sharing.
#pragma once

#include <cstdint>
#include <string>

namespace pmstore::base {

// UINT64_MAX: there is none.
inline std::string limit_json(uint64_t most_bytes) {
  return most_bytes == UINT64_MAX ? "null" : std::to_string(most_bytes);
}

}  // namespace pmstore::base
