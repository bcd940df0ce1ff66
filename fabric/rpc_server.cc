#include <algorithm>
#include <cstring>
#include <string>

#include "base/atomic_copy.h"
#include "base/check.h"
#include "fabric/internal/rpc_peer_state.h"
#include "fabric/rpc.h"
#include "fabric/rpc_layout.h"

namespace pmstore::fabric {

namespace {

// Of each ring of an idle peer.
constexpr size_t kKeptRingBytes = 4096;

}  // namespace

// ---- RpcCall ----

RpcCall::RpcCall(RpcCall&& other) noexcept { *this = std::move(other); }

RpcCall& RpcCall::operator=(RpcCall&& other) noexcept {
  if (this == &other) return *this;
  if (!answered_) reply_error(make_error(ErrorCode::kDisconnected, "request dropped"));
  link_ = std::move(other.link_);
  method_ = other.method_;
  slot_ = other.slot_;
  generation_ = other.generation_;
  reply_offset_ = other.reply_offset_;
  request_ = other.request_;
  reply_room_ = other.reply_room_;
  answered_ = std::exchange(other.answered_, true);
  return *this;
}

RpcCall::~RpcCall() {
  if (!answered_) reply_error(make_error(ErrorCode::kDisconnected, "request dropped"));
}

RpcPeer* RpcCall::peer() const { return link_ == nullptr ? nullptr : link_->peer; }

void RpcCall::reply_filled(size_t bytes) {
  PMSTORE_CHECK(!answered_, "a request is answered exactly once");
  PMSTORE_CHECK(bytes <= reply_room_.size(), "a reply was filled beyond its room");
  answered_ = true;
  if (link_->state != nullptr) link_->state->send(*this, 0, bytes);
}

void RpcCall::reply(std::span<const std::byte> payload) {
  if (payload.size() > reply_room_.size()) {
    reply_error(make_error(ErrorCode::kTooLarge, "the reply of " + std::to_string(payload.size()) +
                                                     " bytes does not fit into the " +
                                                     std::to_string(reply_room_.size()) +
                                                     " that the caller made room for"));
    return;
  }
  if (!payload.empty()) std::memcpy(reply_room_.data(), payload.data(), payload.size());
  reply_filled(payload.size());
}

void RpcCall::reply_error(const Error& error) {
  PMSTORE_CHECK(!answered_, "a request is answered exactly once");
  answered_ = true;
  if (link_->state == nullptr) return;
  // Every reply has this much room, whatever the caller asked for.
  const size_t bytes = std::min<size_t>(error.message.size(), kRpcErrorRoom);
  std::memcpy(link_->mirror.data() + reply_offset_ + sizeof(RpcReplyHeader), error.message.data(),
              bytes);
  link_->state->send(*this, static_cast<uint16_t>(1 + static_cast<uint32_t>(error.code)), bytes);
}

// ---- RpcPeer ----

Result<std::unique_ptr<RpcPeer>> RpcPeer::create(Device& device, const RpcOptions& options,
                                                 const RemoteRegion& reply_region,
                                                 RpcHandler& handler, RpcMemory* memory) {
  if (!usable_ring(reply_region.bytes) || reply_region.bytes > options.reply_arena_bytes) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a reply arena of " + std::to_string(reply_region.bytes) +
                          " bytes is unusable; use a multiple of 64 from 4096 to " +
                          std::to_string(options.reply_arena_bytes));
  }
  if (!usable_ring(options.request_ring_bytes) || options.max_calls == 0 ||
      options.max_calls > kMaxRpcCalls) {
    return make_error(
        ErrorCode::kInvalidArgument,
        "RpcOptions: request_ring_bytes is a multiple of 64 from 4096 to 2^30, max_calls "
        "is from 1 to 65536");
  }
  auto state = std::make_unique<State>(device, options, reply_region, handler, memory);
  state->link = std::make_shared<RpcCall::Link>();
  PMSTORE_TRY(state->link->ring, internal::PageMemory::create(options.request_ring_bytes));
  PMSTORE_TRY(state->link->mirror, internal::PageMemory::create(reply_region.bytes));
  PMSTORE_TRY(state->ring_region,
              device.register_memory(state->link->ring.bytes(), Access::kRemoteWrite));
  PMSTORE_TRY(state->mirror_region,
              device.register_memory(state->link->mirror.bytes(), Access::kLocal));
  auto peer = std::unique_ptr<RpcPeer>(new RpcPeer(std::move(state)));
  peer->state_->self = peer.get();
  peer->state_->link->peer = peer.get();
  peer->state_->link->state = peer->state_.get();
  return peer;
}

