// Commit under lock discipline rnic: lock, validate, log and commit by one-sided operations on the
// connection's queue pair; the server's CPU is asked only for slots and index changes.
// docs/transactions.md says why the phases are in this order.
#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "persist/padding.h"
#include "pmstore/client/rnic_background.h"
#include "pmstore/client/transaction_state.h"
#include "pmstore/layout/lock_word.h"
#include "pmstore/layout/record.h"
#include "pmstore/layout/redo.h"
#include "pmstore/layout/size_class.h"

namespace pmstore {

using internal::ClientSession;
using internal::OpBuffer;
using internal::TxItem;

// One commit. Invariant: from reserve() to the end of log() or undo(), what is locked is exactly
// the reserved items and the locks whose word in the buffer shows that the compare-swap succeeded.
class Transaction::State::RnicCommit {
 public:
  RnicCommit(State& tx, internal::SessionRef session) : tx_(tx), session_(std::move(session)) {}

  Task<Status> run();

 private:
  struct Lock {
    SlotOffset slot;
    uint64_t version;
  };

  Task<Status> locate();
  Status check_limits() const;
  Task<Status> reserve();
  Task<Status> reserve_one(Item& item);
  Task<Status> lock_and_validate();
  void announce_locks();
  Status check_words() const;
  Task<void> undo();
  Task<void> unlock();
  Task<void> release();
  void build_redo();
  Task<Status> log();
  Task<void> finish();

  // The word that a write must lock by itself; reserved slots are locked already.
  static std::optional<Lock> lock_of(const Item& item) {
    if (!item.writes() || (item.reserved && !item.moved)) return std::nullopt;
    if (item.moved) return Lock{item.old_slot, item.old_version};
    return Lock{item.slot, item.version};
  }
  // What was only read, and is validated by its word.
  static bool is_read(const Item& item) {
    return !item.writes() && item.seen == Item::Seen::kFound;
  }
  // A key that this transaction has reserved a slot for is absent by that reservation.
  static bool is_absence(const Item& item) {
    return item.seen == Item::Seen::kAbsent && !item.reserved;
  }
  uint64_t record_size(const Item& item) const {
    return record_bytes(item.key_bytes, item.leave == Item::Leave::kValue ? item.value_bytes : 0);
  }
  bool changes_index() const {
    return std::any_of(tx_.items.begin(), tx_.items.end(), [](const Item& item) {
      return item.reserved || item.leave == Item::Leave::kNothing;
    });
  }
  // Posts the buffer's batch if it is full.
  Task<Status> make_room_in_batch();
  // It is not known which locks are held: only the server can sort that out.
  Status give_up(Status why) {
    session_->drop();
    return why;
  }

  State& tx_;
  internal::SessionRef session_;
  internal::BufferLease buffer_;
  bool locking_ = false;   // compare-swaps have been posted
  bool in_place_ = false;  // the commit phase is one doorbell, planned in the buffer
  std::span<const std::byte> payload_;
  internal::RedoRing::Appended logged_{};
};

// The end of one commit, in the frame of whoever waits for it. That frame may go first.
class Transaction::State::CommitEnd {
 public:
  explicit CommitEnd(State& tx) : tx_(&tx), executor_(tx.client.executor) { tx.awaited = this; }
  CommitEnd(const CommitEnd&) = delete;
  CommitEnd& operator=(const CommitEnd&) = delete;
  ~CommitEnd() {
    if (tx_ != nullptr) tx_->awaited = nullptr;
    if (posted_) executor_.forget(waiter_);
  }
  void come(Status status) {
    tx_ = nullptr;
    status_ = std::move(status);
    posted_ = static_cast<bool>(waiter_);
    // Not resumed here: it may destroy the client, and with it the commit that is ending.
    if (posted_) executor_.post(waiter_);
  }
  bool await_ready() const { return tx_ == nullptr; }
  void await_suspend(std::coroutine_handle<> waiter) { waiter_ = waiter; }
  Status await_resume() {
    posted_ = false;
    return std::move(status_);
  }

