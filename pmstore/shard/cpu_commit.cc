#include "pmstore/shard/cpu_commit.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <unordered_set>

#include "base/check.h"
#include "pmstore/layout/record.h"
#include "pmstore/layout/shard_record.h"
#include "pmstore/shard/read_checks.h"

namespace pmstore::internal {

namespace {

Error too_large(uint64_t payload_bytes, uint64_t limit) {
  return make_error(ErrorCode::kTooLarge,
                    "the transaction needs " + std::to_string(payload_bytes) +
                        " bytes of redo log and this pool allows " + std::to_string(limit) +
                        "; split it, or create the pool with larger --shard-log-bytes");
}

Error too_many_prepared() {
  return make_error(ErrorCode::kBackPressure,
                    "too many transactions are prepared at the same time; try again");
}

Error outcome_unknown(const Error& why) {
  return make_error(ErrorCode::kCommitUnknown, "the redo log could not be made durable (" +
                                                   why.message +
                                                   "); stop the server and look at the storage");
}

uint64_t version_in(std::span<const std::byte> image) {
  return reinterpret_cast<const RecordHeader*>(image.data())->version;
}

// Asks for what the index has of the writes that come a few later, while this one is planned.
class IndexLookahead {
 public:
  IndexLookahead(const KeyIndex& index, const CommitView& request)
      : index_(index), writes_(request.writes), left_(request.write_count) {
    if (left_ == 1) left_ = 0;  // there is nothing to wait for meanwhile
    for (uint32_t i = 0; i < kDistance; ++i) ask();
  }
  void ask() {
    if (left_ == 0) return;
    --left_;
    const CommitWrite write = writes_.next();
    index_.prefetch(IndexKey::of(write.table, write.key));
  }

 private:
  static constexpr uint32_t kDistance = 8;

