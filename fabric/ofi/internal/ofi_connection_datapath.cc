// The data path of OfiConnection: posting, polling. It does not allocate, throw, log or lock.
#include <algorithm>

#include "fabric/ofi/internal/destruction_watch.h"
#include "fabric/ofi/internal/ofi_connection.h"
#include "fabric/ofi/internal/ofi_device.h"
#include "fabric/ofi/internal/ofi_region.h"

namespace pmstore::fabric::ofi {

namespace {

bool is_write(const WorkRequest& request) {
  return request.op == OpCode::kWrite || request.op == OpCode::kWriteImmediate;
}

// An operation's context is its slot + 1, so that 0 means unsignaled.
void* context_of(uint32_t slot) { return reinterpret_cast<void*>(uintptr_t{slot} + 1); }
uint32_t slot_of(const void* context) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(context) - 1);
}

}  // namespace

Status OfiConnection::check(const Batch& batch) const {
  for (const WorkRequest& request : batch) {
    if (!is_write(request) && request.op != OpCode::kRead) [[unlikely]] {
      return make_error(ErrorCode::kUnsupported,
                        "tcp and shm have no remote atomics and no FLUSH; see Capabilities");
    }
    if (request.bytes == 0) {
      if (request.op == OpCode::kWriteImmediate) continue;
      return make_error(ErrorCode::kInvalidArgument, "a READ or WRITE of no bytes does nothing");
    }
    const std::span<std::byte> region = request.local_region->bytes();
    const size_t offset = static_cast<size_t>(request.local - region.data());
    if (request.local < region.data() || offset > region.size() ||
        request.bytes > region.size() - offset) [[unlikely]] {
      return make_error(ErrorCode::kInvalidArgument,
                        "a local buffer lies outside its registered region");
    }
  }
  return {};
}

size_t OfiConnection::proof_of(const Batch& batch) const {
  size_t proof = batch.size() - 1;
  if (empty_delivery_hangs_) {
    while (proof > 0 && batch[proof].bytes == 0) --proof;
  }
  return proof;
}

uint64_t OfiConnection::flags_of(const WorkRequest& request, bool more, bool reported) const {
  const bool data_at_target = request.op == OpCode::kWriteImmediate && mailbox_ == nullptr;
  uint64_t flags = data_at_target ? FI_REMOTE_CQ_DATA : 0;
  if (more) flags |= FI_MORE;
  if (!reported) return flags;
  flags |= FI_COMPLETION;
  // A WRITE is reported when it has left unless asked otherwise; a READ's data is proof by itself.
  if (is_write(request) && (request.bytes > 0 || !empty_delivery_hangs_)) {
    flags |= FI_DELIVERY_COMPLETE;
  }
  return flags;
}

void OfiConnection::count(const WorkRequest& request) {
  ++counters_.work_requests;
  (is_write(request) ? counters_.bytes_written : counters_.bytes_read) += request.bytes;
}

Status OfiConnection::post(const Batch& batch, Completion* completion) {
  if (broken_ || failing_ || post_error_) [[unlikely]] {
    return make_error(ErrorCode::kDisconnected, broken_ ? why_broken_.message : std::string());
  }
  if (batch.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "an empty batch would never complete");
  }
  PMSTORE_TRY_STATUS(check(batch));
  const CallGuard guard(device_);
  if (queue_size_ > 0) issue_queued();
  if (queue_size_ + batch.size() > kMaxQueued || (completion != nullptr && free_ == kNoSlot)) {
    return make_error(ErrorCode::kBackPressure);
  }
  const size_t last = batch.size() - 1;
  const size_t proof = proof_of(batch);
  const uint32_t slot =
      completion != nullptr ? take_slot(completion, proof == last ? 1 : 2) : kNoSlot;
  ++counters_.doorbells;
  for (size_t i = 0; i <= last; ++i) {
    count(batch[i]);
    const bool reported = completion != nullptr && (i == proof || i == last);
    const uint64_t flags = flags_of(batch[i], i < last, reported);
    const uint32_t own_slot = reported ? slot : kNoSlot;
    if (queue_size_ == 0) {
      const ssize_t code = issue(batch[i], flags, own_slot);
      if (code == 0) continue;
      if (code != -FI_EAGAIN) break;  // post_error_ is set
    }
    enqueue(batch[i], flags, own_slot);
  }
  return {};
}