 private:
  State* tx_;  // nullptr once it has come
  Executor& executor_;
  std::coroutine_handle<> waiter_;
  bool posted_ = false;
  Status status_;
};

// What locks must also unlock, and what has logged must also apply: so a commit runs by itself, and
// goes on when nobody waits for it any more.
Task<Status> Transaction::State::commit_rnic() {
  id = client.next_id();
  CommitEnd end(*this);
  client.run_commit(run_rnic(hold()));
  co_return co_await end;
}

Task<void> Transaction::State::run_rnic(Ref self) {
  const Ref held = std::move(self);  // to the end of the work, not of the frame
  const auto me = std::prev(client.commits.end());
  Client::State::Running is_running(client, id.sequence);
  RnicCommit commit(*this, session);
  Status status = co_await commit.run();
  if (awaited != nullptr) {
    is_running.settled();
    std::exchange(awaited, nullptr)->come(std::move(status));
  }
  client.commit_ended(me);
}

Task<Status> Transaction::State::RnicCommit::run() {
  if (Status fits = check_limits(); !fits) co_return std::move(fits);
  Status status = co_await locate();
  if (status) status = co_await reserve();
  const bool contradicted = !status && (status.code() == ErrorCode::kAlreadyExists ||
                                        status.code() == ErrorCode::kNotFound);
  if (contradicted) {
    // True now; but an answer only if what was read is true now, too.
    Status unchanged = co_await tx_.validate_one_sided();
    if (!unchanged) status = std::move(unchanged);
  }
  if (status) status = co_await lock_and_validate();
  if (status) {
    build_redo();
    status = co_await log();
  }
  if (!status) {
    if (status.code() != ErrorCode::kCommitUnknown) co_await undo();
    co_return std::move(status);
  }
  co_await finish();
  co_return Status{};
}

// ---- where the writes go ----

Task<Status> Transaction::State::RnicCommit::locate() {
  for (Item& item : tx_.items) {
    if (!item.writes() || item.seen != Item::Seen::kNo) continue;
    if (item.need == Item::Need::kAbsent) continue;  // the reservation finds out
    auto located = co_await tx_.client.locate(session_, item.table, tx_.key(item), nullptr);
    if (!located) co_return std::move(located.error());
    if (!located->found) {
      if (item.need == Item::Need::kPresent) co_return make_error(ErrorCode::kNotFound);
      continue;
    }
    item.seen = Item::Seen::kLocated;
    item.slot = located->slot;
    item.version = located->version;
    item.size_class = located->size_class;
  }
  co_return Status{};
}

Status Transaction::State::RnicCommit::check_limits() const {
  uint64_t redo_bytes = redo_header_bytes(1);
  size_t words = 0;
  for (const Item& item : tx_.items) {
    words += item.writes() || item.seen != Item::Seen::kNo;
    if (!item.writes()) continue;
    redo_bytes += redo_write_bytes(record_size(item));
    redo_bytes += redo_write_bytes(record_bytes(item.key_bytes, 0));  // if it moves: the tombstone
  }
  if (words > OpBuffer::kWords) {
    return make_error(ErrorCode::kTooLarge, "a transaction under lock discipline rnic may touch " +
                                                std::to_string(OpBuffer::kWords) +
                                                " records; split it");
  }
  const uint64_t limit = session_->ring().max_payload_bytes();
  if (redo_bytes > limit) {
    return make_error(ErrorCode::kTooLarge,
                      "the transaction's redo record of " + std::to_string(redo_bytes) +
                          " bytes is over half of the ring (" + std::to_string(limit) +
                          " bytes); split it or format with larger rings");
  }
  return {};
}

Task<Status> Transaction::State::RnicCommit::reserve() {
  for (Item& item : tx_.items) {
    if (!item.writes() || item.leave != Item::Leave::kValue) continue;
    const bool placed = item.seen == Item::Seen::kFound || item.seen == Item::Seen::kLocated;
    if (placed && record_size(item) <= kSlotBytes[item.size_class]) continue;
    if (placed) {
      item.moved = true;
      item.old_slot = item.slot;
      item.old_version = item.version;
    }
    Status reserved = co_await reserve_one(item);
    if (!reserved) co_return std::move(reserved);
  }
  co_return Status{};
}

Task<Status> Transaction::State::RnicCommit::reserve_one(Item& item) {
  std::array<std::byte, sizeof(RequestPrefix) + sizeof(ReserveRequest) + kMaxKeyBytes> room;
  MessageWriter request(room);
  request.put(session_->prefix());
  request.put(ReserveRequest{item.value_bytes, raw(item.table), item.key_bytes, item.moved});
  request.put_bytes(tx_.key(item));
  auto answer = co_await session_->rpc().call(static_cast<uint16_t>(Method::kReserve),
                                              request.message(), sizeof(ReserveReply));
  if (!answer) {
    const ErrorCode code = answer.code();
    // A transaction that saw nothing there, and now finds something, has lost a race.
    const bool raced = code == ErrorCode::kAlreadyExists &&
                       (item.need != Item::Need::kAbsent || item.seen == Item::Seen::kAbsent);
    // A move whose record is gone has lost one, too.
    if (raced || (code == ErrorCode::kNotFound && item.moved)) {
      co_return make_error(ErrorCode::kConflict, "another transaction changed the same key");
    }
    co_return std::move(answer.error());
  }
  MessageReader reader(answer->bytes());
  const auto reply = reader.get<ReserveReply>();
  if (!reader.complete() || reply.size_class >= kSizeClasses ||
      kSlotBytes[reply.size_class] < record_size(item) ||
      !session_->in_records(SlotOffset{reply.slot}, kSlotBytes[reply.size_class])) {
    co_return session_->malformed_reply("a reservation");
  }
  item.reserved = true;
  item.slot = SlotOffset{reply.slot};
  item.version = reply.version;
  item.size_class = reply.size_class;
  for (Item& other : tx_.items) {
    // Our own change of the bucket is not what the absence of another key must fear.
    if (other.seen == Item::Seen::kAbsent && other.bucket == reply.bucket &&
        other.bucket_version == reply.bucket_version_before) {
      other.bucket_version = reply.bucket_version_after;
    }
  }
  co_return Status{};
}

// ---- lock, then validate ----

Task<Status> Transaction::State::RnicCommit::make_room_in_batch() {
  Status posted;
  if (buffer_->batch.full()) {
    posted = co_await session_->post(*buffer_, false);
    buffer_->batch.clear();
  }
  co_return std::move(posted);
}

Task<Status> Transaction::State::RnicCommit::lock_and_validate() {
  buffer_ = session_->buffers().try_take();
  if (!buffer_) buffer_ = co_await session_->buffers().take();
  // A commit that has given the session up may have left its locks to the list of this buffer.
  if (!session_->usable()) co_return session_->why_unusable();
  buffer_->batch.clear();
  const uint16_t owner = session_->hello().owner;
  size_t word = 0;
  locking_ = true;
  announce_locks();
  for (const Item& item : tx_.items) {
    const auto lock = lock_of(item);
    if (!lock) continue;
    Status room = co_await make_room_in_batch();
    if (!room) co_return give_up(std::move(room));
    buffer_->batch.compare_swap(buffer_->word_at(word++), session_->word_at(lock->slot),
                                LockWord::unlocked(lock->version).bits,
                                LockWord::locked(lock->version, owner).bits);
  }
  // Behind the locks on the same queue pair: so these are looked at when all locks are held.
  for (const Item& item : tx_.items) {
    if (!is_read(item) && !is_absence(item)) continue;
    Status room = co_await make_room_in_batch();
    if (!room) co_return give_up(std::move(room));
    buffer_->batch.read(buffer_->word_at(word++), is_read(item) ? session_->word_at(item.slot)
                                                                : session_->bucket_at(item.bucket));
  }
  if (buffer_->batch.empty()) co_return Status{};  // nothing but inserts
  Status done = co_await session_->execute(*buffer_);
  if (!done) done = co_await session_->execute_after(std::move(done), *buffer_);
  if (!done) co_return give_up(std::move(done));
  co_return check_words();
}

// In front of the compare-swaps on the same queue pair: see pmstore/layout/lock_list_layout.h.
void Transaction::State::RnicCommit::announce_locks() {
  uint32_t bytes = 0;
  const auto append = [&](uint64_t entry) {
    std::memcpy(buffer_->at(bytes, sizeof(entry)).data, &entry, sizeof(entry));
    bytes += sizeof(entry);
  };
  for (const Item& item : tx_.items) {
    if (const auto lock = lock_of(item)) append(lock_list_entry(lock->slot));
  }
  if (bytes == 0) return;
  if (bytes < kLockListBytes) append(0);
  buffer_->batch.write(buffer_->at(0, bytes), session_->lock_list_of(*buffer_));
}

Status Transaction::State::RnicCommit::check_words() const {
  size_t word = 0;
  bool ok = true;
  for (const Item& item : tx_.items) {
    const auto lock = lock_of(item);
    if (lock) ok &= buffer_->word(word++) == LockWord::unlocked(lock->version).bits;
  }
  for (const Item& item : tx_.items) {
    if (is_read(item)) {
      ok &= buffer_->word(word++) == LockWord::unlocked(item.version).bits;
    } else if (is_absence(item)) {
      ok &= buffer_->word(word++) == item.bucket_version;
    }
  }
  if (ok) return {};
  return make_error(ErrorCode::kConflict, "another transaction changed what was read or written");
}

// ---- giving up ----

Task<void> Transaction::State::RnicCommit::undo() {
  // A session that is over is fenced by the server, which then unlocks and releases everything.
  if (session_->usable() && locking_) co_await unlock();
  buffer_ = {};
  const bool reserved = std::any_of(tx_.items.begin(), tx_.items.end(),
                                    [](const Item& item) { return item.reserved; });
  if (session_->usable() && reserved) co_await release();
}

Task<void> Transaction::State::RnicCommit::unlock() {
  const uint16_t owner = session_->hello().owner;
  size_t word = 0;
  buffer_->batch.clear();
  for (const Item& item : tx_.items) {
    const auto lock = lock_of(item);
    if (!lock) continue;
    const size_t at = word++;
    const uint64_t unlocked = LockWord::unlocked(lock->version).bits;
    if (buffer_->word(at) != unlocked) continue;  // it was not ours
    Status room = co_await make_room_in_batch();
    if (!room) co_return session_->drop();
    buffer_->batch.compare_swap(buffer_->word_at(at), session_->word_at(lock->slot),
                                LockWord::locked(lock->version, owner).bits, unlocked);
  }
  if (buffer_->batch.empty()) co_return;
  Status done = co_await session_->execute(*buffer_);
  if (!done) done = co_await session_->execute_after(std::move(done), *buffer_);
  if (!done) session_->drop();
}

Task<void> Transaction::State::RnicCommit::release() {
  std::array<std::byte, sizeof(RequestPrefix) + OpBuffer::kWords * sizeof(uint64_t)> room;
  MessageWriter request(room);
  request.put(session_->prefix());
  for (const Item& item : tx_.items) {
    if (item.reserved) request.put(raw(item.slot));
  }
  const auto answer =
      co_await session_->rpc().call(static_cast<uint16_t>(Method::kRelease), request.message(), 0);
  if (!answer) session_->drop();
}

// ---- log: the commit point ----

void Transaction::State::RnicCommit::build_redo() {
  uint64_t bytes = redo_header_bytes(1);
  for (const Item& item : tx_.items) {
    if (!item.writes()) continue;
    bytes += redo_write_bytes(record_size(item));
    if (item.moved) bytes += redo_write_bytes(record_bytes(item.key_bytes, 0));
  }
  tx_.redo.resize(bytes);
  RedoBuilder builder(tx_.redo, tx_.id.client, session_->hello().pool);
  in_place_ = session_->one_sided_commit() && !changes_index();
  if (in_place_) buffer_->batch.clear();
  uint32_t image_at = 0;
  for (const Item& item : tx_.items) {
    if (!item.writes()) continue;
    const bool live = item.leave == Item::Leave::kValue;
    const auto image = builder.add(item.slot, item.table, item.version + 1,
                                   live ? RecordState::kLive : RecordState::kTombstone,
                                   tx_.key(item), live ? tx_.value(item) : std::string_view{});
    if (item.moved) {
      builder.add(item.old_slot, item.table, item.old_version + 1, RecordState::kTombstone,
                  tx_.key(item), {});
    }
    // The commit phase is one doorbell or it is the server's: images that do not fit one go by RPC.
    const auto padded = static_cast<uint32_t>(persist::padded_bytes(image.size(), true));
    in_place_ = in_place_ && buffer_->batch.size() < fabric::Batch::kMaxWorkRequests / 2 &&
                padded <= OpBuffer::kWordsOffset - image_at;
    if (!in_place_) continue;
    const fabric::LocalBuffer local = buffer_->at(image_at, padded);
    std::memcpy(local.data, image.data(), image.size());
    std::memset(local.data + image.size(), 0, padded - image.size());
    buffer_->batch.write(local, session_->record_at(item.slot));
    image_at += padded;
  }
  payload_ = builder.finish();
  if (!in_place_) return;
  // Behind the records on the same queue pair: whoever sees a word unlocked sees its record.
  size_t word = 0;
  const uint16_t owner = session_->hello().owner;
  for (const Item& item : tx_.items) {
    if (!item.writes()) continue;
    buffer_->batch.compare_swap(buffer_->word_at(word++), session_->word_at(item.slot),
                                LockWord::locked(item.version, owner).bits,
                                LockWord::unlocked(item.version + 1).bits);
  }
}

Task<Status> Transaction::State::RnicCommit::log() {
  internal::RedoRing& ring = session_->ring();
  const uint64_t deadline = session_->executor().now_ns() + session_->call_timeout_ns();
  constexpr uint64_t kPauseNs = 20'000;
  while (true) {
    auto appended = co_await ring.append(tx_.id.sequence, payload_);
    if (appended) {
      logged_ = *appended;
      co_return Status{};
    }
    const ErrorCode code = appended.code();
    if (code == ErrorCode::kTooLarge) co_return std::move(appended.error());
    if (code != ErrorCode::kBackPressure) {
      co_return tx_.client.in_doubt(tx_.id, *session_, appended.error());
    }
    if (session_->executor().now_ns() >= deadline || !session_->usable()) {
      co_return make_error(ErrorCode::kTimeout, "the redo ring stayed full; nothing happened");
    }
    co_await internal::truncate_ring(session_);
    // The commit phases of others may have to be acknowledged first.
    co_await session_->executor().sleep_for(kPauseNs);
  }
}

// ---- commit ----

Task<void> Transaction::State::RnicCommit::finish() {
  Executor& executor = session_->executor();
  if (in_place_) {
    const Status posted = co_await session_->post(*buffer_, true);
    if (!posted) {
      session_->drop();
      co_return;
    }
    internal::SessionBuffer held{session_, std::move(buffer_)};
    auto rest = internal::finish_in_place(std::move(held), logged_.ticket);
    executor.spawn(std::move(rest));
    co_return;
  }
  buffer_ = {};
  auto apply = internal::apply_logged(session_, logged_.lsn, logged_.ticket);
  if (!changes_index()) {
    executor.spawn(std::move(apply));
    co_return;
  }
  co_await std::move(apply);
  for (const Item& item : tx_.items) {
    if (item.reserved) tx_.client.cache.put(item.hash, item.size_class, item.slot);
    if (item.leave == Item::Leave::kNothing) tx_.client.cache.remove(item.hash);
  }
}

}  // namespace pmstore
