// CommitView: a decoded kCommit request (pmstore/layout/protocol.h).
//
// The spans lie in the request, which must outlive the view.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "pmstore/layout/protocol.h"

namespace pmstore::internal {

struct CommitView {
  uint64_t client;
  uint64_t sequence;
  std::span<const std::byte> reads;     // ReadCheck...
  std::span<const std::byte> absences;  // AbsenceCheck...
  std::span<const std::byte> writes;    // WriteOp, key, value, padding to 8, ...
  uint32_t write_count;
};

// The bytes that key and value of one WriteOp take in the request.
constexpr uint64_t write_body_bytes(const WriteOp& op) {
  return (uint64_t{op.key_bytes} + op.value_bytes + 7) / 8 * 8;
}

// Checks every length, so that the parts of the view can be walked without checks. nullopt when the
// request is malformed.
std::optional<CommitView> decode_commit(uint64_t client, std::span<const std::byte> request);

}  // namespace pmstore::internal
