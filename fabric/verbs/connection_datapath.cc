// What runs for every batch, completion and immediate. No allocation, locks, logging, system calls
// of our own or reading of clocks here.
#include <arpa/inet.h>

#include <algorithm>

#include "base/check.h"
#include "fabric/verbs/internal/device.h"
#include "fabric/verbs/internal/handshake.h"
#include "fabric/verbs/internal/verbs_connection.h"

namespace pmstore::fabric::verbs {

namespace {

ibv_wr_opcode verbs_opcode(OpCode op) {
  switch (op) {
    case OpCode::kWrite: return IBV_WR_RDMA_WRITE;
    case OpCode::kWriteImmediate: return IBV_WR_RDMA_WRITE_WITH_IMM;
    case OpCode::kRead: return IBV_WR_RDMA_READ;
    case OpCode::kCompareSwap: return IBV_WR_ATOMIC_CMP_AND_SWP;
    case OpCode::kFetchAdd: return IBV_WR_ATOMIC_FETCH_AND_ADD;
    case OpCode::kFlush: break;
  }
  PMSTORE_CHECK(false, "fits() lets no other operation through");
}

bool is_write(OpCode op) { return op == OpCode::kWrite || op == OpCode::kWriteImmediate; }
bool is_atomic(OpCode op) { return op == OpCode::kCompareSwap || op == OpCode::kFetchAdd; }

}  // namespace

bool VerbsConnection::fits(const Batch& batch) const {
  for (const WorkRequest& request : batch) {
    if (request.op == OpCode::kFlush) return false;
    if (request.bytes > device_.rdma().max_message_bytes) return false;
    if (is_atomic(request.op) && capabilities_.atomics == AtomicScope::kNone) return false;
    if (request.bytes > 0 && request.local_region == nullptr) return false;
  }
  return true;
}

// The flags but for IBV_SEND_SIGNALED, and everything but `next`. True if it is a READ.
bool VerbsConnection::fill(const WorkRequest& request, ibv_send_wr& wr, ibv_sge& sge) {
  wr.wr_id = work_id(false);
  wr.opcode = verbs_opcode(request.op);
  wr.send_flags = 0;
  wr.sg_list = &sge;
  wr.num_sge = request.bytes > 0 ? 1 : 0;
  if (request.bytes > 0) {
    sge.addr = reinterpret_cast<uint64_t>(request.local);
    sge.length = request.bytes;
    sge.lkey = static_cast<const VerbsRegion*>(request.local_region)->local_key();
  }
  if (is_atomic(request.op)) {
    wr.wr.atomic.remote_addr = request.remote_address;
    wr.wr.atomic.rkey = static_cast<uint32_t>(request.remote_key);
    wr.wr.atomic.compare_add = request.compare_or_add;
    wr.wr.atomic.swap = request.swap;
    // The one order that RC leaves open: a READ whose answer is lost is executed again, and would
    // see what an atomic behind it has done. Only an atomic behind a READ under way pays for this.
    if (fences_ && last_read_ > reclaimed_) wr.send_flags = IBV_SEND_FENCE;
    return false;
  }
  wr.wr.rdma.remote_addr = request.remote_address;
  wr.wr.rdma.rkey = static_cast<uint32_t>(request.remote_key);
  if (is_write(request.op)) {
    wr.imm_data = htonl(request.immediate);
    if (request.bytes > 0 && request.bytes <= capabilities_.max_inline_bytes) {
      wr.send_flags = IBV_SEND_INLINE;
    }
    return false;
  }
  return true;
}

Status VerbsConnection::post(const Batch& batch, Completion* completion) {
  const auto count = static_cast<uint32_t>(batch.size());
  PMSTORE_CHECK(count > 0, "a batch does something");
  if (broken_) [[unlikely]]
    return make_error(ErrorCode::kDisconnected);
  if (posted_ - reclaimed_ + count > kSendRequests) return make_error(ErrorCode::kBackPressure);
  if (!fits(batch)) [[unlikely]]
    return unfit(batch);

  ibv_send_wr wrs[Batch::kMaxWorkRequests];
  ibv_sge sges[Batch::kMaxWorkRequests];
  uint64_t written = 0;
  uint64_t read = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (fill(batch[i], wrs[i], sges[i])) {
      last_read_ = posted_ + i + 1;
      read += batch[i].bytes;
    } else if (is_write(batch[i].op)) {
      written += batch[i].bytes;
    }
    wrs[i].next = i + 1 < count ? &wrs[i + 1] : nullptr;
  }
  const bool signal = completion != nullptr || unsignaled_ + count >= kSignalEvery;
  if (signal) wrs[count - 1].send_flags |= IBV_SEND_SIGNALED;

