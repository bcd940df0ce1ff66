#include "fabric/verbs/internal/handshake.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fabric/verbs/internal/device.h"

namespace pmstore::fabric::verbs {

namespace {

constexpr int kInvalidServiceId = 8;  // IB_CM_REJ_INVALID_SERVICE_ID: nobody listens at that port

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Error cm_error(const std::string& peer, const char* what) {
  return make_error(ErrorCode::kIo, peer + ": " + what + " failed: " + std::strerror(errno) +
                                        "; check `rdma link` and the kernel log");
}

}  // namespace

Handshake::Handshake(VerbsDevice& device, std::string peer, uint64_t timeout_ns,
                     uint64_t operation_timeout_ns)
    : device_(device),
      peer_(std::move(peer)),
      timeout_ns_(timeout_ns),
      deadline_ns_(device.executor().now_ns() + timeout_ns),
      operation_timeout_ns_(operation_timeout_ns),
      key_(device.cm_events().add(this)),
      initiated_(device.rdma().max_initiated),
      answered_(device.rdma().max_answered) {
  device_.add(this);
}

Handshake::~Handshake() {
  if (lent_to_ != nullptr) lent_to_->borrow_hello(nullptr);
  device_.remove(this);
  if (key_ != 0) device_.cm_events().remove(key_);
}

// ---- what happens from outside ----

void Handshake::wake() {
  if (waiter_) std::exchange(waiter_, {}).resume();
}

void Handshake::on_cm_event(const CmEvent& event) {
  event_ = event;
  wake();
}

void Handshake::on_hello(uint32_t bytes) {
  received_bytes_ = bytes;
  wake();
}

bool Handshake::on_scan(uint64_t now_ns) {
  if (now_ns >= deadline_ns_) expired_ = true;
  if (!expired_ && !abandoned_ && !returned_) return false;
  wake();
  return true;
}

void Handshake::abandon() {
  listener_ = nullptr;
  abandoned_ = true;
}

std::optional<Error> Handshake::failure() const {
  if (abandoned_) return make_error(ErrorCode::kDisconnected, peer_ + ": the listener is gone");
  if (connection_ && connection_->broken()) return connection_->why_broken();
  if (expired_) {
    return make_error(ErrorCode::kTimeout, peer_ + " did not answer within " +
                                               std::to_string(timeout_ns_ / 1'000'000) +
                                               " ms; check that it runs and is reachable");
  }
  return std::nullopt;
}

base::Task<Status> Handshake::expect(rdma_cm_event_type wanted) {
  while (true) {
    if (event_ && event_->type == wanted && event_->status == 0) co_return Status{};
    if (event_) co_return event_error(*event_);
    if (auto error = failure()) co_return *error;
    co_await woken();
  }
}

base::Task<Status> Handshake::until(bool (Handshake::*reached)() const) {
  while (true) {
    // First: a peer that has sent everything may disconnect right afterwards.
    if ((this->*reached)() && !(sent_.done() && !sent_.ok())) co_return Status{};
    if (auto error = failure()) co_return *error;
    if (event_ && event_->type != RDMA_CM_EVENT_ESTABLISHED) co_return event_error(*event_);
    event_.reset();
    co_await woken();
  }
}

// ---- steps of both ends ----

Status Handshake::prepare() {
  PMSTORE_TRY_STATUS(device_.check_device(*id_));
  messages_.resize(2 * kMaxHelloMessageBytes);
  registration_.reset(ibv_reg_mr(device_.protection_domain(), messages_.data(), messages_.size(),
                                 IBV_ACCESS_LOCAL_WRITE));
  if (!registration_) return cm_error(peer_, "registering the handshake's memory");
  PMSTORE_TRY(connection_, VerbsConnection::create(device_, operation_timeout_ns_));
  connection_->set_handshake(this);
  PMSTORE_TRY_STATUS(connection_->to_init(id_.get()));
  const ibv_sge hello{reinterpret_cast<uint64_t>(messages_.data() + kMaxHelloMessageBytes),
                      kMaxHelloMessageBytes, registration_->lkey};
  return connection_->post_receives(&hello);
}

rdma_conn_param Handshake::parameters(const Preamble& preamble) const {
  rdma_conn_param param{};
  param.private_data = &preamble;
  param.private_data_len = sizeof(preamble);
  param.responder_resources = answered_;
  param.initiator_depth = initiated_;
  param.retry_count = 6;  // for the record: the queue pair is set by VerbsConnection::to_ready()
  param.rnr_retry_count = 7;
  param.qp_num = connection_->qp_number();
  return param;
}

void Handshake::settle_depths(const CmEvent& event) {
  // The event has the peer's offer turned round into this end's view.
  initiated_ = std::max<uint8_t>(1, std::min(initiated_, event.initiator_depth));
  answered_ = std::max<uint8_t>(1, std::min(answered_, event.responder_resources));
}

Status Handshake::send(uint16_t refusal, std::span<const std::byte> bytes) {
  bytes = bytes.first(std::min(bytes.size(), kMaxHelloBytes));
  const HelloHeader header{kHelloMagic, kHandshakeVersion, refusal,
                           static_cast<uint32_t>(bytes.size()), 0};
  std::memcpy(messages_.data(), &header, sizeof(header));
  if (!bytes.empty()) std::memcpy(messages_.data() + sizeof(header), bytes.data(), bytes.size());
  const ibv_sge piece{reinterpret_cast<uint64_t>(messages_.data()),
                      static_cast<uint32_t>(sizeof(header) + bytes.size()), registration_->lkey};
  return connection_->send_hello(piece, &sent_);
}

Result<std::vector<std::byte>> Handshake::parse(bool refusal_allowed) const {
  const std::byte* message = messages_.data() + kMaxHelloMessageBytes;
  HelloHeader header{};
  if (*received_bytes_ >= sizeof(header)) std::memcpy(&header, message, sizeof(header));
  if (header.magic != kHelloMagic || header.version != kHandshakeVersion ||
      header.bytes != *received_bytes_ - sizeof(header)) {
    return make_error(ErrorCode::kProtocol, peer_ + " sent a malformed hello");
  }
  const std::byte* payload = message + sizeof(header);
  if (header.refusal == 0) return std::vector<std::byte>(payload, payload + header.bytes);
  const int code = header.refusal - 1;
  if (!refusal_allowed || code > static_cast<int>(base::kLastErrorCode)) {
    return make_error(ErrorCode::kProtocol, peer_ + " sent a malformed refusal");
  }
  return make_error(static_cast<ErrorCode>(code),
                    std::string(reinterpret_cast<const char*>(payload), header.bytes));
}

std::unique_ptr<Connection> Handshake::finish(std::vector<std::byte> peer_hello) {
  connection_->own_id(std::move(id_), std::exchange(key_, 0));
  connection_->opened(std::move(peer_hello));
  return std::move(connection_);
}

Status Handshake::check_preamble(const CmEvent& event) const {
  Preamble preamble{};
  if (event.private_bytes >= sizeof(preamble)) {
    std::memcpy(&preamble, event.private_data.data(), sizeof(preamble));
  }
  if (preamble.magic != kPreambleMagic) {
    return make_error(ErrorCode::kVersionMismatch,
                      peer_ + " is not a pmstore server; check the port");
  }
  if (preamble.version != kHandshakeVersion) {
    return make_error(ErrorCode::kVersionMismatch,
                      peer_ + " speaks handshake version " + std::to_string(preamble.version) +
                          ", this program " + std::to_string(kHandshakeVersion) +
                          "; use the same release on both sides");
  }
  return {};
}

Error Handshake::rejection_error(const CmEvent& event) const {
  Preamble preamble{};
  if (event.private_bytes >= sizeof(preamble)) {
    std::memcpy(&preamble, event.private_data.data(), sizeof(preamble));
  }
  if (preamble.magic == kPreambleMagic) {
    switch (static_cast<Rejection>(preamble.rejection)) {
      case Rejection::kBusy:
        return make_error(ErrorCode::kBackPressure,
                          peer_ + " has too many handshakes under way; try again");
      case Rejection::kNoResources:
        return make_error(ErrorCode::kIo, peer_ +
                                              " has no queue pair for another connection, or "
                                              "serves another RDMA device; see its log");
      default:
        if (Status status = check_preamble(event); !status) return status.error();
        return make_error(ErrorCode::kProtocol, peer_ + " rejected for an unknown reason");
    }
  }
  if (event.status == kInvalidServiceId || event.status == -ECONNREFUSED) {
    return make_error(ErrorCode::kDisconnected,
                      "nobody listens at " + peer_ + "; check the address and that it runs");
  }
  return make_error(ErrorCode::kDisconnected, peer_ + " rejected the connection (reason " +
                                                  std::to_string(event.status) +
                                                  "); check that it is a pmstore server");
}

Error Handshake::unreachable_error(int error) {
  unreachable_ = true;
  return make_error(ErrorCode::kDisconnected, peer_ + " is not reachable through an RDMA device (" +
                                                  std::strerror(error) +
                                                  "); check the address and `rdma link`");
}

Error Handshake::event_error(const CmEvent& event) {
  switch (event.type) {
    case RDMA_CM_EVENT_REJECTED: return rejection_error(event);
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return unreachable_error(event.status < 0 ? -event.status : event.status);
    case RDMA_CM_EVENT_DISCONNECTED:
      return make_error(ErrorCode::kDisconnected, peer_ + " hung up during the handshake");
    default:
      return make_error(ErrorCode::kDisconnected,
                        peer_ + " cannot be connected: " + rdma_event_str(event.type) +
                            "; check that it runs and is reachable");
  }
}

int Handshake::remaining_ms() const {
  const uint64_t now = device_.executor().now_ns();
  if (now >= deadline_ns_) return 1;
  return static_cast<int>(std::min<uint64_t>((deadline_ns_ - now) / 1'000'000 + 1, 3'600'000));
}

// ---- the calling end ----

base::Task<Result<std::unique_ptr<Connection>>> Handshake::call(SocketAddress address,
                                                                std::vector<std::byte> hello) {
  Status status = co_await call_steps(address, hello);
  if (!status) co_return std::move(status.error());
  Result<std::vector<std::byte>> answer = parse(true);
  if (!answer) co_return std::move(answer.error());
  co_return finish(std::move(*answer));
}

base::Task<Status> Handshake::call_steps(SocketAddress address, std::vector<std::byte> hello) {
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(device_.cm_events().channel(), &id, nullptr, RDMA_PS_TCP) != 0) {
    co_return cm_error(peer_, "creating an rdma_cm id");
  }
  id_.reset(id);
  CmEvents::bind(id, key_);
  if (rdma_resolve_addr(id, nullptr, address.get(), remaining_ms()) != 0) {
    co_return unreachable_error(errno);
  }
  PMSTORE_CO_TRY_STATUS(co_await expect(RDMA_CM_EVENT_ADDR_RESOLVED));
  event_.reset();
  if (rdma_resolve_route(id, remaining_ms()) != 0) co_return unreachable_error(errno);
  PMSTORE_CO_TRY_STATUS(co_await expect(RDMA_CM_EVENT_ROUTE_RESOLVED));
  event_.reset();