  const KeyIndex& index_;
  CommitWrites writes_;
  uint32_t left_;
};

Error written_twice() {
  return make_error(ErrorCode::kInvalidArgument, "a transaction writes a key at most once");
}

}  // namespace

CpuCommit::CpuCommit(RecordStore& records, ShardLog& log, FailureLatch& latch)
    : records_(records), log_(log), latch_(latch) {
  records_.set_insert_source([this](const IndexKey& key) { return is_inserted_by_another(key); });
  plans_.push_back(std::make_unique<CommitPlan>(log::entry_room(log.max_payload_bytes())));
  group_.reserve(kMostPrepared);
}

CpuCommit::~CpuCommit() {
  records_.set_insert_source(nullptr);
  // A group that is not finished ends like one whose server's process has died.
  const auto both = std::count_if(group_.begin(), group_.end(),
                                  [&](const CommitPlan* plan) { return held_.contains(plan); });
  PMSTORE_CHECK(locked_ + static_cast<size_t>(both) == group_.size() + held_.size(),
                "a prepared transaction ends before what it would be applied to");
}

// ---- prepare ----

bool CpuCommit::inserts(const Plans& plans, const IndexKey& key) {
  for (const auto& plan : plans) {
    if (!plan->is_locked()) continue;
    for (const PlannedWrite& write : plan->writes()) {
      if (!write.exists && write.key == key) return true;
    }
  }
  return false;
}

bool CpuCommit::is_inserted_by_another(const IndexKey& key) const {
  if (locked_ == 0) [[likely]]
    return false;
  // An insert that is under way has begun to change the key's unit: the unit's version is odd.
  const KeyIndex& index = records_.index();
  if (index.version(index.unit_of(key)) % 2 == 0) return false;
  return inserts(plans_, key) || is_inserted_by_held(key);
}

bool CpuCommit::writes_to(const CommitPlan& plan, TableId table) {
  return plan.is_locked() &&
         std::any_of(plan.writes().begin(), plan.writes().end(),
                     [&](const PlannedWrite& write) { return write.key.table == table; });
}

bool CpuCommit::writes_to(const Plans& plans, TableId table) {
  return std::any_of(plans.begin(), plans.end(),
                     [&](const auto& plan) { return writes_to(*plan, table); });
}

PlannedWrite* CpuCommit::last_in_group(const IndexKey& key) {
  constexpr size_t kMostSearched = 256;
  if (group_writes_ > kMostSearched) return nullptr;
  for (auto plan = group_.rbegin(); plan != group_.rend(); ++plan) {
    for (PlannedWrite& write : (*plan)->writes()) {
      if (write.key == key) return &write;
    }
  }
  return nullptr;
}

// Finds the record that the write changes: the one in place, or the last one that the group plans.
// One transaction writes each key once.
Status CpuCommit::find_record(PlannedWrite& write, Basis basis) {
  std::optional<SlotOffset> damaged;
  const auto found = records_.find(write.key, damaged);
  if (!found && damaged) return damaged_key(*damaged);
  const LockWord word = found ? records_.words().load(found->slot) : LockWord{};
  if (found ? !word.is_locked() : !is_inserted_by_another(write.key)) {
    write.exists = found.has_value();
    if (!found) return {};
    write.old_slot = found->slot;
    write.size_class = found->size_class;
    write.old_version = word.version();
    return {};
  }
  PlannedWrite* const before = basis == Basis::kInPlaceOrGroup ? last_in_group(write.key) : nullptr;
  const bool leaves_record = before != nullptr && before->kind != WriteKind::kErase;
  if (!leaves_record || write.kind == WriteKind::kInsert) return make_error(ErrorCode::kConflict);
  PMSTORE_CHECK(!before->built_on, "the last write of a key is the one to build on");
  write.builds_on = before;
  write.exists = true;
  write.old_slot = before->slot;
  write.size_class = before->size_class;
  write.old_version = version_in(before->image);
  return {};
}

// Decides which slot one write goes to, and locks what it changes.
Status CpuCommit::plan_write(PlannedWrite& write, uint64_t expected_slot, uint64_t expected_version,
                             Basis basis) {
  const TableCatalog& catalog = records_.catalog();
  if (!catalog.exists(write.key.table)) return catalog.unknown(write.key.table);
  if (write.key.key.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "a key has 1 to 512 bytes");
  }
  if (write.value.size() > kMaxValueBytes) {
    return make_error(ErrorCode::kTooLarge, "a value has at most 1 MiB");
  }
  PMSTORE_TRY_STATUS(find_record(write, basis));
  if (expected_version != 0 && (!write.exists || raw(write.old_slot) != expected_slot ||
                                write.old_version != expected_version)) {
    return make_error(ErrorCode::kConflict);
  }
  const bool erase = write.kind == WriteKind::kErase;
  if (write.kind == WriteKind::kInsert && write.exists)
    return make_error(ErrorCode::kAlreadyExists);
  if (erase && !write.exists) return make_error(ErrorCode::kNotFound);
  if (write.exists && write.old_version >= kMaxRecordVersion) {
    return versions_used_up(write.old_slot);
  }
  write.slot = write.old_slot;
  const uint64_t bytes = record_bytes(write.key.key.size(), write.value.size());
  const bool stays =
      write.exists && !records_.is_viewed(write.old_slot) && bytes <= kSlotBytes[write.size_class];
  const bool moves = !write.exists || (!erase && !stays);
  const bool entry_changes = write.builds_on != nullptr && write.builds_on->entry_changes;
  if (entry_changes && (moves || erase)) return make_error(ErrorCode::kConflict);
  if ((moves || erase) && is_guarded(write.key)) return make_error(ErrorCode::kConflict);
  if (moves) {
    write.size_class = size_class_of(bytes);
    auto slot = records_.arena().allocate(write.size_class);
    if (!slot) return slot.error();
    // Not freed: the next try gets another one.
    if (records_.version_of(*slot) >= kMaxRecordVersion) return versions_used_up(*slot);
    write.slot = *slot;
    write.fresh = true;
  }
  write.index_changes = write.fresh || erase;
  write.entry_changes = write.index_changes || entry_changes;
  if (write.index_changes) {
    Status begun = records_.index().begin_change(write.key);
    if (!begun && write.fresh) records_.arena().free_slot(write.slot);
    PMSTORE_TRY_STATUS(begun);
  }
  if (write.builds_on != nullptr) {
    write.builds_on->built_on = true;
  } else if (write.exists) {
    records_.words().store(write.old_slot, LockWord::locked(write.old_version, kServerOwner));
  }
  return {};
}

