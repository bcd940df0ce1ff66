// CommitRoom: adds up what the writes and checks of one commit take of its redo log and, under lock
// discipline cpu, of its request.
//
// Threads: any one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pmstore/layout/protocol.h"
#include "pmstore/layout/redo.h"
#include "pmstore/layout/shard_record.h"
#include "pmstore/types.h"

namespace pmstore::internal {

class CommitRoom {
 public:
  explicit CommitRoom(LockDiscipline discipline)
      : cpu_(discipline == LockDiscipline::kCpu),
        redo_bytes_(cpu_ ? sizeof(ShardRecordHeader) : redo_header_bytes(1)),
        request_bytes_(sizeof(RequestPrefix) + sizeof(CommitRequest)) {}

  // `may_move`: the key may have a record that its new value does not fit into; the slot that the
  // record leaves is then written, too.
  void add_write(size_t key_bytes, size_t value_bytes, bool may_move) {
    redo_bytes_ += redo_bytes_of(record_bytes(key_bytes, value_bytes));
    if (may_move) redo_bytes_ += redo_bytes_of(record_bytes(key_bytes, 0));
    request_bytes_ += sizeof(WriteOp) + (key_bytes + value_bytes + 7) / 8 * 8;
  }
  // ReadChecks and AbsenceChecks.
  void add_checks(size_t bytes) { request_bytes_ += bytes; }

  uint64_t redo_bytes() const { return redo_bytes_; }
  // 0: there is no such limit.
  bool fits(uint64_t most_redo_bytes, uint64_t most_request_bytes) const {
    return (most_redo_bytes == 0 || redo_bytes_ <= most_redo_bytes) &&
           (most_request_bytes == 0 || !cpu_ || request_bytes_ <= most_request_bytes);
  }

 private:
  uint64_t redo_bytes_of(uint64_t image_bytes) const {
    return cpu_ ? shard_write_bytes(image_bytes) : redo_write_bytes(image_bytes);
  }

  const bool cpu_;
  uint64_t redo_bytes_;
  uint64_t request_bytes_;
};

}  // namespace pmstore::internal
