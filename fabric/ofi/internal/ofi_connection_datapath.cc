// The data path of OfiConnection: posting, polling. It does not allocate, throw, log or lock.
#include "fabric/ofi/internal/ofi_connection.h"
#include "fabric/ofi/internal/ofi_device.h"
#include "fabric/ofi/internal/ofi_region.h"

namespace pmstore::fabric::ofi {

using internal::is_write;

namespace {

// An operation's context is its slot + 1, so that 0 means unsignaled.
void* context_of(uint32_t slot) { return reinterpret_cast<void*>(uintptr_t{slot} + 1); }
uint32_t slot_of(const void* context) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(context) - 1);
}

}  // namespace

size_t OfiConnection::proof_of(const Batch& batch) const {
  size_t proof = batch.size() - 1;
  // With FI_DELIVERY_COMPLETE, libfabric 1.17 hangs over a WRITE of no bytes.
  while (proof > 0 && batch[proof].bytes == 0) --proof;
  return proof;
}

uint64_t OfiConnection::flags_of(const WorkRequest& request, bool more, bool reported) const {
  uint64_t flags = request.op == OpCode::kWriteImmediate ? FI_REMOTE_CQ_DATA : 0;
  if (more) flags |= FI_MORE;
  if (!reported) return flags;
  flags |= FI_COMPLETION;
  // A WRITE is reported when it has left unless asked otherwise; a READ's data is proof by itself.
  if (is_write(request) && request.bytes > 0) flags |= FI_DELIVERY_COMPLETE;
  return flags;
}

Status OfiConnection::post(const Batch& batch, Completion* completion) {
  if (closed() || post_error_) [[unlikely]] {
    return make_error(ErrorCode::kDisconnected, broken_ ? why_broken_.message : std::string());
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
  if (!grant_permits(request.remote_key, offset, request.bytes, right)) [[unlikely]] {
    post_error_ = make_error(ErrorCode::kAccess, "a remote access outside what its key grants");
    return -FI_EACCES;
  }
  return hand_over(request, offset, flags, slot);
}

ssize_t OfiConnection::hand_over(const WorkRequest& request, uint64_t offset, uint64_t flags,
                                 uint32_t slot) {
  const iovec local{request.local, request.bytes};
  const fi_rma_iov remote{offset, request.bytes, request.remote_key};
  void* descriptor = nullptr;  // FI_MR_LOCAL is not asked for
  const fi_msg_rma message{&local,
                           &descriptor,
                           1,
                           peer_,
                           &remote,
                           1,
                           slot == kNoSlot ? nullptr : context_of(slot),
                           request.immediate};
  const ssize_t code = is_write(request) ? fi_writemsg(endpoint_.get(), &message, flags)
                                         : fi_readmsg(endpoint_.get(), &message, flags);
  if (code != 0 && code != -FI_EAGAIN) [[unlikely]] {
    post_error_ =
        make_error(ErrorCode::kDisconnected, Libfabric::loaded().strerror(static_cast<int>(-code)));
  }
  return code;
}

void OfiConnection::enqueue(const WorkRequest& request, uint64_t flags, uint32_t slot) {
  PMSTORE_CHECK(queue_size_ < kMaxQueued, "post() has checked that there is room");
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
  PMSTORE_CHECK(free_ != kNoSlot, "post() has checked that there is a slot");
  const uint32_t index = free_;
  Slot& slot = slots_[index];
  free_ = slot.next;
  slot = Slot{completion, 0, reports, kNoSlot, newest_};
  (newest_ == kNoSlot ? oldest_ : slots_[newest_].next) = index;
  newest_ = index;
  completion->arm();
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
  if (closed()) return 0;
  DestructionWatch watch(lifetime_);
  size_t handled = drain_queue();
  if (watch.destroyed() || closed()) return handled;
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

// Takes at most one array full. `this` may be gone afterwards.
size_t OfiConnection::drain_queue() {
  constexpr size_t kEntries = 16;
  fi_cq_data_entry entries[kEntries];
  ssize_t count;
  {
    const CallGuard guard(device_);
    count = fi_cq_read(queue_.get(), entries, kEntries);
  }
  if (count == -FI_EAGAIN || count == 0) return 0;
  if (count < 0) [[unlikely]] {
    fail(count == -FI_EAVAIL ? queue_error()
                             : make_error(ErrorCode::kDisconnected,
                                          Libfabric::loaded().strerror(static_cast<int>(-count))));
    return 1;
  }
  DestructionWatch watch(lifetime_);
  for (ssize_t i = 0; i < count; ++i) {
    handle(entries[i]);
    if (watch.destroyed() || closed()) break;
  }
  return static_cast<size_t>(count);
}

void OfiConnection::handle(const fi_cq_data_entry& entry) {
  if ((entry.flags & FI_REMOTE_CQ_DATA) != 0) {
    handle_immediate(static_cast<uint32_t>(entry.data));
    return;
  }
  if (entry.op_context == nullptr) return;
  const uint32_t index = slot_of(entry.op_context);
  if (--slots_[index].reports > 0) return;
  Completion* completion = slots_[index].completion;
  release_slot(index);
  ++counters_.completions;
  completion->finish(true);
}

}  // namespace pmstore::fabric::ofi
