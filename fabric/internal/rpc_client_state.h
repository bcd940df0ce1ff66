// RpcClient::State: slots, ring space, waiting callers and the scan for late answers. Requests are
// sent in the order of their calls.
//
// Invariants:
//   the reply piece of a slot is taken exactly while the slot is not kFree, the request piece
//   exactly while the slot is kReserved, kSent or kLost
//   a call is in the queue until it is sent, if it is not sent at its beginning; no call is sent
//   before those that are in the queue. Only the first one may have a slot, and that is the only
//   slot that is kReserved: the send queue of the connection is full, and send_later() runs
//   a waiter with `client` set is in the queue, or it is the `waiter` of a slot that is kSent; it
//   lives in the frame of its call; client and waiter point at each other, so that either may be
//   destroyed first
//   a client that has failed has no queue
#pragma once

#include <algorithm>
#include <coroutine>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "fabric/internal/page_memory.h"
#include "fabric/internal/rpc_space.h"
#include "fabric/rpc.h"

namespace pmstore::fabric {

struct RpcClient::State {
  struct Waiter;

  enum class SlotState : uint8_t {
    kFree,
    kReserved,  // filled, not sent yet
    kSent,      // `waiter` is nullptr if the call was abandoned
    kHeld,      // answered; `holder` reads the reply
    kLost,      // the connection failed before the answer; never used again
  };
  struct Slot {
    SlotState state = SlotState::kFree;
    uint16_t generation = 0;
    uint32_t request_piece = 0;
    uint32_t request_offset = 0;
    uint32_t request_bytes = 0;  // with header
    uint32_t reply_piece = 0;
    uint32_t reply_offset = 0;
    uint32_t reply_capacity = 0;
    uint32_t started_tick = 0;
    Waiter* waiter = nullptr;
    RpcReply* holder = nullptr;
  };

  // A call that waits in the queue or for its answer.
  struct Waiter {
    State* client = nullptr;  // nullptr: not registered, or the client is gone
    base::Executor* executor = nullptr;
    std::coroutine_handle<> frame;  // while suspended here
    bool woken = false;             // posted to the executor, not resumed yet
    uint32_t slot = UINT32_MAX;
    uint16_t method = 0;
    std::span<const std::byte> request;  // until the waiter has a slot
    std::vector<std::byte> kept;         // `request`, in the queue
    uint32_t reply_capacity = 0;
    uint32_t started_tick = 0;
    bool failed = false;
    Error error{ErrorCode::kDisconnected, {}};
    Waiter* next = nullptr;  // in the queue
    std::span<const std::byte> reply;
    RpcClient* owner = nullptr;

    Waiter() = default;
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    ~Waiter() {
      if (client != nullptr) client->forget(*this);
      if (woken) executor->forget(frame);
    }
    void wake() {
      if (!frame || woken) return;
      woken = true;
      executor->post(frame);
    }
    void fail(const Error& why) {
      failed = true;
      error = why;
      client = nullptr;
      wake();
    }
  };

  // Of scan() and send_later(), which may outlive the client by one tick.
  struct Scan {
    State* client;
  };

  State(Device& rpc_device, const RpcOptions& rpc_options);
  ~State();

  Status check_sizes(size_t request_bytes, uint32_t reply_capacity) const;
  // Takes a slot and room in both rings for `waiter`; false when something is used up.
  bool reserve(Waiter& waiter);
  // Builds the message of `waiter` in the staging memory.
  void fill(const Waiter& waiter);
  // Posts the message of a reserved slot. Errors as Connection::post().
  Status post(uint32_t slot);
  // Reserves, fills and posts, as far as that has not been done. BackPressure when something is
  // used up; with a slot then, if it is the connection's send queue. With another error the waiter
  // has no slot.
  Status send(Waiter& waiter);
  // Gives back the slot and the room of `waiter`, whose message was not sent.
  void cancel(Waiter& waiter);
  void free_slot(uint32_t slot);
  // Gives back an answered call's slot and the room of its reply.
  void release(uint32_t slot);
  // The frame of `waiter` is destroyed before its answer has arrived.
  void forget(Waiter& waiter);
  void enqueue(Waiter& waiter);
  Waiter& take_first();
  // Of the queue.
  void fail_first(const Error& why);
  // Sends what there is room for, in order.
  void serve_queue();
  bool send_queue_is_full() const {
    return first_waiting != nullptr && first_waiting->slot != UINT32_MAX;
  }
  void make_send_later();
  bool expired(uint32_t started_tick) const { return tick - started_tick > kTicksPerTimeout; }
  uint64_t tick_ns() const {
    return std::max<uint64_t>(options.call_timeout_ns / kTicksPerTimeout, 1000);
  }

  void on_reply(uint32_t immediate);
  bool valid_reply(const Slot& slot, uint32_t index, uint16_t generation,
                   RpcReplyHeader& header) const;
  // Refuses all later calls. Every outstanding call fails with `why` in the executor's next turn.
  void fail_all(const Error& why);

  void start_scan();
  // False when nothing is left to scan for.
  bool on_tick();
  static base::Task<void> scan(base::Executor& executor, std::shared_ptr<Scan> link,
                               uint64_t tick_ns);
  // Serves the queue until the send queue is not what it waits for. Each call in it expires.
  static base::Task<void> send_later(std::shared_ptr<Scan> link);

  static constexpr uint32_t kTicksPerTimeout = 8;

  Device& device;
  RpcOptions options;
  RpcClient* self = nullptr;
  internal::PageMemory arena;
  internal::PageMemory staging;  // mirrors the server's request ring
  std::unique_ptr<MemoryRegion> arena_region;
  std::unique_ptr<MemoryRegion> staging_region;
  Connection* connection = nullptr;
  RemoteRegion request_region;
  internal::RpcSpace request_space;
  internal::RpcSpace reply_space;
  std::vector<Slot> slots;
  std::vector<uint32_t> free_slots;
  Waiter* first_waiting = nullptr;
  Waiter* last_waiting = nullptr;
  bool failed = false;
  Error why_failed{ErrorCode::kDisconnected, {}};
  uint16_t notice = 0;
  std::function<void()> noticed;

  std::shared_ptr<Scan> scan_link;
  bool scanning = false;
  bool sending_later = false;
  bool active_since_tick = false;
  uint32_t tick = 0;
};

}  // namespace pmstore::fabric
