#include "pmstore/shard/commit_view.h"

#include <cstring>

namespace pmstore::internal {

std::optional<CommitView> decode_commit(ClientId client, std::span<const std::byte> request) {
  CommitRequest header;
  if (request.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, request.data(), sizeof(header));
  auto rest = request.subspan(sizeof(header));
  const uint64_t reads_bytes = uint64_t{header.reads} * sizeof(ReadCheck);
  const uint64_t absences_bytes = uint64_t{header.absences} * sizeof(AbsenceCheck);
  const bool numbered = header.writes == 0 || header.sequence != 0;
  if (!numbered || header.padding != 0 || reads_bytes > rest.size() ||
      absences_bytes > rest.size() - reads_bytes) {
    return std::nullopt;
  }
  const auto writes = rest.subspan(reads_bytes + absences_bytes);
  // Writes have different sizes, so each one says where the next one begins.
  uint64_t offset = 0;
  for (uint32_t i = 0; i < header.writes; ++i) {
    WriteOp op;
    if (writes.size() - offset < sizeof(op)) return std::nullopt;
    std::memcpy(&op, writes.data() + offset, sizeof(op));
    if (op.key_bytes > kMaxKeyBytes) return std::nullopt;
    const uint64_t body = write_body_bytes(op);
    if (body > writes.size() - offset - sizeof(op)) return std::nullopt;
    if (op.kind < WriteKind::kPut || op.kind > WriteKind::kErase) return std::nullopt;
    if (op.kind == WriteKind::kErase && op.value_bytes != 0) return std::nullopt;
    offset += sizeof(op) + body;
  }
  if (offset != writes.size()) return std::nullopt;
  return CommitView{client,
                    header.sequence,
                    rest.first(reads_bytes),
                    rest.subspan(reads_bytes, absences_bytes),
                    CommitWrites(writes),
                    header.writes};
}

}  // namespace pmstore::internal