Status CpuCommit::plan_writes(CommitPlan& plan, const CommitView& request, Basis basis) {
  std::vector<PlannedWrite>& writes = plan.writes();
  // Two writes of one key are found by comparing each with all others, or, where that would take
  // long, with those of the same hash.
  constexpr size_t kCompareAll = 64;
  std::optional<std::unordered_set<uint64_t>> hashes;
  if (request.write_count > kCompareAll) hashes.emplace();
  IndexLookahead ahead(records_.index(), request);
  CommitWrites rest = request.writes;
  for (uint32_t i = 0; i < request.write_count; ++i) {
    ahead.ask();
    const CommitWrite wanted = rest.next();
    const IndexKey key = IndexKey::of(wanted.table, wanted.key);
    if (!hashes || !hashes->insert(key.hash.value).second) {
      for (const PlannedWrite& other : writes) {
        if (other.key == key) return written_twice();
      }
    }
    PlannedWrite& write = writes.emplace_back();
    write.kind = wanted.kind;
    write.key = key;
    write.value = wanted.value;
    Status planned = plan_write(write, wanted.expected_slot, wanted.expected_version, basis);
    if (!planned) {
      writes.pop_back();  // it has locked nothing
      return planned;
    }
  }
  return {};
}

Status CpuCommit::build_redo(CommitPlan& plan, std::span<const ShardParticipant> participants) {
  uint64_t payload_bytes = shard_header_bytes(participants.size());
  for (const PlannedWrite& write : plan.writes()) {
    const uint64_t value_bytes = write.kind == WriteKind::kErase ? 0 : write.value.size();
    payload_bytes += shard_write_bytes(record_bytes(write.key.key.size(), value_bytes));
    if (write.exists && write.fresh)
      payload_bytes += shard_write_bytes(record_bytes(write.key.key.size(), 0));
  }
  const uint64_t limit = log_.max_payload_bytes();
  if (payload_bytes > limit) return too_large(payload_bytes, limit);
  plan.make_entry_room(log::entry_room(payload_bytes));
  const auto payload = plan.entry_room().subspan(sizeof(log::EntryHeader));
  ShardRedoBuilder redo(payload, plan.id().client, records_.catalog().header().epoch, participants);
  for (PlannedWrite& write : plan.writes()) {
    const TableId table = write.key.table;
    if (write.exists && write.fresh) {
      write.old_image = redo.add(write.old_slot, table, write.old_version + 1,
                                 RecordState::kTombstone, write.key.key, {});
    }
    const uint64_t version =
        (write.fresh ? records_.version_of(write.slot) : write.old_version) + 1;
    const bool erase = write.kind == WriteKind::kErase;
    write.image =
        redo.add(write.slot, table, version, erase ? RecordState::kTombstone : RecordState::kLive,
                 write.key.key, erase ? std::string_view() : write.value);
    // From here on the request is not needed any more.
    write.key.key = {reinterpret_cast<const char*>(write.image.data()) + sizeof(RecordHeader),
                     write.key.key.size()};
  }
  PMSTORE_CHECK(redo.finish().size() == payload_bytes,
                "the size was computed from the same writes");
  plan.prepared(payload_bytes);
  ++locked_;
  return {};
}

