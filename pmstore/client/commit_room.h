// CommitRoom: adds up what the writes and checks of one commit take of its redo log and, under lock
// discipline cpu, of its request. Under rnic a commit is bounded in the records that it touches.
//
// Threads: any one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pmstore/client/buffer_pool.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/layout/shard_record.h"
#include "pmstore/types.h"

namespace pmstore::internal {

class CommitRoom {
 public:
  explicit CommitRoom(LockDiscipline discipline)
      : cpu_(discipline == LockDiscipline::kCpu),
        redo_bytes_(sizeof(ShardRecordHeader)),
        request_bytes_(sizeof(RequestPrefix) + sizeof(CommitRequest)) {}

  // `may_move`: the key may have a record that its new value does not fit into; the slot that the
  // record leaves is then written, too. Under rnic there is room for that with each write.
  void add_write(size_t key_bytes, size_t value_bytes, bool may_move) {
    ++records_;
    redo_bytes_ += shard_write_bytes(record_bytes(key_bytes, value_bytes));
    if (may_move || !cpu_) redo_bytes_ += shard_write_bytes(record_bytes(key_bytes, 0));
    request_bytes_ += sizeof(WriteOp) + (key_bytes + value_bytes + 7) / 8 * 8;
  }
  // A record, or an absent key, that is only read.
  void add_read() {
    ++records_;
    request_bytes_ += sizeof(ReadCheck);
  }
  // ReadChecks and AbsenceChecks of scans.
  void add_checks(size_t bytes) { request_bytes_ += bytes; }

  uint64_t redo_bytes() const { return redo_bytes_; }
  bool has_too_many_records() const { return !cpu_ && records_ > OpBuffer::kWords; }
  // 0: there is no such limit.
  bool fits(uint64_t most_redo_bytes, uint64_t most_request_bytes) const {
    return !has_too_many_records() && (most_redo_bytes == 0 || redo_bytes_ <= most_redo_bytes) &&
           (most_request_bytes == 0 || !cpu_ || request_bytes_ <= most_request_bytes);
  }

 private:
  bool cpu_;
  uint64_t redo_bytes_;
  uint64_t request_bytes_;
  uint64_t records_ = 0;
};

}  // namespace pmstore::internal