RpcPeer::RpcPeer(std::unique_ptr<State> state) : state_(std::move(state)) {}
RpcPeer::~RpcPeer() = default;

RpcPeer::State::~State() {
  link->peer = nullptr;
  link->state = nullptr;
  connection.reset();  // the fence, before the ring's memory is freed
  give_back_all();
}

const RemoteRegion& RpcPeer::request_region() const { return state_->ring_region->remote(); }

void RpcPeer::attach(std::unique_ptr<Connection> connection) {
  PMSTORE_CHECK(state_->connection == nullptr, "an RPC peer serves one connection");
  state_->connection = std::move(connection);
  state_->connection->set_receiver(this);
}

Connection* RpcPeer::connection() { return state_->connection.get(); }
size_t RpcPeer::calls_in_progress() const { return state_->in_progress; }
uint64_t RpcPeer::held_bytes() const { return state_->held_bytes(); }

const char* RpcPeer::State::decode(uint64_t offset, RpcRequestHeader& header) const {
  const std::span<std::byte> ring = link->ring.bytes();
  if (offset > ring.size() - sizeof(header)) return "its immediate is outside the request ring";
  // A copy, since the client can change the ring between a check and a use.
  base::copy_from_shared(&header, ring.data() + offset, sizeof(header));
  if (header.magic != kRpcRequestMagic) return "it has no request header of this version";
  if (header.reserved != 0 || header.reserved2 != 0) return "a reserved field is not zero";
  if (header.total_bytes < sizeof(header) || header.total_bytes > ring.size() / 2 ||
      header.total_bytes > ring.size() - offset) {
    return "its length leaves the request ring or exceeds half of it";
  }
  if (header.slot >= busy.size()) return "its slot is over max_calls; use the server's RpcOptions";
  if (busy[header.slot] != 0) return "its slot is in use by an unanswered request";
  const uint64_t room = rpc_reply_room(header.reply_capacity);
  if (header.reply_offset % kRpcUnit != 0 || header.reply_offset > reply_region.bytes ||
      room > reply_region.bytes - header.reply_offset) {
    return "the room for its reply is outside the reply arena";
  }
  return nullptr;
}

void RpcPeer::on_immediate(uint32_t immediate) {
  State& state = *state_;
  const uint64_t offset = uint64_t{immediate} * kRpcUnit;
  RpcRequestHeader header;
  if (const char* wrong = state.decode(offset, header); wrong != nullptr) [[unlikely]] {
    state.drop(make_error(ErrorCode::kProtocol, std::string("a malformed RPC request: ") + wrong));
    return;
  }
  state.use(state.in_ring, offset, header.total_bytes);
  state.busy[header.slot] = 1;
  ++state.in_progress;
  RpcCall call;
  call.link_ = state.link;
  call.method_ = header.method;
  call.slot_ = header.slot;
  call.generation_ = header.generation;
  call.reply_offset_ = header.reply_offset;
  call.request_ = {state.link->ring.data() + offset + sizeof(header),
                   header.total_bytes - sizeof(header)};
  call.reply_room_ = {state.link->mirror.data() + header.reply_offset + sizeof(RpcReplyHeader),
                      header.reply_capacity};
  call.answered_ = false;
  state.handler.on_call(*this, std::move(call));  // may destroy this
}

