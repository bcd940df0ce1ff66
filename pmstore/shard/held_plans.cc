// Plans of transactions of several servers, which stay locked while others commit. See
// pmstore/shard/cpu_commit.h.

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "pmstore/layout/record.h"
#include "pmstore/layout/shard_record.h"
#include "pmstore/shard/cpu_commit.h"
#include "pmstore/shard/read_checks.h"

namespace pmstore::internal {

namespace {

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

// The versions that the plan has found in the slots that it has locked.
std::unordered_map<uint64_t, uint64_t> own_locks(const CommitPlan& plan) {
  std::unordered_map<uint64_t, uint64_t> locked;
  for (const PlannedWrite& write : plan.writes()) {
    if (write.exists) locked.emplace(raw(write.old_slot), write.old_version);
  }
  return locked;
}

}  // namespace

// ---- locking ----

Result<CommitPlan*> CpuCommit::hold(const CommitView& request,
                                    std::span<const ShardParticipant> participants) {
  PMSTORE_CHECK(request.write_count > 0, "a transaction without writes has nothing to lock");
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
  CommitPlan* const held = plan.get();
  note_held(std::move(plan));
  return held;
}

void CpuCommit::note_held(std::unique_ptr<CommitPlan> plan) {
  for (const PlannedWrite& write : plan->writes()) {
    if (!write.exists) held_inserts_.emplace(write.key.hash.value, &write);
  }
  for (const AbsenceCheck& each : plan->guarded()) guarded_.insert(each.bucket);
  const CommitPlan* const name = plan.get();
  held_.emplace(name, std::move(plan));
}

bool CpuCommit::is_inserted_by_held(const IndexKey& key) const {
  const auto [begin, end] = held_inserts_.equal_range(key.hash.value);
  return std::any_of(begin, end, [&](const auto& each) { return each.second->key == key; });
}

bool CpuCommit::has_held_in(TableId table) const {
  return std::any_of(held_.begin(), held_.end(),
                     [&](const auto& each) { return writes_to(*each.second, table); });
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
  return {};
}

bool CpuCommit::is_guarded(const IndexKey& key) const {
  if (guarded_.empty()) [[likely]]
    return false;
  return guarded_.contains(records_.index().unit_of(key));
}

void CpuCommit::end_guard(CommitPlan& plan) {
  for (const AbsenceCheck& each : plan.guarded()) {
    const auto at = guarded_.find(each.bucket);
    PMSTORE_CHECK(at != guarded_.end(), "what a plan guards is counted");
    guarded_.erase(at);
  }
  plan.guarded().clear();
}

// ---- validating ----

Status CpuCommit::validate_held(const CommitPlan& plan, std::span<const std::byte> reads,
                                std::span<const std::byte> absences) {
  CommitView others{plan.id().client, plan.id().sequence, {}, {}, {}, 0};
  const auto locked = own_locks(plan);
  for (size_t i = 0; i < reads.size() / sizeof(ReadCheck); ++i) {
    const auto read = read_at<ReadCheck>(reads, i);
    const auto own = locked.find(read.slot);
    if (own != locked.end() && own->second == read.version) continue;
    others.reads = reads.subspan(i * sizeof(ReadCheck), sizeof(ReadCheck));
    PMSTORE_TRY_STATUS(check_reads(records_, others, kServerOwner));
  }
  others.reads = {};
  std::unordered_map<uint64_t, uint64_t> guarded;  // unit, version
  for (const AbsenceCheck& each : plan.guarded()) guarded.emplace(each.bucket, each.version);
  for (size_t i = 0; i < absences.size() / sizeof(AbsenceCheck); ++i) {
    const auto check = read_at<AbsenceCheck>(absences, i);
    const auto own = guarded.find(check.bucket);
    if (own != guarded.end()) {
      // Odd since this plan has begun to change it, and nobody else has ended a change there.
      const bool same = own->second == check.version &&
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

std::unique_ptr<CommitPlan> CpuCommit::release_held(CommitPlan& plan) {
  const auto at = held_.find(&plan);
  if (at == held_.end()) return nullptr;
  end_guard(plan);
  for (const PlannedWrite& write : plan.writes()) {
    if (write.exists) continue;
    auto [each, end] = held_inserts_.equal_range(write.key.hash.value);
    while (each != end && each->second != &write) ++each;
    PMSTORE_CHECK(each != end, "what a held plan inserts is noted until it ends");
    held_inserts_.erase(each);
  }
  std::unique_ptr<CommitPlan> released = std::move(at->second);
  held_.erase(at);
  return released;
}

void CpuCommit::apply_held(const DurableLog& decided, CommitPlan& plan, uint64_t end_lsn) {
  const auto held = release_held(plan);
  PMSTORE_CHECK(held != nullptr, "a plan that is held ends once");
  plan.logged(end_lsn);
  apply(decided, plan);
}

Status CpuCommit::join_held(CommitPlan& plan) {
  PMSTORE_TRY_STATUS(log_in_group(plan));
  end_guard(plan);
  return {};
}

void CpuCommit::give_up_held(CommitPlan& plan) {
  const auto held = release_held(plan);
  PMSTORE_CHECK(held != nullptr, "a plan that is held ends once");
  give_up(plan);
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
  CommitPlan* const held = plan.get();
  note_held(std::move(plan));
  return held;
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
