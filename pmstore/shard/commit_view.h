// CommitView: a transaction of lock discipline cpu, as a kCommit request brings it
// (pmstore/layout/protocol.h) or as a caller in this process names it.
//
// The spans lie in the request, or in the caller's memory, which must outlive the view.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "base/check.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/types.h"

namespace pmstore::internal {

// One write. `expected_slot`, `expected_version`: as in WriteOp.
struct CommitWrite {
  WriteKind kind = WriteKind::kPut;
  TableId table{};
  uint64_t expected_slot = 0;
  uint64_t expected_version = 0;
  std::string_view key;
  std::string_view value;
};

// The bytes that key and value of one WriteOp take in the request.
constexpr uint64_t write_body_bytes(const WriteOp& op) {
  return (uint64_t{op.key_bytes} + op.value_bytes + 7) / 8 * 8;
}

// The writes of a transaction, read one after the other.
class CommitWrites {
 public:
  CommitWrites() = default;
  // WriteOp, key, value, padding to 8, ...; decode_commit() has checked the lengths.
  explicit CommitWrites(std::span<const std::byte> message) : message_(message) {}
  explicit CommitWrites(std::span<const CommitWrite> plain) : plain_(plain) {}

  // The next one. The caller counts.
  CommitWrite next() {
    if (message_.empty()) {
      PMSTORE_CHECK(!plain_.empty(), "a transaction has as many writes as its view says");
      const CommitWrite& write = plain_.front();
      plain_ = plain_.subspan(1);
      return write;
    }
    WriteOp op;
    std::memcpy(&op, message_.data(), sizeof(op));
    const auto* body = reinterpret_cast<const char*>(message_.data() + sizeof(op));
    message_ = message_.subspan(sizeof(op) + write_body_bytes(op));
    return {op.kind,
            static_cast<TableId>(op.table),
            op.expected_slot,
            op.expected_version,
            {body, op.key_bytes},
            {body + op.key_bytes, op.value_bytes}};
  }

 private:
  std::span<const std::byte> message_;
  std::span<const CommitWrite> plain_;
};

struct CommitView {
  ClientId client;
  uint64_t sequence;
  std::span<const std::byte> reads;     // ReadCheck...
  std::span<const std::byte> absences;  // AbsenceCheck...
  CommitWrites writes;
  uint32_t write_count;
};

// Checks every length, so that the parts of the view can be walked without checks. nullopt when the
// request is malformed.
std::optional<CommitView> decode_commit(ClientId client, std::span<const std::byte> request);

// Element `index` of an array in a message, which need not be aligned.
template <typename T>
T read_at(std::span<const std::byte> array, size_t index) {
  T value;
  std::memcpy(&value, array.data() + index * sizeof(T), sizeof(T));
  return value;
}

}  // namespace pmstore::internal