  PMSTORE_CO_TRY_STATUS(prepare());
  const Preamble preamble{kPreambleMagic, kHandshakeVersion, 0};
  rdma_conn_param param = parameters(preamble);
  if (rdma_connect(id, &param) != 0) co_return cm_error(peer_, "connecting");
  PMSTORE_CO_TRY_STATUS(co_await expect(RDMA_CM_EVENT_CONNECT_RESPONSE));
  PMSTORE_CO_TRY_STATUS(check_preamble(*event_));
  settle_depths(*event_);
  event_.reset();
  PMSTORE_CO_TRY_STATUS(connection_->to_ready(id, initiated_, answered_));
  if (rdma_establish(id) != 0) co_return cm_error(peer_, "completing the connection");

  PMSTORE_CO_TRY_STATUS(send(0, hello));
  co_return co_await until(&Handshake::is_exchanged);
}

// ---- the answering end ----

void Handshake::reject(Rejection why) {
  const Preamble preamble{kPreambleMagic, kHandshakeVersion, static_cast<uint16_t>(why)};
  rdma_reject(id_.get(), &preamble, sizeof(preamble));
}

base::Task<Status> Handshake::answer_steps(CmEvent request) {
  if (Status status = check_preamble(request); !status) {
    reject(Rejection::kVersion);
    co_return status;
  }
  settle_depths(request);
  Status status = prepare();
  if (status) status = connection_->to_ready(id_.get(), initiated_, answered_);
  if (!status) {
    reject(Rejection::kNoResources);
    co_return status;
  }
  const Preamble preamble{kPreambleMagic, kHandshakeVersion, 0};
  rdma_conn_param param = parameters(preamble);
  if (rdma_accept(id_.get(), &param) != 0) co_return cm_error(peer_, "accepting");
  co_return co_await until(&Handshake::has_hello);
}

