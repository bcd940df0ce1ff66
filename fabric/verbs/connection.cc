// The control path of a connection: making the queue pair, breaking it, looking after it. What runs
// per batch and per message is in connection_datapath.cc.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "fabric/verbs/internal/device.h"
#include "fabric/verbs/internal/handshake.h"
#include "fabric/verbs/internal/verbs_connection.h"

namespace pmstore::fabric::verbs {

namespace {

// One less than verbs has: rxe (Linux 6.1) takes 7 for "forever", as it is with rnr_retry.
constexpr uint8_t kRetries = 6;
constexpr uint8_t kRetryForever = 7;  // of receiver-not-ready; bounded by the operation timeout
constexpr uint8_t kNotReadyTimer =
    12;  // 0.64 ms until a receiver that was not ready is tried again

Error qp_error(const char* what, int error) {
  std::string message = std::string("queue pair: ") + what + " failed: " + std::strerror(error);
  if (error == ENOMEM) {
    message += "; raise the locked-memory limit (ulimit -l) or close connections";
  } else {
    message += "; check the RDMA device with ibv_devinfo";
  }
  return make_error(ErrorCode::kIo, std::move(message));
}

// The acknowledgement timeout is 4.096 us * 2^exponent, and a dead peer is noticed after
// 1 + kRetries of them. That is to happen in half the operation timeout; not below 67 ms each,
// because a busy software RNIC may be that late.
uint8_t ack_timeout_exponent(uint64_t operation_timeout_ns) {
  uint8_t exponent = 14;
  while (exponent < 20 &&
         (uint64_t{4096} << (exponent + 1)) * (1 + kRetries) <= operation_timeout_ns / 2) {
    ++exponent;
  }
  return exponent;
}

}  // namespace

VerbsConnection::VerbsConnection(VerbsDevice& device, uint64_t operation_timeout_ns)
    : Connection(device.executor()), device_(device), operation_timeout_ns_(operation_timeout_ns) {
  capabilities_ = device.rdma().capabilities;
  heard_ns_ = device.active_ns();
  early_.reserve(kReceives);
}

Result<std::unique_ptr<VerbsConnection>> VerbsConnection::create(VerbsDevice& device,
                                                                 uint64_t operation_timeout_ns) {
  std::unique_ptr<VerbsConnection> made(new VerbsConnection(device, operation_timeout_ns));
  made->ref_ = device.add(made.get());
  PMSTORE_TRY(made->queue_, device.queues().reserve(kQueueEntries));
  PMSTORE_TRY_STATUS(made->create_queue_pair());
  for (uint32_t i = 0; i < kReceiveChain; ++i) {
    made->receive_chain_[i] = {};
    made->receive_chain_[i].wr_id = made->work_id(true);
    made->receive_chain_[i].next = i + 1 < kReceiveChain ? &made->receive_chain_[i + 1] : nullptr;
  }
  return made;
}

Status VerbsConnection::create_queue_pair() {
  ibv_qp_init_attr init{};
  init.qp_context = this;
  init.send_cq = queue_;
  init.recv_cq = queue_;
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = kSlots;
  init.cap.max_recv_wr = kReceives + 1;
  init.cap.max_send_sge = 1;
  init.cap.max_recv_sge = 1;
  init.cap.max_inline_data = kInlineBytes;
  qp_.reset(ibv_create_qp(device_.protection_domain(), &init));
  if (!qp_) {
    init.cap.max_inline_data = 0;  // more than it has is an error with some devices
    qp_.reset(ibv_create_qp(device_.protection_domain(), &init));
  }
  if (!qp_) return qp_error("creation", errno);
  capabilities_.max_inline_bytes = std::min(init.cap.max_inline_data, kInlineBytes);
  return {};
}

VerbsConnection::~VerbsConnection() {
  device_.remove(ref_);
  if (id_) rdma_disconnect(id_.get());  // tells the peer; an error means that it knows
  // From here on nothing of the peer's reaches this memory, and nothing of ours leaves it.
  qp_.reset();
  self_qp_.reset();
  if (queue_ != nullptr) device_.queues().release(queue_, kQueueEntries);
  if (key_ != 0) device_.cm_events().remove(key_);
  if (hello_lender_ != nullptr) hello_lender_->on_hello_returned();
}

Status VerbsConnection::modify(ibv_qp* qp, ibv_qp_attr& attr, int mask, const char* state) {
  const int error = ibv_modify_qp(qp, &attr, mask);
  if (error != 0) return qp_error(state, error);
  return {};
}

int VerbsConnection::remote_rights() const {
  int rights = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  if (capabilities_.atomics != AtomicScope::kNone) rights |= IBV_ACCESS_REMOTE_ATOMIC;
  return rights;
}

// rdma_cm knows the addresses, packet numbers and the GID of the route; the rest is ours.
Status VerbsConnection::to_init(rdma_cm_id* id) {
  ibv_qp_attr attr{};
  int mask = 0;
  attr.qp_state = IBV_QPS_INIT;
  if (rdma_init_qp_attr(id, &attr, &mask) != 0) return qp_error("INIT attributes", errno);
  attr.qp_access_flags = static_cast<unsigned>(remote_rights());
  return modify(qp_.get(), attr, mask | IBV_QP_ACCESS_FLAGS, "INIT");
}

Status VerbsConnection::to_ready(rdma_cm_id* id, uint8_t initiated, uint8_t answered) {
  ibv_qp_attr attr{};
  int mask = 0;
  attr.qp_state = IBV_QPS_RTR;
  if (rdma_init_qp_attr(id, &attr, &mask) != 0) return qp_error("RTR attributes", errno);
  attr.max_dest_rd_atomic = answered;
  attr.min_rnr_timer = kNotReadyTimer;
  mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  PMSTORE_TRY_STATUS(modify(qp_.get(), attr, mask, "RTR"));

  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  if (rdma_init_qp_attr(id, &attr, &mask) != 0) return qp_error("RTS attributes", errno);
  attr.max_rd_atomic = initiated;
  fences_ = initiated > 1;
  attr.timeout = ack_timeout_exponent(operation_timeout_ns_);
  attr.retry_cnt = kRetries;
  attr.rnr_retry = kRetryForever;
  mask |= IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY;
  return modify(qp_.get(), attr, mask, "RTS");
}

Status VerbsConnection::connect_to(ibv_qp* qp, const ibv_qp& peer) {
  const RdmaDevice& rdma = device_.rdma();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = rdma.port;
  attr.qp_access_flags = static_cast<unsigned>(remote_rights());
  PMSTORE_TRY_STATUS(modify(
      qp, attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "INIT"));

  attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = rdma.mtu;
  attr.dest_qp_num = peer.qp_num;
  attr.max_dest_rd_atomic = rdma.max_answered;
  attr.min_rnr_timer = kNotReadyTimer;
  attr.ah_attr.port_num = rdma.port;
  attr.ah_attr.dlid = rdma.port_lid;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.grh.dgid = rdma.gid;
  attr.ah_attr.grh.sgid_index = rdma.gid_index;
  attr.ah_attr.grh.hop_limit = 1;
  PMSTORE_TRY_STATUS(modify(qp, attr,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                            "RTR"));

  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.max_rd_atomic = std::min(rdma.max_initiated, rdma.max_answered);
  fences_ = attr.max_rd_atomic > 1;
  attr.timeout = ack_timeout_exponent(operation_timeout_ns_);
  attr.retry_cnt = kRetries;
  attr.rnr_retry = kRetryForever;
  return modify(qp, attr,
                IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT |
                    IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY,
                "RTS");
}

Status VerbsConnection::connect_to_self() {
  ibv_qp_init_attr init{};
  init.qp_context = this;
  init.send_cq = queue_;
  init.recv_cq = queue_;
  init.qp_type = IBV_QPT_RC;
  init.cap.max_send_wr = 1;
  init.cap.max_recv_wr = kReceives + 1;
  init.cap.max_send_sge = 1;
  init.cap.max_recv_sge = 1;
  self_qp_.reset(ibv_create_qp(device_.protection_domain(), &init));
  if (!self_qp_) return qp_error("creation", errno);
  PMSTORE_TRY_STATUS(connect_to(self_qp_.get(), *qp_));
  PMSTORE_TRY_STATUS(connect_to(qp_.get(), *self_qp_));
  return post_receives(nullptr);
}

Status VerbsConnection::post_receives(const ibv_sge* hello) {
  ibv_qp* qp = self_qp_ ? self_qp_.get() : qp_.get();
  ibv_recv_wr* refused = nullptr;
  if (hello != nullptr) {
    ibv_sge piece = *hello;
    ibv_recv_wr wr{};
    wr.wr_id = work_id(true);
    wr.sg_list = &piece;
    wr.num_sge = 1;
    if (const int error = ibv_post_recv(qp, &wr, &refused); error != 0) {
      return qp_error("posting receives", error);
    }
  }
  for (uint32_t i = 0; i < kReceives; i += kReceiveChain) {
    if (const int error = ibv_post_recv(qp, receive_chain_.data(), &refused); error != 0) {
      return qp_error("posting receives", error);
    }
  }
  return {};
}

Status VerbsConnection::send_hello(const ibv_sge& hello, Completion* completion) {
  ibv_sge piece = hello;
  ibv_send_wr wr{};
  wr.wr_id = work_id(false);
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  ibv_send_wr* refused = nullptr;
  if (const int error = ibv_post_send(qp_.get(), &wr, &refused); error != 0) {
    return qp_error("sending the hello", error);
  }
  ++posted_;
  completion->arm();
  push_slot(completion, 1, false);
  return {};
}

void VerbsConnection::own_id(CmIdHandle id, CmEvents::Key key) {
  id_ = std::move(id);
  key_ = key;
  device_.cm_events().set_target(key, this);
}

void VerbsConnection::opened(std::vector<std::byte> peer_hello) {
  peer_hello_ = std::move(peer_hello);
  handshake_ = nullptr;
}

// ---- polling, off the data path ----

void VerbsConnection::on_message(const ibv_wc& wc) {
  if (handshake_ != nullptr && wc.opcode == IBV_WC_RECV) return handshake_->on_hello(wc.byte_len);
  fail(make_error(ErrorCode::kProtocol, "the peer sent a message outside of the handshake"));
}

void VerbsConnection::keep_early(uint32_t immediate) {
  if (receiver_ == nullptr && had_receiver_) {  // the receiver was removed
    if (++receives_owed_ == kReceiveChain) repost_receives();
    return;
  }
  // Bounded: its receive is posted again only when it has been delivered.
  PMSTORE_CHECK(early_.size() < kReceives, "each immediate has used up one of the receives");
  early_.push_back(immediate);
  defer();
}

void VerbsConnection::defer() {
  if (deferred_) return;
  deferred_ = true;
  device_.defer(ref_);
}

void VerbsConnection::fail_later(int error) {
  if (broken_) return;
  break_queue_pair(make_error(error == EINVAL ? ErrorCode::kInvalidArgument : ErrorCode::kIo,
                              std::string("the RDMA device refused a work request (") +
                                  std::strerror(error) +
                                  "); check the alignment of atomics, and the kernel log"));
  break_owed_ = true;
  defer();
}

void VerbsConnection::on_deferred() {
  deferred_ = false;
  if (std::exchange(break_owed_, false)) return deliver_break();
  if (receiver_ == nullptr) {
    if (!early_.empty() || disconnect_owed_) defer();  // until there is one
    return;
  }
  had_receiver_ = true;
  // Taken out first: the receiver may destroy the connection, and more may arrive meanwhile.
  std::vector<uint32_t> early = std::move(early_);
  early_.clear();
  early_.reserve(kReceives);
  const ConnectionRef self = ref_;
  VerbsDevice& device = device_;
  for (const uint32_t immediate : early) {
    if (++receives_owed_ == kReceiveChain && !broken_) repost_receives();
    if (receiver_ != nullptr) receiver_->on_immediate(immediate);
    if (device.find(self) != this) return;
  }
  if (disconnect_owed_) tell_disconnect();
}

void VerbsConnection::tell_disconnect() {
  disconnect_owed_ = false;
  if (receiver_ == nullptr) {
    if (had_receiver_) return;
    disconnect_owed_ = true;
    defer();
    return;
  }
  if (!early_.empty()) {  // immediates came before it
    disconnect_owed_ = true;
    return;
  }
  const Error why = why_broken_;  // the receiver may destroy the connection
  receiver_->on_disconnect(why);
}

Error VerbsConnection::unfit(const Batch& batch) const {
  for (const WorkRequest& request : batch) {
    if (request.op == OpCode::kFlush) {
      return make_error(ErrorCode::kUnsupported,
                        "native FLUSH: not in this verbs library; use WRITE then READ");
    }
    if (request.bytes > device_.rdma().max_message_bytes) {
      return make_error(ErrorCode::kTooLarge, "a work request of " + std::to_string(request.bytes) +
                                                  " bytes: the RDMA device moves at most " +
                                                  std::to_string(device_.rdma().max_message_bytes) +
                                                  "; split it");
    }
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "an atomic that the device does not have, or a buffer without its region");
}

Error VerbsConnection::completion_error(const ibv_wc& wc) const {
  const std::string status = ibv_wc_status_str(wc.status);
  switch (wc.status) {
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
      return make_error(ErrorCode::kAccess, "the peer refused an access (" + status +
                                                "): check address, key and rights of the region");
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_QP_OP_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
      return make_error(ErrorCode::kInvalidArgument,
                        "the RDMA device refused a work request (" + status +
                            "): check that each buffer lies in its region");
    default:
      return make_error(ErrorCode::kDisconnected,
                        "the peer does not answer any more (" + status + "); connect again");
  }
}

void VerbsConnection::on_cm_event(const CmEvent& event) {
  if (event.type == RDMA_CM_EVENT_DISCONNECTED) {
    fail(make_error(ErrorCode::kDisconnected, "the peer closed the connection or ended"));
  } else if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
    fail(make_error(ErrorCode::kIo, "the RDMA device was removed; restart with another one"));
  }
}

