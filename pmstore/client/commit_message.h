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

// Appends a whole kCommit request, without its prefix.
inline void put_commit(MessageWriter& request, const CommitView& commit) {
  request.put(CommitRequest{
      commit.sequence, static_cast<uint32_t>(commit.reads.size() / sizeof(ReadCheck)),
      static_cast<uint32_t>(commit.absences.size() / sizeof(AbsenceCheck)), commit.write_count, 0});
  for (const std::span<const std::byte> checks : {commit.reads, commit.absences}) {
    request.put_bytes({reinterpret_cast<const char*>(checks.data()), checks.size()});
  }
  CommitWrites writes = commit.writes;
  for (uint32_t i = 0; i < commit.write_count; ++i) put_write(request, writes.next());
}

}  // namespace pmstore::internal
