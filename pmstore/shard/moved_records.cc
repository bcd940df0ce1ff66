// Records that the server moves to other slots of their size, as they are. See
// pmstore/shard/cpu_commit.h.

#include <optional>
#include <string_view>

#include "base/check.h"
#include "pmstore/layout/record.h"
#include "pmstore/shard/cpu_commit.h"

namespace pmstore::internal {

namespace {

struct TableKey {
  TableId table;
  std::string_view key;
};

// Of the live record that the header in a slot tells of, if there can be such a one. Reads nothing
// behind the key: values of free slots are not touched.
std::optional<TableKey> live_key(std::span<const std::byte> image) {
  const auto& header = *reinterpret_cast<const RecordHeader*>(image.data());
  const uint16_t bytes = header.key_bytes();
  const bool fits = bytes > 0 && bytes <= kMaxKeyBytes && record_bytes(bytes, 0) <= image.size();
  if (header.state != RecordState::kLive || !fits) return std::nullopt;
  const auto* const key = reinterpret_cast<const char*>(image.data() + sizeof(RecordHeader));
  return TableKey{TableId{header.table}, std::string_view(key, bytes)};
}

}  // namespace

// The live record in `slot`, where the index shows it and a put of its key would not be a Conflict.
std::optional<PlannedWrite> CpuCommit::movable(SlotOffset slot) const {
  const auto slab = records_.arena().slab_at(slot);
  if (!slab || records_.words().load(slot).is_locked() || records_.is_viewed(slot) ||
      records_.reservations().at(slot) != nullptr) {
    return std::nullopt;
  }
  const std::span image(records_.arena().at(slot), kSlotBytes[slab->size_class]);
  const auto key = live_key(image);
  if (!key || !records_.catalog().exists(key->table)) return std::nullopt;
  PlannedWrite write;
  write.key = IndexKey::of(key->table, key->key);
  std::optional<SlotOffset> damaged;
  const auto found = records_.find(write.key, damaged);
  if (!found || found->slot != slot || is_guarded(write.key)) return std::nullopt;
  const auto record = check_record(image, slot);
  if (!record || !record->live()) return std::nullopt;
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
  SlabArena& arena = records_.arena();
  do {
    PMSTORE_TRY(write.slot, arena.allocate_for_move(write.old_slot));
    // One that has used up its versions is not freed, as in plan_write().
  } while (records_.version_of(write.slot) >= kMaxRecordVersion);
  const Status begun = records_.index().begin_change(write.key);
  PMSTORE_CHECK(begun.has_value(), "a key that is there needs no memory of the index");
  write.fresh = true;
  write.index_changes = true;
  write.entry_changes = true;
  records_.words().store(write.old_slot, LockWord::locked(write.old_version, kServerOwner));
  return {};
}

// Of the first ones of `slots`, up to the first one for which there is no slot.
Status CpuCommit::plan_moves(CommitPlan& plan, std::span<const SlotOffset> slots) {
  for (const SlotOffset slot : slots) {
    auto write = movable(slot);
    PMSTORE_CHECK(write.has_value(), "the caller has just asked");
    const Status planned = plan_move(*write);
    const bool none =
        !planned && (planned.code() == ErrorCode::kFull || planned.code() == ErrorCode::kBusy);
    if (none && !plan.writes().empty()) break;
    PMSTORE_TRY_STATUS(planned);
    plan.writes().push_back(*write);
  }
  return build_redo(plan);
}

Result<size_t> CpuCommit::move(TxId id, std::span<const SlotOffset> slots) {
  PMSTORE_CHECK(!slots.empty(), "a transaction that changes nothing is not logged");
  PMSTORE_CHECK(group_.empty(), "a record that a group changes has one place until its drain");
  if (latch_.failed()) return latch_.error();
  CommitPlan* const plan = free_plan();
  if (plan == nullptr) return make_error(ErrorCode::kBackPressure, "all plans are prepared");
  plan->begin(id.client, id.sequence);
  const Status planned = plan_moves(*plan, slots);
  if (!planned) {
    give_up(*plan);
    return planned.error();
  }
  const size_t count = plan->writes().size();
  PMSTORE_TRY_STATUS(log_and_apply(*plan));
  return count;
}

}  // namespace pmstore::internal
