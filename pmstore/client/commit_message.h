// Building a kCommit request. Any thread.
#pragma once

#include <string_view>

#include "pmstore/layout/protocol.h"
#include "pmstore/shard/commit_view.h"

namespace pmstore::internal {

// Appends one write: its WriteOp, key, value, padding to 8.
inline void put_write(MessageWriter& request, const CommitWrite& write) {
  request.put(WriteOp{write.expected_slot,
                      write.expected_version,
                      static_cast<uint32_t>(write.value.size()),
                      raw(write.table),
                      static_cast<uint16_t>(write.key.size()),
                      write.kind,
                      {}});
  request.put_bytes(write.key);
  request.put_bytes(write.value);
  constexpr std::string_view kZeros("\0\0\0\0\0\0\0", 7);
  request.put_bytes(kZeros.substr(0, -(write.key.size() + write.value.size()) % 8));
}

}  // namespace pmstore::internal
