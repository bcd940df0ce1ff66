#include "pmstore/client/client_rnic_commit.h"

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
    Status unchanged = co_await validate_one_sided(items_, *session_);
    if (!unchanged) status = std::move(unchanged);
  }
  if (status) status = co_await locks_.lock_and_validate();
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
    auto located = co_await reader_.locate(session_, item.table, items_.key(item), nullptr);
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
