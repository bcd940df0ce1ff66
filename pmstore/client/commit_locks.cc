#include "pmstore/client/commit_locks.h"

#include <cstring>
#include <unordered_map>

#include "pmstore/layout/lock_word.h"

namespace pmstore::internal {

base::Task<Status> CommitLocks::make_room_in_batch() {
  Status posted;
  if (buffer_->batch.full()) {
    posted = co_await session_.post(*buffer_, false);
    buffer_->batch.clear();
  }
  co_return std::move(posted);
}

base::Task<Status> CommitLocks::lock_and_validate() {
  PMSTORE_CHECK(!attempted_, "a commit locks once");
  buffer_ = session_.buffers().try_take();
  if (!buffer_) buffer_ = co_await session_.buffers().take();
  // A commit that has dropped the session may have left its locks to the list of this buffer.
  if (!session_.usable()) co_return session_.why_unusable();
  buffer_->batch.clear();
  const uint16_t owner = session_.hello().owner;
  size_t word = 0;
  attempted_ = true;
  announce_locks();
  for (const TxItem& item : items_) {
    const auto lock = lock_of(item);
    if (!lock) continue;
    Status room = co_await make_room_in_batch();
    if (!room) co_return give_up(std::move(room));
    buffer_->batch.compare_swap(buffer_->word_at(word++), session_.word_at(lock->slot),
                                LockWord::unlocked(lock->version).bits,
                                LockWord::locked(lock->version, owner).bits);
  }
  // Behind the locks on the same queue pair: so these are read when all locks are held.
  for (const TxItem& item : items_) {
    if (!is_read(item) && !is_absence(item)) continue;
    Status room = co_await make_room_in_batch();
    if (!room) co_return give_up(std::move(room));
    buffer_->batch.read(buffer_->word_at(word++), is_read(item) ? session_.word_at(item.slot)
                                                                : session_.bucket_at(item.bucket));
  }
  if (buffer_->batch.empty()) co_return Status{};  // nothing but inserts
  Status done = co_await session_.execute(*buffer_);
  if (!done) done = co_await session_.execute_after(std::move(done), *buffer_);
  if (!done) co_return give_up(std::move(done));
  co_return check_words();
}

// In front of the compare-swaps on the same queue pair: see pmstore/layout/lock_list_layout.h.
void CommitLocks::announce_locks() {
  uint32_t bytes = 0;
  const auto append = [&](uint64_t entry) {
    PMSTORE_CHECK(bytes < kLockListBytes, "a commit locks no more records than its list takes");
    std::memcpy(buffer_->at(bytes, sizeof(entry)).data, &entry, sizeof(entry));
    bytes += sizeof(entry);
  };
  for (const TxItem& item : items_) {
    if (const auto lock = lock_of(item)) append(lock_list_entry(lock->slot));
  }
  if (bytes == 0) return;
  if (bytes < kLockListBytes) append(0);
  buffer_->batch.write(buffer_->at(0, bytes), session_.lock_list_of(*buffer_));
}

Status CommitLocks::check_words() const {
  size_t word = 0;
  bool ok = true;
  for (const TxItem& item : items_) {
    const auto lock = lock_of(item);
    if (lock) ok &= buffer_->word(word++) == LockWord::unlocked(lock->version).bits;
  }
  for (const TxItem& item : items_) {
    if (is_read(item)) {
      ok &= buffer_->word(word++) == LockWord::unlocked(item.version).bits;
    } else if (is_absence(item)) {
      ok &= buffer_->word(word++) == item.bucket_version;
    }
  }
  if (ok) return {};
  return make_error(ErrorCode::kConflict, "another transaction changed what was read or written");
}

bool CommitLocks::take_out_locked(std::vector<ReadCheck>& reads) const {
  std::unordered_map<uint64_t, uint64_t> locked;
  for (const TxItem& item : items_) {
    if (const auto lock = lock_of(item)) locked.emplace(raw(lock->slot), lock->version);
  }
  if (locked.empty()) return true;
  bool same = true;
  std::erase_if(reads, [&](const ReadCheck& read) {
    const auto found = locked.find(read.slot);
    if (found == locked.end()) return false;
    same &= found->second == read.version;
    return true;
  });
  return same;
}

base::Task<void> CommitLocks::unlock() {
  PMSTORE_CHECK(attempted_ && buffer_, "only a commit that has tried to lock unlocks");
  const uint16_t owner = session_.hello().owner;
  size_t word = 0;
  buffer_->batch.clear();
  for (const TxItem& item : items_) {
    const auto lock = lock_of(item);
    if (!lock) continue;
    const size_t index = word++;
    const uint64_t unlocked = LockWord::unlocked(lock->version).bits;
    if (buffer_->word(index) != unlocked) continue;  // another transaction holds this lock
    Status room = co_await make_room_in_batch();
    if (!room) co_return session_.drop();
    buffer_->batch.compare_swap(buffer_->word_at(index), session_.word_at(lock->slot),
                                LockWord::locked(lock->version, owner).bits, unlocked);
  }
  if (buffer_->batch.empty()) co_return;
  Status done = co_await session_.execute(*buffer_);
  if (!done) done = co_await session_.execute_after(std::move(done), *buffer_);
  if (!done) session_.drop();
}

}  // namespace pmstore::internal