CommitPlan* CpuCommit::another_free_plan() {
  for (; next_plan_ < plans_.size(); ++next_plan_) {
    if (plans_[next_plan_]->is_free()) return plans_[next_plan_].get();
  }
  // Others have ended meanwhile, or not.
  next_plan_ = 0;
  const auto free =
      std::find_if(plans_.begin(), plans_.end(), [](const auto& plan) { return plan->is_free(); });
  if (free != plans_.end()) return free->get();
  if (plans_.size() == kMostPrepared) return nullptr;
  plans_.push_back(std::make_unique<CommitPlan>(CommitPlan::kKeptBytes));
  return plans_.back().get();
}

Status CpuCommit::plan_transaction(CommitPlan& plan, const CommitView& request, Basis basis) {
  plan.begin(request.client, request.sequence);
  Status planned = plan_writes(plan, request, basis);
  if (planned) planned = build_redo(plan);
  if (!planned) give_up(plan);
  return planned;
}

Result<CpuCommit::Prepared> CpuCommit::prepare(const CommitView& request) {
  PMSTORE_CHECK(request.write_count > 0, "a transaction without writes has nothing to prepare");
  if (latch_.failed()) return latch_.error();
  PMSTORE_TRY_STATUS(check_reads(records_, request, kServerOwner));
  CommitPlan* const plan = free_plan();
  if (plan == nullptr) return too_many_prepared();
  PMSTORE_TRY_STATUS(plan_transaction(*plan, request, Basis::kInPlace));
  return Prepared(*this, *plan);
}

// ---- commit ----

Status CpuCommit::commit(const CommitView& request) {
  if (latch_.failed()) return latch_.error();
  PMSTORE_TRY_STATUS(check_reads(records_, request, kServerOwner));
  if (request.write_count == 0) return {};
  CommitPlan* const plan = free_plan();
  if (plan == nullptr) return too_many_prepared();
  PMSTORE_TRY_STATUS(plan_transaction(*plan, request, Basis::kInPlace));
  return log_and_apply(*plan);
}

Status CpuCommit::Prepared::commit() {
  PMSTORE_CHECK(plan_ != nullptr, "a prepared transaction is committed once");
  CommitPlan& plan = *std::exchange(plan_, nullptr);
  if (commit_->latch_.failed()) {
    commit_->give_up(plan);
    return commit_->latch_.error();
  }
  return commit_->log_and_apply(plan);
}

Status CpuCommit::join_group(const CommitView& request) {
  PMSTORE_CHECK(request.write_count > 0, "a transaction without writes has nothing to log");
  if (latch_.failed()) return latch_.error();
  PMSTORE_TRY_STATUS(check_reads(records_, request, kServerOwner));
  CommitPlan* const plan = free_plan();
  if (plan == nullptr) return too_many_prepared();
  PMSTORE_TRY_STATUS(plan_transaction(*plan, request, Basis::kInPlaceOrGroup));
  return append_to_group(*plan);
}

Status CpuCommit::append_to_group(CommitPlan& plan) {
  Status logged = log_in_group(plan);
  if (!logged) give_up(plan);
  return logged;
}

Status CpuCommit::log_in_group(CommitPlan& plan) {
  PMSTORE_CHECK(plan.state() == CommitPlan::State::kPrepared, "only a whole redo record is logged");
  const uint64_t payload_bytes = plan.payload_bytes();
  auto appended = log_.append(plan.id(), plan.entry_room(), payload_bytes);
  // Else the group's entries would leave the log although they are not in place.
  const bool may_truncate = log_.all_applied();
  if (!appended && appended.code() == ErrorCode::kBackPressure && may_truncate) {
    const Status made = log_.make_room(payload_bytes);
    if (made) appended = log_.append(plan.id(), plan.entry_room(), payload_bytes);
    if (!made) appended = made.error();
  }
  if (!appended) return appended.error();
  plan.logged(*appended);
  group_.push_back(&plan);
  group_writes_ += plan.writes().size();
  return {};
}

