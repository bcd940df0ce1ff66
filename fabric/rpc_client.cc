#include <algorithm>
#include <string>

#include "base/check.h"
#include "fabric/internal/rpc_client_state.h"
#include "fabric/rpc.h"
#include "fabric/rpc_layout.h"

namespace pmstore::fabric {

namespace {

Error bad_ring(std::string_view what, uint64_t bytes) {
  return make_error(ErrorCode::kInvalidArgument,
                    "an RPC " + std::string(what) + " of " + std::to_string(bytes) +
                        " bytes is unusable; use a multiple of 64 from 4096 to 2^30");
}

}  // namespace

[[gnu::hot]] RpcReply::RpcReply(RpcReply&& other) noexcept { *this = std::move(other); }

[[gnu::hot]] RpcReply& RpcReply::operator=(RpcReply&& other) noexcept {
  if (this == &other) return *this;
  if (client_ != nullptr) client_->state_->release(slot_);
  client_ = std::exchange(other.client_, nullptr);
  slot_ = other.slot_;
  bytes_ = std::exchange(other.bytes_, {});
  if (client_ != nullptr) client_->state_->slots[slot_].holder = this;
  return *this;
}

[[gnu::hot]] RpcReply::~RpcReply() {
  if (client_ != nullptr) client_->state_->release(slot_);
}

Result<std::unique_ptr<RpcClient>> RpcClient::create(Device& device, const RpcOptions& options) {
  if (!usable_ring(options.reply_arena_bytes)) {
    return bad_ring("reply arena", options.reply_arena_bytes);
  }
  if (!usable_ring(options.request_ring_bytes)) {
    return bad_ring("request ring", options.request_ring_bytes);
  }
  if (options.max_calls == 0 || options.max_calls > kMaxRpcCalls) {
    return make_error(ErrorCode::kInvalidArgument, "RpcOptions::max_calls is from 1 to 65536");
  }
  auto state = std::make_unique<State>(device, options);
  PMSTORE_TRY(state->arena, internal::PageMemory::create(options.reply_arena_bytes));
  PMSTORE_TRY(state->staging, internal::PageMemory::create(options.request_ring_bytes));
  PMSTORE_TRY(state->arena_region,
              device.register_memory(state->arena.bytes(), Access::kRemoteWrite));
  PMSTORE_TRY(state->staging_region,
              device.register_memory(state->staging.bytes(), Access::kLocal));
  auto client = std::unique_ptr<RpcClient>(new RpcClient(std::move(state)));
  client->state_->self = client.get();
  return client;
}

RpcClient::RpcClient(std::unique_ptr<State> state) : state_(std::move(state)) {}
RpcClient::~RpcClient() = default;

const RemoteRegion& RpcClient::reply_region() const { return state_->arena_region->remote(); }

Status RpcClient::attach(Connection& connection, const RemoteRegion& request_region) {
  PMSTORE_CHECK(state_->connection == nullptr, "an RPC client serves one connection");
  if (!usable_ring(request_region.bytes)) {
    return bad_ring("request ring of the server", request_region.bytes);
  }
  state_->request_region = request_region;
  const uint64_t ring_bytes =
      std::min<uint64_t>(request_region.bytes, state_->options.request_ring_bytes);
  state_->request_space.reset(static_cast<uint32_t>(ring_bytes), state_->options.max_calls * 4);
  state_->connection = &connection;
  connection.set_receiver(this);
  return {};
}

[[gnu::hot]] bool RpcClient::failed() const { return state_->failed; }

void RpcClient::on_notice(std::function<void()> noticed) { state_->noticed = std::move(noticed); }

[[gnu::hot]] uint32_t RpcClient::max_request_bytes() const {
  return state_->request_space.max_piece_bytes() - static_cast<uint32_t>(sizeof(RpcRequestHeader));
}

[[gnu::hot]] uint32_t RpcClient::max_reply_bytes() const {
  return state_->reply_space.max_piece_bytes() - static_cast<uint32_t>(sizeof(RpcReplyHeader));
}

[[gnu::hot]] void RpcClient::on_immediate(uint32_t immediate) { state_->on_reply(immediate); }

void RpcClient::on_disconnect(const Error& why) {
  state_->fail_all(make_error(ErrorCode::kDisconnected, why.message));
}

RpcClient::State::State(Device& rpc_device, const RpcOptions& rpc_options)
    : device(rpc_device),
      options(rpc_options),
      slots(rpc_options.max_calls),
      scan_link(std::make_shared<Scan>(Scan{this})) {
  reply_space.reset(options.reply_arena_bytes, options.max_calls * 4);
  free_slots.reserve(options.max_calls);
  for (uint32_t slot = options.max_calls; slot > 0; --slot) free_slots.push_back(slot - 1);
}

RpcClient::State::~State() {
  scan_link->client = nullptr;
  fail_all(make_error(ErrorCode::kDisconnected, "the RPC client was destroyed"));
  for (Slot& slot : slots) {
    if (slot.holder != nullptr) slot.holder->client_ = nullptr;
  }
}

[[gnu::hot]] Status RpcClient::State::check_sizes(size_t request_bytes,
                                                  uint32_t reply_capacity) const {
  if (request_bytes > self->max_request_bytes()) {
    return make_error(ErrorCode::kTooLarge, "a request of " + std::to_string(request_bytes) +
                                                " bytes is over the limit of " +
                                                std::to_string(self->max_request_bytes()));
  }
  if (reply_capacity > self->max_reply_bytes()) {
    return make_error(ErrorCode::kTooLarge,
                      "room for a reply of " + std::to_string(reply_capacity) +
                          " bytes is over the limit of " + std::to_string(self->max_reply_bytes()));
  }
  return {};
}

void RpcClient::State::fail_all(const Error& why) {
  if (!failed) {
    failed = true;
    why_failed = why;
  }
  for (Slot& slot : slots) {
    if (slot.state != SlotState::kSent) continue;
    slot.state = SlotState::kLost;
    if (slot.waiter != nullptr) std::exchange(slot.waiter, nullptr)->fail(why);
  }
  while (first_waiting != nullptr) fail_first(why);
}

void RpcClient::State::start_scan() {
  scanning = true;
  device.executor().spawn(scan(device.executor(), scan_link, tick_ns()));
}

base::Task<void> RpcClient::State::scan(base::Executor& executor, std::shared_ptr<Scan> link,
                                        uint64_t tick_ns) {
  while (true) {
    co_await executor.sleep_for(tick_ns);
    if (link->client == nullptr || !link->client->on_tick()) co_return;
  }
}

[[gnu::hot]] bool RpcClient::State::on_tick() {
  ++tick;
  bool waiting = first_waiting != nullptr;
  const Error late = make_error(ErrorCode::kTimeout, "no answer within the call timeout");
  for (Slot& slot : slots) {
    if (slot.state != SlotState::kSent) continue;
    waiting = true;
    if (!expired(slot.started_tick)) continue;
    if (!failed) {
      failed = true;
      why_failed =
          make_error(ErrorCode::kDisconnected, "an earlier call on this connection timed out");
    }
    slot.state = SlotState::kLost;
    if (slot.waiter != nullptr) std::exchange(slot.waiter, nullptr)->fail(late);
  }
  // The call that has waited longest expires first. These calls were not sent.
  bool anyone = false;
  while (first_waiting != nullptr && (failed || expired(first_waiting->started_tick))) {
    fail_first(failed
                   ? why_failed
                   : make_error(ErrorCode::kTimeout, "no room for the request in time; not sent"));
    anyone = true;
  }
  // Those behind them may be smaller.
  if (anyone) serve_queue();
  scanning = waiting || active_since_tick;
  active_since_tick = false;
  return scanning;
}

}  // namespace pmstore::fabric