void VerbsConnection::fail(Error why) {
  if (broken_) return;
  break_queue_pair(std::move(why));
  deliver_break();
}

void VerbsConnection::break_queue_pair(Error why) {
  broken_ = true;
  why_broken_ = std::move(why);
  // Stops both directions; what is under way is flushed, and ignored when it shows up.
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ibv_modify_qp(qp_.get(), &attr, IBV_QP_STATE);
  if (self_qp_) ibv_modify_qp(self_qp_.get(), &attr, IBV_QP_STATE);
  if (id_) rdma_disconnect(id_.get());
}

void VerbsConnection::deliver_break() {
  const ConnectionRef self = ref_;
  VerbsDevice& device = device_;
  while (slot_head_ != slot_tail_) {
    Completion* completion = slots_[slot_head_ % kSlots].completion;
    ++slot_head_;
    if (completion == nullptr) continue;
    completion->finish(false);
    if (device.find(self) != this) return;
  }
  if (handshake_ != nullptr) return handshake_->on_connection_event();
  tell_disconnect();
}

bool VerbsConnection::on_scan(uint64_t active_ns) {
  if (broken_) return false;
  if (slot_head_ != slot_tail_ &&
      active_ns - slots_[slot_head_ % kSlots].posted_ns > operation_timeout_ns_) {
    fail(make_error(ErrorCode::kTimeout,
                    "no completion within " + std::to_string(operation_timeout_ns_ / 1'000'000) +
                        " ms; the peer or the network is stuck, connect again"));
    return true;
  }
  const uint64_t mark = slot_head_ + counters_.immediates_received;
  if (mark != heard_mark_) {
    heard_mark_ = mark;
    heard_ns_ = active_ns;
  } else if (slot_head_ == slot_tail_ && active_ns - heard_ns_ > operation_timeout_ns_ / 2) {
    probe();
  }
  return false;
}

uint64_t VerbsConnection::next_scan_ns() const {
  if (broken_) return base::Poller::kNoEvent;
  if (slot_head_ != slot_tail_) {
    return slots_[slot_head_ % kSlots].posted_ns + operation_timeout_ns_;
  }
  return heard_ns_ + operation_timeout_ns_ / 2;
}

// A peer that loses power says nothing, and an idle connection would never find out. A WRITE of no
// bytes needs no region and changes nothing, but has to be acknowledged.
void VerbsConnection::probe() {
  if (handshake_ != nullptr) return;
  ibv_send_wr wr{};
  wr.wr_id = work_id(false);
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* refused = nullptr;
  if (const int error = ibv_post_send(qp_.get(), &wr, &refused); error != 0) {
    return fail_later(error);
  }
  ++posted_;
  push_slot(nullptr, unsignaled_ + 1, false);
}

}  // namespace pmstore::fabric::verbs
