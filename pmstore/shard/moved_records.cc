// Records that the server moves to other slots of their size, as they are. See
// pmstore/shard/cpu_commit.h.

#include <optional>

#include "base/check.h"
#include "pmstore/layout/record.h"
#include "pmstore/shard/cpu_commit.h"

namespace pmstore::internal {

// The live record in `slot`, where the index shows it and a put of its key would not be a Conflict.
std::optional<PlannedWrite> CpuCommit::movable(SlotOffset slot) const {
  const auto slab = records_.arena().slab_at(slot);
  if (!slab || records_.words().load(slot).is_locked() || records_.is_viewed(slot) ||
      records_.reservations().at(slot) != nullptr) {
    return std::nullopt;
  }
  const std::span image(records_.arena().at(slot), kSlotBytes[slab->size_class]);
  const auto record = check_record(image, slot);
  if (!record || !record->live()) return std::nullopt;
  const auto table = static_cast<TableId>(record->header->table);
  if (!records_.catalog().exists(table)) return std::nullopt;
  PlannedWrite write;
  write.key = IndexKey::of(table, record->key);
  std::optional<SlotOffset> damaged;
  const auto found = records_.find(write.key, damaged);
  if (!found || found->slot != slot || is_guarded(write.key)) return std::nullopt;
  write.value = record->value;
  write.size_class = slab->size_class;
  write.exists = true;
  write.old_slot = slot;
  write.old_version = records_.words().load(slot).version();
  if (record->version() != write.old_version || write.old_version >= kMaxRecordVersion) {
    return std::nullopt;
  }
  return write;
}

// As plan_write() of a put that does not fit in the slot.
Status CpuCommit::plan_move(PlannedWrite& write) {
  PMSTORE_TRY(write.slot, records_.arena().allocate_for_move(write.old_slot));
  // Not freed, as in plan_write().
  if (records_.version_of(write.slot) >= kMaxRecordVersion) return versions_used_up(write.slot);
  const Status begun = records_.index().begin_change(write.key);
  if (!begun) records_.arena().free_slot(write.slot);
  PMSTORE_TRY_STATUS(begun);
  write.fresh = true;
  write.index_changes = true;
  write.entry_changes = true;
  records_.words().store(write.old_slot, LockWord::locked(write.old_version, kServerOwner));
  return {};
}

Result<size_t> CpuCommit::move(TxId id, std::span<const SlotOffset> slots) {
  PMSTORE_CHECK(group_.empty(), "a record that a group changes has one place until its drain");
  if (latch_.failed()) return latch_.error();
  CommitPlan* const plan = free_plan();
  if (plan == nullptr) return size_t{0};
  plan->begin(id.client, id.sequence);
  Status planned;
  for (const SlotOffset slot : slots) {
    auto write = movable(slot);
    if (!write) continue;
    planned = plan_move(*write);
    if (!planned) break;
    plan->writes().push_back(*write);
  }
  const size_t count = plan->writes().size();
  // What has found room moves; Full is for the caller of the next call.
  const bool some = count > 0 && (planned || planned.code() == ErrorCode::kFull);
  if (some) planned = build_redo(*plan);
  if (!some || !planned) {
    give_up(*plan);
    if (planned || planned.code() == ErrorCode::kFull || planned.code() == ErrorCode::kTooLarge) {
      return size_t{0};
    }
    return planned.error();
  }
  const Status moved = log_and_apply(*plan);
  if (moved) return count;
  if (moved.code() == ErrorCode::kBackPressure || moved.code() == ErrorCode::kTooLarge) {
    return size_t{0};
  }
  return moved.error();
}

}  // namespace pmstore::internal