Result<DurableLog> CpuCommit::finish_group() {
  PMSTORE_CHECK(group_.size() <= locked_, "what has joined is locked");
  auto logged = log_.drain();
  if (!logged) {
    latch_.set();
    for (auto plan = group_.rbegin(); plan != group_.rend(); ++plan) {
      const auto held = release_held(**plan);
      give_up(**plan);
    }
    leave_group();
    return outcome_unknown(logged.error());
  }
  for (CommitPlan* const plan : group_) {
    const auto held = release_held(*plan);
    apply(*logged, *plan);
    log_.applied();
  }
  leave_group();
  return logged;
}

void CpuCommit::leave_group() {
  group_.clear();
  next_plan_ = 0;
  group_writes_ = 0;
}

Status CpuCommit::log_and_apply(CommitPlan& plan) {
  PMSTORE_CHECK(group_.empty() && log_.all_applied(),
                "the group's owner finishes it, and answers its transactions");
  PMSTORE_TRY_STATUS(append_to_group(plan));
  const auto logged = finish_group();
  return logged ? Status() : Status(logged.error());
}

void CpuCommit::apply(const DurableLog& logged, CommitPlan& plan) {
  PMSTORE_CHECK(plan.state() == CommitPlan::State::kLogged && logged.covers(plan.end_lsn()),
                "what is put in place is in the log, and durable there");
  LockTable& words = records_.words();
  KeyIndex& index = records_.index();
  for (const PlannedWrite& write : plan.writes()) {
    PMSTORE_CHECK(
        !write.exists ||
            words.load(write.old_slot) == LockWord::locked(write.old_version, kServerOwner),
        "what a plan changes is locked until it is in place, at the version it builds on");
    if (!write.old_image.empty()) records_.write_in_place(write.old_slot, write.old_image);
    records_.write_in_place(write.slot, write.image);
    if (write.fresh) {
      if (write.exists) index.remove(write.key, write.old_slot);
      index.insert(write.key, write.size_class, write.slot);
    } else if (write.kind == WriteKind::kErase) {
      index.remove(write.key, write.slot);
    }
  }
  // Nothing is unlocked before everything is in place: a reader that sees one new record and then
  // validates an old one finds the old one's word locked or changed.
  for (const PlannedWrite& write : plan.writes()) {
    const uint64_t version = version_in(write.image);
    if (!write.old_image.empty()) {
      words.store(write.old_slot, LockWord::unlocked(write.old_version + 1));
      records_.free_slot(write.old_slot);
    }
    if (write.built_on) {
      words.store(write.slot, LockWord::locked(version, kServerOwner));
    } else {
      words.store(write.slot, LockWord::unlocked(version));
    }
    if (write.kind == WriteKind::kErase) records_.free_slot(write.slot);
    if (write.index_changes) index.end_change(write.key);
  }
  end(plan);
}

// ---- giving up ----

void CpuCommit::give_up(CommitPlan& plan) {
  LockTable& words = records_.words();
  const auto& writes = plan.writes();
  for (auto write = writes.rbegin(); write != writes.rend(); ++write) {
    if (write->index_changes) records_.index().end_change(write->key);
    if (write->builds_on != nullptr) {
      PMSTORE_CHECK(write->builds_on->built_on && !write->built_on, "the last one goes first");
      write->builds_on->built_on = false;
    } else if (write->exists) {
      PMSTORE_CHECK(
          words.load(write->old_slot) == LockWord::locked(write->old_version, kServerOwner),
          "what a plan has locked stays locked until it ends");
      words.store(write->old_slot, LockWord::unlocked(write->old_version));
    }
    if (write->fresh) records_.arena().free_slot(write->slot);
  }
  end(plan);
}

void CpuCommit::end(CommitPlan& plan) {
  if (plan.is_locked()) --locked_;
  plan.clear();
}

}  // namespace pmstore::internal
