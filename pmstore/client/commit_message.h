// Building a kCommit request. Any thread.
#pragma once

#include <string_view>

#include "pmstore/layout/protocol.h"

namespace pmstore::internal {

// Appends one write: `op` with the lengths filled in, key, value, padding to 8.
inline void put_write(MessageWriter& request, WriteOp op, std::string_view key,
                      std::string_view value) {
  op.key_bytes = static_cast<uint8_t>(key.size());
  op.value_bytes = static_cast<uint32_t>(value.size());
  request.put(op);
  request.put_bytes(key);
  request.put_bytes(value);
  constexpr std::string_view kZeros("\0\0\0\0\0\0\0", 7);
  request.put_bytes(kZeros.substr(0, -(key.size() + value.size()) % 8));
}

}  // namespace pmstore::internal