ssize_t OfiConnection::issue(const WorkRequest& request, uint64_t flags, uint32_t slot) {
  const Access right = is_write(request) ? Access::kRemoteWrite : Access::kRemoteRead;
  const uint64_t offset = request.remote_address - address_base(request.remote_key);
  const bool permitted = check_grants_
                             ? grant_permits(request.remote_key, offset, request.bytes, right)
                             : offset <= kGrantMaxBytes;
  if (!permitted) [[unlikely]] {
    post_error_ = make_error(ErrorCode::kAccess, "a remote access outside what its key grants");
    return -FI_EACCES;
  }
  if (request.op == OpCode::kWriteImmediate && mailbox_ != nullptr && !mailbox_->has_room()) {
    return -FI_EAGAIN;
  }
  if (window_ != 0) {
    if (issued_ - proven_ >= window_) return -FI_EAGAIN;
    if (slot == kNoSlot && issued_ - last_reported_ >= window_ / 4 && free_ != kNoSlot) {
      return issue_reported(request, offset, flags);
    }
  }
  return hand_over(request, offset, flags, slot);
}

// Nobody asked for a completion of this one, but it will prove that it and all before it are done.
ssize_t OfiConnection::issue_reported(const WorkRequest& request, uint64_t offset, uint64_t flags) {
  const uint32_t slot = take_slot(nullptr, 1);
  flags |= FI_COMPLETION;
  if (is_write(request)) flags |= FI_DELIVERY_COMPLETE;
  const ssize_t code = hand_over(request, offset, flags, slot);
  if (code != 0) release_slot(slot);
  return code;
}

ssize_t OfiConnection::hand_over(const WorkRequest& request, uint64_t offset, uint64_t flags,
                                 uint32_t slot) {
  iovec local[2]{{request.local, request.bytes}, {}};
  fi_rma_iov remote[2]{{offset, request.bytes, request.remote_key}, {}};
  void* descriptors[2]{};  // FI_MR_LOCAL is not asked for
  const bool by_mailbox = request.op == OpCode::kWriteImmediate && mailbox_ != nullptr;
  size_t pieces = 1;
  if (by_mailbox) {
    const Mailbox::Piece entry = mailbox_->entry(request.immediate);
    pieces = request.bytes > 0 ? 2 : 1;
    local[pieces - 1] = entry.local;
    remote[pieces - 1] = {entry.offset, entry.local.iov_len, entry.key};
  }
  const fi_msg_rma message{local,
                           descriptors,
                           pieces,
                           peer_,
                           remote,
                           pieces,
                           slot == kNoSlot ? nullptr : context_of(slot),
                           request.immediate};
  const ssize_t code = is_write(request) ? fi_writemsg(endpoint_.get(), &message, flags)
                                         : fi_readmsg(endpoint_.get(), &message, flags);
  if (code == 0) {
    ++issued_;
    if (by_mailbox) mailbox_->count_sent();
    if (slot != kNoSlot) slots_[slot].sequence = last_reported_ = issued_;
  } else if (code != -FI_EAGAIN) [[unlikely]] {
    post_error_ = make_error(ErrorCode::kDisconnected, fi_strerror(static_cast<int>(-code)));
  }
  return code;
}

void OfiConnection::enqueue(const WorkRequest& request, uint64_t flags, uint32_t slot) {
  queued_[(queue_head_ + queue_size_) % kMaxQueued] = Queued{request, flags, slot};
  ++queue_size_;
}

void OfiConnection::issue_queued() {
  while (queue_size_ > 0 && !post_error_) {
    const Queued& first = queued_[queue_head_];
    if (issue(first.request, first.flags, first.slot) != 0) return;
    queue_head_ = (queue_head_ + 1) % kMaxQueued;
    --queue_size_;
    ++issued_from_queue_;
  }
}

uint32_t OfiConnection::take_slot(Completion* completion, uint32_t reports) {
  const uint32_t index = free_;
  Slot& slot = slots_[index];
  free_ = slot.next;
  slot = Slot{completion, 0, 0, reports, kNoSlot, newest_};
  (newest_ == kNoSlot ? oldest_ : slots_[newest_].next) = index;
  newest_ = index;
  if (completion != nullptr) completion->arm();
  return index;
}

