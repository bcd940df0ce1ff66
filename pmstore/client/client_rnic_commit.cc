#include "pmstore/client/client_rnic_commit.h"

#include <algorithm>
#include <span>
#include <utility>

#include "pmstore/client/read_validation.h"
#include "pmstore/client/rnic_background.h"

namespace pmstore::internal {

base::Task<Status> ClientRnicCommit::run() {
  if (Status fits = redo_.check_limits(); !fits) co_return std::move(fits);
  Status status = co_await locate();
  if (status) status = co_await reservations_.reserve();
  const bool contradicted = !status && (status.code() == ErrorCode::kAlreadyExists ||
                                        status.code() == ErrorCode::kNotFound);
  if (contradicted) {
    // True now; but an answer only if what was read is true now, too.
    Status unchanged = co_await validate_without_locks();
    if (!unchanged) status = std::move(unchanged);
  }
  if (status) status = co_await choose_validation();
  if (status) status = co_await locks_.lock_and_validate();
  if (status) status = co_await validate_in_order();
  if (status) status = redo_.check_versions();
  if (status) {
    redo_.build(locks_.buffer());
    auto appended = co_await redo_.append();
    if (appended) participant_.logged = *appended;
    if (!appended) status = std::move(appended.error());
  }
  if (!status) {
    if (status.code() != ErrorCode::kCommitUnknown) co_await undo();
    co_return std::move(status);
  }
  co_await finish();
  co_return Status{};
}

base::Task<Status> ClientRnicCommit::locate() {
  for (TxItem& item : items_) {
    if (!item.writes() || item.seen != TxItem::Seen::kNo) continue;
    if (item.need == TxItem::Need::kAbsent) continue;  // the reservation finds out
    auto located = co_await reader_.locate(session_, item.table, items_.key(item), {});
    if (!located) co_return std::move(located.error());
    if (!located->found) {
      if (item.need == TxItem::Need::kPresent) co_return make_error(ErrorCode::kNotFound);
      continue;
    }
    item.seen = TxItem::Seen::kLocated;
    item.slot = located->slot;
    item.version = located->version;
    item.size_class = located->size_class;
  }
  co_return Status{};
}

// Whether a bucket can be READ may change at any moment, so it is decided once.
base::Task<Status> ClientRnicCommit::choose_validation() {
  if (!knows_buckets_of(items_, *session_)) {
    PMSTORE_CO_TRY_STATUS(co_await learn_buckets_of(items_, *session_));
  }
  for (TxItem& item : items_) {
    // A key that this transaction has reserved a slot for is absent by that reservation.
    const bool absence = item.seen == TxItem::Seen::kAbsent && !item.reserved;
    item.absent_by_call =
        absence && (is_ordered(item.table) || !session_->knows_bucket(item.bucket));
  }
  co_return Status{};
}

base::Task<Status> ClientRnicCommit::validate_in_order() {
  parts_.reads.clear();
  parts_.absences.clear();
  for (const ReadCheck& seen : scanned_.records()) parts_.reads.push_back(seen);
  if (!parts_.reads.empty() && !locks_.take_out_locked(parts_.reads)) {
    co_return make_error(ErrorCode::kConflict, "a record has changed behind a scan");
  }
  for (const TxItem& item : items_) {
    if (item.absent_by_call) parts_.absences.push_back({item.bucket, item.bucket_version});
  }
  for (const LeafSeen& leaf : scanned_.leaves()) {
    parts_.absences.push_back({leaf.unit, leaf.version});
  }
  if (parts_.reads.empty() && parts_.absences.empty()) co_return Status{};
  co_return co_await session_->calls().commit({id_.client,
                                               id_.sequence,
                                               std::as_bytes(std::span(parts_.reads)),
                                               std::as_bytes(std::span(parts_.absences)),
                                               {},
                                               0});
}

base::Task<Status> ClientRnicCommit::validate_without_locks() {
  const bool saw_leaves =
      scanned_.pages() > 0 || std::any_of(items_.begin(), items_.end(), [](const TxItem& item) {
        return item.seen == TxItem::Seen::kAbsent && is_ordered(item.table);
      });
  if (!saw_leaves && !knows_buckets_of(items_, *session_)) {
    PMSTORE_CO_TRY_STATUS(co_await learn_buckets_of(items_, *session_));
  }
  if (!saw_leaves && knows_buckets_of(items_, *session_)) {
    // This task is destroyed with the client only: no batch of it outlives the connection.
    BufferLease buffer = session_->buffers().try_take();
    if (!buffer) buffer = co_await session_->buffers().take();
    co_return co_await validate_one_sided(items_, *session_, *buffer);
  }
  co_return co_await validate_by_call(id_, items_, scanned_, *session_, parts_);
}

base::Task<void> ClientRnicCommit::undo() {
  if (session_->usable() && locks_.attempted()) co_await locks_.unlock();
  locks_.give_buffer_back();
  if (session_->usable() && reservations_.any()) co_await reservations_.release();
}

base::Task<void> ClientRnicCommit::finish() {
  const RedoRing::Appended logged = *participant_.logged;
  Executor& executor = session_->executor();
  if (redo_.in_place()) {
    const Status posted = co_await redo_.post_in_place(logged.persisted, locks_.buffer());
    if (!posted) {
      session_->drop();
      co_return;
    }
    SessionBuffer held{session_, locks_.take_buffer()};
    auto rest = finish_in_place(std::move(held), logged.ticket);
    executor.spawn(std::move(rest));
    co_return;
  }
  locks_.give_buffer_back();
  auto apply = apply_logged(logged.persisted, session_, logged.lsn, logged.ticket);
  if (!redo_.changes_index()) {
    executor.spawn(std::move(apply));
    co_return;
  }
  co_await std::move(apply);
  for (const TxItem& item : items_) {
    if (item.reserved) {
      reader_.remember(item.hash, participant_.shard, item.size_class, item.slot);
    }
    if (item.leave == TxItem::Leave::kNothing) reader_.forget(item.hash);
  }
}

}  // namespace pmstore::internal
