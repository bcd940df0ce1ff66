// The inside of RpcClient: slots, ring space, waiting callers and the scan for late answers.
//
// Invariants:
// * A slot's two pieces of ring are taken exactly while the slot is not kFree.
// * A waiter with `client` set is in exactly one of: the room queue (no slot yet), or a slot in
// kReserved
//   or kSent, as its `waiter`.
// * Waiters live in the frames of their calls; each knows the client and the client knows each, so
// that
//   either may go first.
#pragma once

#include <algorithm>
#include <coroutine>
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
    kSent,      // nobody waits if `waiter` is nullptr
    kHeld,      // answered; `holder` reads the reply
    kLost,      // the connection failed first; never used again
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

  // A call that waits for room or for its answer.
  struct Waiter {
    State* client = nullptr;  // nullptr: not registered, or the client is gone
    base::Executor* executor = nullptr;
    std::coroutine_handle<> frame;  // while suspended here
    bool woken = false;             // posted to the executor, not resumed yet
    uint32_t slot = UINT32_MAX;
    uint32_t request_bytes = 0;  // payload
    uint32_t reply_capacity = 0;
    uint32_t started_tick = 0;
    bool failed = false;
    Error error{ErrorCode::kDisconnected, {}};
    Waiter* next = nullptr;  // in the room queue
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

  // What the scanning coroutine keeps, since it may outlive the client by one tick.
  struct Scan {
    State* client;
  };

  State(Device& of, const RpcOptions& given);
  ~State();

  Status check_sizes(size_t request_bytes, uint32_t reply_capacity) const;
  // Takes a slot and room in both rings for `waiter`; false when something is used up.
  bool reserve(Waiter& waiter);
  // Builds the message of `waiter` in the staging memory.
  void fill(const Waiter& waiter, uint16_t method, std::span<const std::byte> request);
  Status send(uint32_t slot);
  // The message of `waiter` was never sent: nothing is in doubt, everything is free again.
  void cancel(Waiter& waiter);
  void release(uint32_t slot);
  // The frame of `waiter` goes before its answer came.
  void forget(Waiter& waiter);
  void enqueue(Waiter& waiter);
  void serve_queue();
  bool expired(uint32_t started_tick) const { return tick - started_tick > kTicksPerTimeout; }
  // How long until a call that started then has expired, to within a tick.
  uint64_t left_ns(uint32_t started_tick) const {
    return expired(started_tick) ? 0 : (kTicksPerTimeout + 1 - (tick - started_tick)) * tick_ns();
  }
  uint64_t tick_ns() const {
    return std::max<uint64_t>(options.call_timeout_ns / kTicksPerTimeout, 1000);
  }

  void on_reply(uint32_t immediate);
  bool valid_reply(const Slot& slot, uint32_t index, uint16_t generation,
                   RpcReplyHeader& header) const;
  // Nothing can be called any more; every outstanding call gets `why`, from the executor's next
  // turn.
  void fail_all(const Error& why);

  void start_scan();
  // False when the scan can rest.
  bool on_tick();
  static base::Task<void> scan(base::Executor& executor, std::shared_ptr<Scan> link,
                               uint64_t tick_ns);

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

  std::shared_ptr<Scan> scan_link;
  bool scanning = false;
  bool active_since_tick = false;
  uint32_t tick = 0;
};

}  // namespace pmstore::fabric