// Checks only what keeps reads within the message: on_immediate() judges the request.
void RpcPeer::on_waiting(uint32_t immediate, std::span<const std::byte> data) {
  State& state = *state_;
  std::span<const std::byte> message = data;
  if (message.empty()) {
    const std::span<const std::byte> ring = state.link->ring.bytes();
    message = ring.subspan(std::min<uint64_t>(uint64_t{immediate} * kRpcUnit, ring.size()));
  }
  RpcRequestHeader header;
  if (message.size() < sizeof(header)) return;
  base::copy_from_shared(&header, message.data(), sizeof(header));
  if (header.magic != kRpcRequestMagic || header.total_bytes < sizeof(header) ||
      header.total_bytes > message.size()) {
    return;
  }
  message = message.subspan(sizeof(header), header.total_bytes - sizeof(header));
  state.handler.on_waiting(*this, header.method, message);
}

void RpcPeer::set_notice(uint16_t notice) { state_->notice = notice; }

void RpcPeer::on_disconnect(const Error& why) {
  State& state = *state_;
  state.link->peer = nullptr;
  state.link->state = nullptr;
  state.handler.on_peer_gone(*this, why);  // may destroy this
}

void RpcPeer::on_idle() {
  if (state_->in_progress > 0) return;
  for (const internal::PageMemory* memory : {&state_->link->ring, &state_->link->mirror}) {
    const std::span<std::byte> bytes = memory->bytes();
    internal::give_back_pages(bytes.subspan(std::min(bytes.size(), kKeptRingBytes)));
  }
  state_->give_back_all();
}

void RpcPeer::State::drop(const Error& why) {
  link->peer = nullptr;
  link->state = nullptr;
  connection.reset();
  handler.on_peer_gone(*self, why);
}

Status RpcPeer::State::post(const Reply& reply) {
  Batch batch;
  batch.write_immediate({link->mirror.data() + reply.offset, reply.bytes, mirror_region.get()},
                        reply_region.at(reply.offset),
                        rpc_reply_immediate(reply.slot, reply.generation));
  Status posted = connection->post(batch, nullptr);
  if (!posted && posted.code() == ErrorCode::kBackPressure) return posted;
  finish_slot(reply.slot);  // sent, or the connection is broken and on_disconnect() on its way
  return {};
}

void RpcPeer::State::send(const RpcCall& call, uint16_t status, size_t payload_bytes) {
  const auto total_bytes = static_cast<uint32_t>(sizeof(RpcReplyHeader) + payload_bytes);
  const auto slot = static_cast<uint16_t>(call.slot_);
  const auto generation = static_cast<uint16_t>(call.generation_);
  const RpcReplyHeader header{kRpcReplyMagic, total_bytes, slot, generation, status, notice};
  use(in_mirror, call.reply_offset_, total_bytes);
  std::memcpy(link->mirror.data() + call.reply_offset_, &header, sizeof(header));
  const Reply reply{call.reply_offset_, total_bytes, slot, generation};
  if (unsent.empty() && post(reply)) return;
  PMSTORE_CHECK(unsent.size() < busy.size(), "a slot has one reply");
  unsent.push_back(reply);  // within the reserved capacity: its slot stays busy
  if (flushing) return;
  flushing = true;
  device.executor().spawn(flush_later(link, options.call_timeout_ns));
}

Status RpcPeer::State::flush_unsent() {
  size_t sent = 0;
  Status posted;
  while (sent < unsent.size() && (posted = post(unsent[sent]))) ++sent;
  unsent.erase(unsent.begin(), unsent.begin() + static_cast<std::ptrdiff_t>(sent));
  return posted;
}

base::Task<void> RpcPeer::State::flush_later(std::shared_ptr<RpcCall::Link> link,
                                             uint64_t timeout_ns) {
  if (link->state == nullptr) co_return;
  const auto flush = [&]() -> Status {
    return link->state == nullptr ? Status{} : link->state->flush_unsent();
  };
  const Status sent = co_await link->state->connection->post_when_room(timeout_ns, flush);
  if (link->state == nullptr) co_return;
  if (sent) {
    link->state->flushing = false;
  } else {
    link->state->drop(make_error(ErrorCode::kTimeout, "the peer does not take its replies"));
  }
}

}  // namespace pmstore::fabric
