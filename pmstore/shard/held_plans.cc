// Plans of transactions of several servers, which stay locked while others commit. See
// pmstore/shard/cpu_commit.h.

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "pmstore/layout/record.h"
#include "pmstore/layout/shard_record.h"
#include "pmstore/shard/cpu_commit.h"
#include "pmstore/shard/read_checks.h"

namespace pmstore::internal {

namespace {

template <typename T>
T read_at(std::span<const std::byte> array, size_t index) {
  T value;
  std::memcpy(&value, array.data() + index * sizeof(T), sizeof(T));
  return value;
}

// At most so many bytes are the payload of its redo record.
uint64_t most_redo_bytes(const CommitView& request, size_t participants) {
  uint64_t bytes = shard_header_bytes(participants);
  CommitWrites writes = request.writes;
  for (uint32_t i = 0; i < request.write_count; ++i) {
    const CommitWrite write = writes.next();
    bytes += shard_write_bytes(record_bytes(write.key.size(), write.value.size()));
    bytes += shard_write_bytes(record_bytes(write.key.size(), 0));
  }
  return bytes;
}

Error does_not_fit(TxId id) {
  return make_error(ErrorCode::kBadPool,
                    "the undecided transaction " + id.to_string() +
                        " in the shard log does not fit the records; restore the pool from a "
                        "backup");
}

bool is_own_lock(const CommitPlan& plan, const ReadCheck& check) {
  return std::any_of(plan.writes().begin(), plan.writes().end(), [&](const PlannedWrite& write) {
    return write.exists && raw(write.old_slot) == check.slot && write.old_version == check.version;
  });
}

}  // namespace

// ---- locking ----

Result<CommitPlan*> CpuCommit::hold(const CommitView& request,
                                    std::span<const ShardParticipant> participants) {
  PMSTORE_CHECK(request.write_count > 0, "a transaction without writes has nothing to lock");
  PMSTORE_CHECK(group_.empty(), "the group's owner finishes it before");
  if (latch_.failed()) return latch_.error();
  PMSTORE_TRY_STATUS(check_reads(records_, request, kServerOwner));
  auto plan =
      std::make_unique<CommitPlan>(log::entry_room(most_redo_bytes(request, participants.size())));
  plan->begin(request.client, request.sequence);
  Status planned = plan_writes(*plan, request, Basis::kInPlace);
  if (planned) planned = build_redo(*plan, participants);
  if (planned) planned = guard(*plan, request.absences);
  if (!planned) {
    give_up(*plan);
    return planned.error();
  }
  held_.push_back(std::move(plan));
  return held_.back().get();
}

// Every absence was true before the plan changed anything, so what differs now is the plan's.
Status CpuCommit::guard(CommitPlan& plan, std::span<const std::byte> absences) {
  const KeyIndex& index = records_.index();
  for (size_t i = 0; i < absences.size() / sizeof(AbsenceCheck); ++i) {
    const auto check = read_at<AbsenceCheck>(absences, i);
    const uint64_t now = index.version(check.bucket);
    if (now == check.version) continue;
    // A leaf that was split has its keys elsewhere: read again, they are found absent there.
    if (now != check.version + 1) {
      plan.guarded().clear();
      return make_error(ErrorCode::kConflict);
    }
    plan.guarded().push_back(check);
  }
  guarding_ += plan.guarded().empty() ? 0 : 1;
  return {};
}

bool CpuCommit::is_guarded(const IndexKey& key) const {
  if (guarding_ == 0) [[likely]]
    return false;
  const uint64_t unit = records_.index().unit_of(key);
  for (const auto& plan : held_) {
    for (const AbsenceCheck& each : plan->guarded()) {
      if (each.bucket == unit) return true;
    }
  }
  return false;
}

void CpuCommit::end_guard(CommitPlan& plan) {
  if (plan.guarded().empty()) return;
  PMSTORE_CHECK(guarding_ > 0, "a plan that guards is counted");
  --guarding_;
  plan.guarded().clear();
}

// ---- validating ----

Status CpuCommit::validate_held(const CommitPlan& plan, std::span<const std::byte> reads,
                                std::span<const std::byte> absences) {
  CommitView others{plan.id().client, plan.id().sequence, {}, {}, {}, 0};
  for (size_t i = 0; i < reads.size() / sizeof(ReadCheck); ++i) {
    if (is_own_lock(plan, read_at<ReadCheck>(reads, i))) continue;
    others.reads = reads.subspan(i * sizeof(ReadCheck), sizeof(ReadCheck));
    PMSTORE_TRY_STATUS(check_reads(records_, others, kServerOwner));
  }
  others.reads = {};
  for (size_t i = 0; i < absences.size() / sizeof(AbsenceCheck); ++i) {
    const auto check = read_at<AbsenceCheck>(absences, i);
    const auto own = std::find_if(plan.guarded().begin(), plan.guarded().end(),
                                  [&](const auto& each) { return each.bucket == check.bucket; });
    if (own != plan.guarded().end()) {
      // Odd since this plan has begun to change it, and nobody else has ended a change there.
      const bool same = own->version == check.version &&
                        records_.index().version(check.bucket) == check.version + 1;
      if (!same) return make_error(ErrorCode::kConflict);
      continue;
    }
    others.absences = absences.subspan(i * sizeof(AbsenceCheck), sizeof(AbsenceCheck));
    PMSTORE_TRY_STATUS(check_reads(records_, others, kServerOwner));
  }
  return {};
}

// ---- the end ----

void CpuCommit::drop_held(CommitPlan& plan) {
  const auto at = std::find_if(held_.begin(), held_.end(),
                               [&](const auto& each) { return each.get() == &plan; });
  PMSTORE_CHECK(at != held_.end(), "a plan that is held ends once");
  std::swap(*at, held_.back());
  held_.pop_back();
}

void CpuCommit::apply_held(const DurableLog& decided, CommitPlan& plan, uint64_t end_lsn) {
  end_guard(plan);
  plan.logged(end_lsn);
  apply(decided, plan);
  drop_held(plan);
}

Status CpuCommit::commit_held(CommitPlan& plan) {
  end_guard(plan);
  Status committed = log_and_apply(plan);
  drop_held(plan);
  return committed;
}

void CpuCommit::give_up_held(CommitPlan& plan) {
  end_guard(plan);
  give_up(plan);
  drop_held(plan);
}

// ---- recovery ----

Result<CommitPlan*> CpuCommit::hold_again(TxId id, std::span<const std::byte> redo) {
  auto plan = std::make_unique<CommitPlan>(log::entry_room(redo.size()));
  plan->begin(id.client, id.sequence);
  const auto copy = plan->entry_room().subspan(sizeof(log::EntryHeader), redo.size());
  std::memcpy(copy.data(), redo.data(), redo.size());
  Status planned = plan_again(*plan, copy);
  if (!planned) {
    give_up(*plan);
    return planned.error();
  }
  plan->prepared(redo.size());
  ++locked_;
  held_.push_back(std::move(plan));
  return held_.back().get();
}

// The opposite of build_redo(): a tombstone in front of the same key's new record is of the slot
// that the record leaves, any other one of an erase.
Status CpuCommit::plan_again(CommitPlan& plan, std::span<const std::byte> redo) {
  PMSTORE_TRY(ShardRecordReader reader,
              ShardRecordReader::open_whole(redo, records_.catalog().header().epoch));
  std::optional<LoggedWrite> logged = reader.next();
  while (logged) {
    const LoggedWrite first = *logged;
    logged = reader.next();
    PlannedWrite write;
    write.key = IndexKey::of(static_cast<TableId>(first.record.header->table), first.record.key);
    write.kind = first.record.live() ? WriteKind::kPut : WriteKind::kErase;
    write.slot = write.old_slot = first.slot;
    write.image = first.image;
    write.old_version = first.record.version() - 1;
    const bool moves = !first.record.live() && logged && logged->record.live() &&
                       logged->record.header->table == first.record.header->table &&
                       logged->record.key == first.record.key;
    if (moves) {
      write.kind = WriteKind::kPut;
      write.fresh = true;
      write.old_image = first.image;
      write.slot = logged->slot;
      write.image = logged->image;
      logged = reader.next();
    }
    if (!lock_again(write)) return does_not_fit(plan.id());
    plan.writes().push_back(write);
  }
  return plan.writes().empty() ? Status(does_not_fit(plan.id())) : Status();
}

Status CpuCommit::lock_again(PlannedWrite& write) {
  const auto unfit = [] { return make_error(ErrorCode::kBadPool); };
  const auto slab = records_.arena().slab_at(write.slot);
  if (!slab || !records_.catalog().exists(write.key.table)) return unfit();
  write.size_class = slab->size_class;
  std::optional<SlotOffset> damaged;
  const auto found = records_.find(write.key, damaged);
  write.exists = found.has_value();
  if (!found) {
    if (write.fresh || write.kind == WriteKind::kErase) return unfit();
    write.fresh = true;
  } else if (found->slot != write.old_slot ||
             records_.words().load(found->slot) != LockWord::unlocked(write.old_version)) {
    return unfit();
  }
  const uint64_t base = write.fresh ? records_.version_of(write.slot) : write.old_version;
  if (check_record(write.image, write.slot)->version() != base + 1) return unfit();
  write.index_changes = write.entry_changes = write.fresh || write.kind == WriteKind::kErase;
  if (write.index_changes) {
    PMSTORE_TRY_STATUS(records_.index().begin_change(write.key));
  }
  if (write.exists) {
    records_.words().store(write.old_slot, LockWord::locked(write.old_version, kServerOwner));
  }
  return {};
}

}  // namespace pmstore::internal