base::Task<void> Handshake::answer(CmEvent request, VerbsListener* listener) {
  listener_ = listener;
  id_.reset(request.id);
  CmEvents::bind(id_.get(), key_);
  Status status = co_await answer_steps(request);
  if (!status) co_return;  // the caller sees it by itself
  const Result<std::vector<std::byte>> hello = parse(false);
  if (!hello || listener_ == nullptr) co_return;

  const uint64_t token = device_.next_token();
  Result<std::vector<std::byte>> decision = listener_->acceptor().on_hello(token, *hello);
  if (listener_ == nullptr) co_return;  // the acceptor has closed it
  const bool accepted = decision.has_value();
  if (accepted && decision->size() > kMaxHelloBytes) {
    decision = make_error(ErrorCode::kInvalidArgument, "the server's hello is larger than " +
                                                           std::to_string(kMaxHelloBytes) +
                                                           " bytes; report this");
  }
  if (decision) {
    status = send(0, *decision);
  } else {
    status = send(static_cast<uint16_t>(1 + static_cast<int>(decision.error().code)),
                  bytes_of(decision.error().message));
  }
  if (accepted && !(status && decision)) {
    listener_->acceptor().on_abandoned(token);
  } else if (accepted && status) {
    // Not after the answer's delivery: the caller may use the connection before that is known here.
    // If it is never delivered the connection breaks, like any other.
    // The answer lies in this object's memory until it is delivered, or the connection is gone.
    lent_to_ = connection_.get();
    lent_to_->borrow_hello(this);
    listener_->acceptor().on_connected(token, finish(std::move(*hello)));
    while (lent_to_ != nullptr && !sent_.done()) co_await woken();
    if (lent_to_ != nullptr) std::exchange(lent_to_, nullptr)->borrow_hello(nullptr);
    co_return;
  }
  if (status) (void)co_await until(&Handshake::is_delivered);
}

}  // namespace pmstore::fabric::verbs