  ibv_send_wr* refused = nullptr;
  if (const int error = ibv_post_send(qp_.get(), wrs, &refused); error != 0) [[unlikely]] {
    // There was room, so this is no back-pressure. Some may have been posted: no way to go on.
    fail_later(error);
    return make_error(ErrorCode::kDisconnected);
  }
  ++counters_.doorbells;
  counters_.work_requests += count;
  counters_.bytes_written += written;
  counters_.bytes_read += read;
  posted_ += count;
  unsignaled_ += count;
  if (signal) {
    if (completion != nullptr) completion->arm();
    push_slot(completion, unsignaled_, true);
  }
  return {};
}

uint64_t VerbsConnection::work_id(bool receive) const {
  // Every request between two signals carries the slot of the next one.
  return (static_cast<uint64_t>(ref_.generation) << 41) |
         (static_cast<uint64_t>(ref_.index) << 17) |
         (static_cast<uint64_t>(slot_tail_ & 0xffff) << 1) | (receive ? 1 : 0);
}

void VerbsConnection::push_slot(Completion* completion, uint32_t requests, bool counted) {
  PMSTORE_CHECK(reclaimed_ <= posted_ && posted_ - reclaimed_ <= kSendRequests + 1,
                "the send queue has room for what is posted");
  PMSTORE_CHECK(slot_tail_ - slot_head_ < kSlots, "each slot holds at least one request");
  slots_[slot_tail_ % kSlots] = Slot{completion, requests, counted, device_.active_ns()};
  ++slot_tail_;
  unsignaled_ = 0;
}

void VerbsConnection::on_completion(const ibv_wc& wc, bool receive, uint16_t slot) {
  if (broken_) return;  // flushed: already told
  if (wc.status != IBV_WC_SUCCESS) [[unlikely]]
    return fail(completion_error(wc));
  if (receive) return on_receive(wc);
  on_sent(slot);
}

void VerbsConnection::announce(const ibv_wc& wc) {
  if (!broken_ && receiver_ != nullptr) receiver_->on_waiting(ntohl(wc.imm_data), {});
}

void VerbsConnection::on_sent(uint16_t slot) {
  PMSTORE_CHECK(slot_head_ != slot_tail_ && (slot_head_ & 0xffff) == slot,
                "a reliable connection completes in posting order");
  const Slot done = slots_[slot_head_ % kSlots];
  ++slot_head_;
  reclaimed_ += done.requests;
  counters_.completions += done.counted ? 1 : 0;
  // The last thing done here: the waiter may destroy this connection.
  if (done.completion != nullptr) done.completion->finish(true);
}

void VerbsConnection::on_receive(const ibv_wc& wc) {
  if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM) [[unlikely]]
    return on_message(wc);
  ++counters_.immediates_received;
  const uint32_t immediate = ntohl(wc.imm_data);
  if (receiver_ != nullptr && early_.empty()) [[likely]] {
    if (++receives_owed_ == kReceiveChain) repost_receives();
    receiver_->on_immediate(immediate);
    return;
  }
  keep_early(immediate);
}

void VerbsConnection::repost_receives() {
  ibv_qp* qp = self_qp_ ? self_qp_.get() : qp_.get();
  ibv_recv_wr* refused = nullptr;
  receives_owed_ -= kReceiveChain;
  const int error = ibv_post_recv(qp, receive_chain_.data(), &refused);
  if (error != 0) [[unlikely]]
    fail_later(error);
}

}  // namespace pmstore::fabric::verbs
