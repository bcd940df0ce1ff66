#include "pmstore/shard/read_checks.h"

namespace pmstore::internal {

Status check_reads(const RecordStore& records, const CommitView& request, uint16_t owner) {
  const LockTable& words = records.words();
  const KeyIndex& index = records.index();
  for (size_t i = 0; i < request.reads.size() / sizeof(ReadCheck); ++i) {
    const auto check = read_at<ReadCheck>(request.reads, i);
    if (check.slot % 64 != 0 || check.slot >= records.arena().slot_space_bytes()) {
      return make_error(ErrorCode::kInvalidArgument, "a read set names a slot outside the records");
    }
    if (words.load(static_cast<SlotOffset>(check.slot)) != LockWord::unlocked(check.version)) {
      return make_error(ErrorCode::kConflict);
    }
  }
  const auto is_own = [&](IndexEntry entry) {
    const Reservation* const reserved = records.reservations().at(entry.slot);
    return reserved != nullptr && reserved->owner == owner &&
           reserved->sequence == request.sequence;
  };
  for (size_t i = 0; i < request.absences.size() / sizeof(AbsenceCheck); ++i) {
    const auto check = read_at<AbsenceCheck>(request.absences, i);
    if (!index.has_unit(check.bucket)) {
      return make_error(ErrorCode::kInvalidArgument, "a read set names a bucket that there is not");
    }
    if (!index.is_as_at(check.bucket, check.version, is_own)) {
      return make_error(ErrorCode::kConflict);
    }
  }
  return {};
}

}  // namespace pmstore::internal