void OfiConnection::release_slot(uint32_t index) {
  Slot& slot = slots_[index];
  (slot.previous == kNoSlot ? oldest_ : slots_[slot.previous].next) = slot.next;
  (slot.next == kNoSlot ? newest_ : slots_[slot.next].previous) = slot.previous;
  slot = Slot{};
  slot.next = free_;
  free_ = index;
}

size_t OfiConnection::poll() {
  if (broken_ || failing_) return 0;
  DestructionWatch watch(lifetime_);
  size_t handled = drain_queue();
  if (watch.destroyed() || broken_ || failing_) return handled;
  if (handled == 0 && served_peer()) handled = 1;
  if (queue_size_ > 0) {
    const CallGuard guard(device_);
    issue_queued();
  }
  if (post_error_) [[unlikely]] {
    fail(*post_error_);
    return handled + 1;
  }
  return handled;
}

// Takes at most one array full, and first all immediates. `this` may be gone afterwards.
size_t OfiConnection::drain_queue() {
  constexpr size_t kEntries = 16;
  fi_cq_data_entry entries[kEntries];
  ssize_t count;
  {
    const CallGuard guard(device_);
    count = fi_cq_read(queue_.get(), entries, kEntries);
  }
  DestructionWatch watch(lifetime_);
  const size_t immediates = mailbox_ != nullptr ? drain_mailbox() : 0;
  if (watch.destroyed() || broken_ || failing_) return immediates;
  if (count == -FI_EAGAIN || count == 0) return immediates;
  if (count < 0) [[unlikely]] {
    fail(count == -FI_EAVAIL
             ? queue_error()
             : make_error(ErrorCode::kDisconnected, fi_strerror(static_cast<int>(-count))));
    return immediates + 1;
  }
  for (ssize_t i = 0; i < count; ++i) {
    handle(entries[i]);
    if (watch.destroyed() || broken_ || failing_) break;
  }
  return immediates + static_cast<size_t>(count);
}

// Takes all that has arrived. `this` may be gone afterwards.
size_t OfiConnection::drain_mailbox() {
  size_t taken = 0;
  DestructionWatch watch(lifetime_);
  while (const std::optional<uint32_t> immediate = mailbox_->take()) {
    ++taken;
    handle_immediate(*immediate);
    if (watch.destroyed() || broken_ || failing_) return taken;
  }
  if (taken == 0) return 0;
  if (std::optional<Mailbox::Piece> credit = mailbox_->credit_due()) {
    fi_rma_iov remote{credit->offset, credit->local.iov_len, credit->key};
    void* descriptor = nullptr;
    const fi_msg_rma message{&credit->local, &descriptor, 1, peer_, &remote, 1, nullptr, 0};
    const CallGuard guard(device_);
    // If there is no room for it now, it is due again at the next immediate.
    if (fi_writemsg(endpoint_.get(), &message, 0) == 0) mailbox_->count_credited();
  }
  return taken;
}

void OfiConnection::handle(const fi_cq_data_entry& entry) {
  if ((entry.flags & FI_REMOTE_CQ_DATA) != 0) {
    handle_immediate(static_cast<uint32_t>(entry.data));
    return;
  }
  if ((entry.flags & FI_RECV) != 0) {
    on_control_received(entry.len);
    return;
  }
  if (entry.op_context == nullptr) return;
  const uint32_t index = slot_of(entry.op_context);
  if (--slots_[index].reports > 0) return;
  Completion* completion = slots_[index].completion;
  proven_ = std::max(proven_, slots_[index].sequence);
  release_slot(index);
  if (completion == nullptr) return;
  ++counters_.completions;
  completion->finish(true);
}

void OfiConnection::handle_immediate(uint32_t immediate) {
  ++counters_.immediates_received;
  if (established_) [[likely]] {
    if (receiver_ != nullptr) receiver_->on_immediate(immediate);
    return;
  }
  if (early_immediates_.size() == kMaxEarly) {
    fail(make_error(ErrorCode::kProtocol, "the peer floods the handshake with immediates"));
    return;
  }
  early_immediates_.push_back(immediate);
}

}  // namespace pmstore::fabric::ofi
