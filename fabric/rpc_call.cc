// The data path of RpcClient: one call from reservation to answer.
#include <cstring>
#include <string>
#include <vector>

#include "base/atomic_copy.h"
#include "base/check.h"
#include "fabric/internal/rpc_client_state.h"
#include "fabric/rpc.h"
#include "fabric/rpc_layout.h"

namespace pmstore::fabric {

namespace {

// Users read the server's message: it becomes one line without control characters.
std::string printable(const std::byte* bytes, size_t count) {
  std::string text(reinterpret_cast<const char*>(bytes), count);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

}  // namespace

[[gnu::hot]] bool RpcClient::State::reserve(Waiter& waiter) {
  if (free_slots.empty()) return false;
  const auto request_bytes =
      static_cast<uint32_t>(waiter.request.size() + sizeof(RpcRequestHeader));
  const auto request = request_space.allocate(request_bytes);
  if (request.index == internal::RpcSpace::kNone) return false;
  const auto reply =
      reply_space.allocate(static_cast<uint32_t>(rpc_reply_room(waiter.reply_capacity)));
  if (reply.index == internal::RpcSpace::kNone) {
    request_space.undo(request);
    return false;
  }
  waiter.slot = free_slots.back();
  free_slots.pop_back();
  Slot& slot = slots[waiter.slot];
  PMSTORE_CHECK(slot.state == SlotState::kFree, "a slot has one call at a time");
  slot.state = SlotState::kReserved;
  ++slot.generation;
  slot.request_piece = request.index;
  slot.request_offset = request.offset;
  slot.request_bytes = request_bytes;
  slot.reply_piece = reply.index;
  slot.reply_offset = reply.offset;
  slot.reply_capacity = waiter.reply_capacity;
  slot.started_tick = waiter.started_tick;
  slot.waiter = &waiter;
  waiter.client = this;
  return true;
}

[[gnu::hot]] void RpcClient::State::fill(const Waiter& waiter) {
  const Slot& slot = slots[waiter.slot];
  const RpcRequestHeader header{kRpcRequestMagic,
                                slot.request_bytes,
                                waiter.method,
                                static_cast<uint16_t>(waiter.slot),
                                slot.generation,
                                0,
                                slot.reply_offset,
                                slot.reply_capacity,
                                0};
  std::byte* to = staging.data() + slot.request_offset;
  std::memcpy(to, &header, sizeof(header));
  const std::span<const std::byte> request = waiter.request;
  if (!request.empty()) std::memcpy(to + sizeof(header), request.data(), request.size());
}

[[gnu::hot]] Status RpcClient::State::post(uint32_t index) {
  Slot& slot = slots[index];
  Batch batch;
  batch.write_immediate(
      {staging.data() + slot.request_offset, slot.request_bytes, staging_region.get()},
      request_region.at(slot.request_offset), slot.request_offset / kRpcUnit);
  PMSTORE_CHECK(slot.state == SlotState::kReserved, "a request is sent once");
  Status posted = connection->post(batch, nullptr);
  if (!posted) [[unlikely]]
    return posted;
  slot.state = SlotState::kSent;
  Counters& counters = connection->mutable_counters();
  ++counters.server_messages;
  ++counters.round_trips;
  return {};
}

[[gnu::hot]] Status RpcClient::State::send(Waiter& waiter) {
  if (waiter.slot == UINT32_MAX) {
    if (!reserve(waiter)) return make_error(ErrorCode::kBackPressure);
    fill(waiter);
  }
  Status posted = post(waiter.slot);
  if (!posted && posted.code() != ErrorCode::kBackPressure) cancel(waiter);
  return posted;
}

void RpcClient::State::cancel(Waiter& waiter) {
  Slot& slot = slots[waiter.slot];
  PMSTORE_CHECK(slot.state == SlotState::kReserved && slot.waiter == &waiter,
                "only a request that was not sent is cancelled");
  waiter.client = nullptr;
  slot.waiter = nullptr;
  request_space.free(slot.request_piece);
  slot.state = SlotState::kHeld;
  free_slot(waiter.slot);
}

[[gnu::hot]] void RpcClient::State::free_slot(uint32_t index) {
  Slot& slot = slots[index];
  PMSTORE_CHECK(slot.state == SlotState::kHeld, "only an answered call's slot is released");
  slot.holder = nullptr;
  slot.state = SlotState::kFree;
  reply_space.free(slot.reply_piece);
  free_slots.push_back(index);
}

[[gnu::hot]] void RpcClient::State::release(uint32_t index) {
  free_slot(index);
  if (first_waiting != nullptr) serve_queue();
}

void RpcClient::State::enqueue(Waiter& waiter) {
  PMSTORE_CHECK(waiter.slot == UINT32_MAX || first_waiting == nullptr,
                "only the first call of the queue has a slot");
  if (waiter.slot == UINT32_MAX) {
    waiter.kept.assign(waiter.request.begin(), waiter.request.end());
    waiter.request = waiter.kept;
  }
  waiter.client = this;
  waiter.next = nullptr;
  (first_waiting == nullptr ? first_waiting : last_waiting->next) = &waiter;
  last_waiting = &waiter;
  if (send_queue_is_full()) make_send_later();
}

RpcClient::State::Waiter& RpcClient::State::take_first() {
  Waiter& waiter = *first_waiting;
  first_waiting = waiter.next;
  if (first_waiting == nullptr) last_waiting = nullptr;
  return waiter;
}

void RpcClient::State::fail_first(const Error& why) {
  Waiter& waiter = take_first();
  if (waiter.slot != UINT32_MAX) cancel(waiter);
  waiter.fail(why);
}

// Sends by itself: if it only woke the callers, a caller that is resumed before them could call
// again and be in front of them.
void RpcClient::State::serve_queue() {
  while (first_waiting != nullptr) {
    const Status sent = send(*first_waiting);
    if (!sent && sent.code() == ErrorCode::kBackPressure) break;
    Waiter& waiter = take_first();
    waiter.kept = {};
    if (!sent) waiter.fail(sent.error());
  }
  // Room in the rings comes with the next answer, or the next reply that goes.
  if (send_queue_is_full()) make_send_later();
}

void RpcClient::State::make_send_later() {
  if (sending_later) return;
  sending_later = true;
  device.executor().spawn(send_later(scan_link));
}

base::Task<void> RpcClient::State::send_later(std::shared_ptr<Scan> link) {
  const auto serve = [&]() -> Status {
    if (link->client == nullptr) return {};
    link->client->serve_queue();
    return link->client->send_queue_is_full() ? make_error(ErrorCode::kBackPressure) : Status{};
  };
  Status served;
  do {
    if (link->client == nullptr) co_return;
    State& state = *link->client;
    served = co_await state.connection->post_when_room(state.options.call_timeout_ns, serve);
  } while (!served && served.code() == ErrorCode::kTimeout);
  if (link->client != nullptr) link->client->sending_later = false;
}

void RpcClient::State::forget(Waiter& waiter) {
  if (waiter.slot != UINT32_MAX && slots[waiter.slot].state != SlotState::kReserved) {
    slots[waiter.slot].waiter = nullptr;  // the answer will release it
    return;
  }
  const bool was_first = first_waiting == &waiter;
  Waiter* before = nullptr;
  for (Waiter* at = first_waiting; at != &waiter; at = at->next) {
    PMSTORE_CHECK(at != nullptr, "a call that was not sent is in the queue");
    before = at;
  }
  (before == nullptr ? first_waiting : before->next) = waiter.next;
  if (last_waiting == &waiter) last_waiting = before;
  if (waiter.slot != UINT32_MAX) cancel(waiter);
  if (was_first) serve_queue();
}

[[gnu::hot]] bool RpcClient::State::valid_reply(const Slot& slot, uint32_t index,
                                                uint16_t generation, RpcReplyHeader& header) const {
  if (slot.state != SlotState::kSent || slot.generation != generation) return false;
  base::copy_from_shared(&header, arena.data() + slot.reply_offset, sizeof(header));
  if (header.magic != kRpcReplyMagic || header.slot != index || header.generation != generation ||
      header.status > kRpcMaxStatus || header.total_bytes < sizeof(header)) {
    return false;
  }
  const uint64_t payload_bytes = header.total_bytes - sizeof(header);
  if (header.status == 0) return payload_bytes <= slot.reply_capacity;
  return header.total_bytes <= rpc_reply_room(slot.reply_capacity);
}

[[gnu::hot]] void RpcClient::State::on_reply(uint32_t immediate) {
  const uint32_t index = immediate & 0xffff;
  if (index < slots.size() && slots[index].state == SlotState::kLost)
    return;  // the call has failed already
  RpcReplyHeader header;
  if (index >= slots.size() ||
      !valid_reply(slots[index], index, static_cast<uint16_t>(immediate >> 16), header)) {
    fail_all(make_error(ErrorCode::kDisconnected,
                        "the server sent a malformed RPC reply; is it of another version?"));
    return;
  }
  if (header.notice != notice) {
    notice = header.notice;
    if (noticed) noticed();
  }
  Slot& slot = slots[index];
  slot.state = SlotState::kHeld;
  request_space.free(slot.request_piece);
  Waiter* waiter = std::exchange(slot.waiter, nullptr);
  if (waiter == nullptr) {
    release(index);
    return;
  }
  waiter->client = nullptr;
  const std::byte* payload = arena.data() + slot.reply_offset + sizeof(header);
  const size_t payload_bytes = header.total_bytes - sizeof(header);
  if (header.status == 0) {
    waiter->reply = {payload, payload_bytes};
    waiter->owner = self;
  } else {
    waiter->failed = true;
    waiter->error.code = static_cast<ErrorCode>(header.status - 1);
    waiter->error.message = printable(payload, payload_bytes);
    release(index);
  }
  if (first_waiting != nullptr) serve_queue();
  // Last, since the caller may destroy this client.
  waiter->frame.resume();
}

[[gnu::hot]] base::Task<Result<RpcReply>> RpcClient::call(uint16_t method,
                                                          std::span<const std::byte> request,
                                                          uint32_t reply_capacity) {
  struct Suspend {
    State::Waiter& waiter;
    bool await_ready() const { return waiter.client == nullptr; }
    void await_suspend(std::coroutine_handle<> frame) { waiter.frame = frame; }
    void await_resume() const {
      waiter.frame = nullptr;
      waiter.woken = false;
    }
  };

  PMSTORE_CHECK(state_->connection != nullptr, "an RPC client is attached before it calls");
  if (state_->failed) co_return Error(state_->why_failed);
  if (Status fits = state_->check_sizes(request.size(), reply_capacity); !fits) {
    co_return std::move(fits.error());
  }
  State::Waiter waiter;
  waiter.executor = &state_->device.executor();
  waiter.method = method;
  waiter.request = request;
  waiter.reply_capacity = reply_capacity;
  waiter.started_tick = state_->tick;
  state_->active_since_tick = true;
  if (!state_->scanning) state_->start_scan();

  Status sent = state_->first_waiting == nullptr ? state_->send(waiter)
                                                 : Status(make_error(ErrorCode::kBackPressure));
  if (!sent) [[unlikely]] {
    if (sent.code() != ErrorCode::kBackPressure) co_return std::move(sent.error());
    state_->enqueue(waiter);
  }
  // The connection may fail during the wait, or this client may be destroyed; then the waiter has
  // lost its slot, and knows why.
  Suspend for_reply{waiter};
  co_await for_reply;
  if (waiter.failed) co_return std::move(waiter.error);
  RpcReply reply;
  reply.client_ = waiter.owner;
  reply.slot_ = waiter.slot;
  reply.bytes_ = waiter.reply;
  waiter.owner->state_->slots[waiter.slot].holder = &reply;
  co_return std::move(reply);
}

}  // namespace pmstore::fabric
