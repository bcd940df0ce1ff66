// RPC over WRITE-with-immediate: the way to reach the server's CPU.
//
// Each connection has a request ring in the server's memory, which only the client allocates from,
// and a reply arena in the client's memory, which also only the client allocates from: a request
// names the offset and size of the room for its reply. So neither side keeps flow-control state
// about the other, and the server finds requests in its completion queue: the immediate of a
// request is its offset in the ring / 64, the immediate of a reply is the call's slot. Both sides
// build a message in a local mirror of the target, at the offset that it will have there: the
// mirror is free exactly when the target is. One request costs one doorbell and one round trip.
// docs/rpc.md has the layout. Every field that arrives is bounds-checked; a malformed message costs
// its sender the connection.
//
// Threads: all on the executor of the connection's device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/connection.h"
#include "fabric/device.h"
#include "fabric/memory_region.h"

namespace pmstore::fabric {

struct RpcOptions {
  // Server side, per connection; a request is at most half of it.
  uint32_t request_ring_bytes = 4u << 20;
  uint32_t reply_arena_bytes = 4u << 20;  // client side; a reply is at most half of it
  uint32_t max_calls = 256;               // outstanding calls per connection
  uint64_t call_timeout_ns = 5'000'000'000;
};

// ---- client ----

class RpcClient;

// The answer to a call. The bytes lie in the reply arena until the RpcReply is destroyed. Destroy
// it soon: later replies wait for its room.
class RpcReply {
 public:
  RpcReply() = default;
  RpcReply(RpcReply&& other) noexcept;
  RpcReply& operator=(RpcReply&& other) noexcept;
  ~RpcReply();
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  friend class RpcClient;
  RpcClient* client_ = nullptr;
  uint32_t slot_ = 0;
  std::span<const std::byte> bytes_;
};

class RpcClient final : public Receiver {
 public:
  // Allocates and registers its memory. Io as register_memory(); InvalidArgument for unusable
  // options: ring sizes are multiples of 64 from 4 KiB to 1 GiB, max_calls is from 1 to 65536.
  static Result<std::unique_ptr<RpcClient>> create(Device& device, const RpcOptions& options);
  // Outstanding calls fail with Disconnected in the executor's next turn.
  ~RpcClient() override;

  // The client sends it in its hello.
  const RemoteRegion& reply_region() const;
  // Called after the handshake; `request_region` is from the server's hello. Becomes the receiver
  // of `connection`, which is borrowed: when it has gone, this client goes next, before any call or
  // RpcReply of it. InvalidArgument when the region's size is unusable.
  Status attach(Connection& connection, const RemoteRegion& request_region);

  // Sends a request and waits for the answer. Waits while rings, slots or the send queue are full;
  // requests are sent in the order of the calls. Gives the server's own error as it is. TooLarge
  // when request or reply capacity exceed half of their rings; the message says the limit. Timeout
  // or Disconnected: it is not known whether the server acted. After a Timeout of a request that
  // was sent, failed() is true and the connection must be destroyed, since the late reply could
  // overwrite a later one. `request` is copied before the first suspension.
  base::Task<Result<RpcReply>> call(uint16_t method, std::span<const std::byte> request,
                                    uint32_t reply_capacity);

  bool failed() const;
  // `noticed` is called when a reply has another notice than the reply before it (0 before the
  // first one): from polling, before the caller of that reply goes on. It must not destroy this
  // client.
  void on_notice(std::function<void()> noticed);
  // The sizes of the largest request and of the largest reply.
  uint32_t max_request_bytes() const;
  uint32_t max_reply_bytes() const;

  void on_immediate(uint32_t immediate) override;
  void on_disconnect(const Error& why) override;

 private:
  friend class RpcReply;
  struct State;
  explicit RpcClient(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// ---- server ----

class RpcPeer;

// A request that the server has not answered yet. Move-only; answered exactly once: a call that is
// destroyed without an answer answers kDisconnected "request dropped". It may outlive the peer;
// then an answer has no effect.
class RpcCall {
 public:
  RpcCall(RpcCall&&) noexcept;
  RpcCall& operator=(RpcCall&&) noexcept;
  ~RpcCall();

  uint16_t method() const { return method_; }
  // Lies in the request ring; valid until answered, even when the peer is destroyed. A hostile
  // client can change it at any time: copy a field before you check and use it.
  std::span<const std::byte> request() const { return request_; }
  // nullptr when the connection is broken or destroyed.
  RpcPeer* peer() const;

  // The memory for the reply: fill it, then call reply_filled(bytes).
  std::span<std::byte> reply_room() const { return reply_room_; }
  void reply_filled(size_t bytes);
  // Copies `payload` and answers with it; with TooLarge when it does not fit.
  void reply(std::span<const std::byte> payload);
  void reply_error(const Error& error);

 private:
  friend class RpcPeer;
  struct Link;
  RpcCall() = default;
  std::shared_ptr<Link> link_;  // to the peer; empty once the peer is destroyed
  uint16_t method_ = 0;
  uint32_t slot_ = 0;
  uint32_t generation_ = 0;
  uint32_t reply_offset_ = 0;
  std::span<const std::byte> request_;
  std::span<std::byte> reply_room_;
  bool answered_ = true;
};

class RpcHandler {
 public:
  virtual ~RpcHandler() = default;
  // Called from polling. May answer inline, or keep the call and answer later.
  virtual void on_call(RpcPeer& peer, RpcCall call) = 0;
  // A hint: several requests wait, and on_call() for this one comes soon, if it is well-formed
  // (Receiver::on_waiting()). The client may still change it. Destroys nothing, answers nothing.
  virtual void on_waiting(RpcPeer& /*peer*/, uint16_t /*method*/,
                          std::span<const std::byte> /*request*/) {}
  // The connection is broken, or was dropped because of a malformed message. Called once; may
  // destroy the peer.
  virtual void on_peer_gone(RpcPeer& peer, const Error& why) = 0;
};

// What the peers of one server hold together; see RpcPeer::held_bytes().
struct RpcMemory {
  uint64_t held_bytes = 0;
};

// The server's end of one connection. Owns its request ring, and the connection once attached.
class RpcPeer final : public Receiver {
 public:
  // InvalidArgument when the client's reply region has an unusable size: not a multiple of 64,
  // below 4 KiB, or above options.reply_arena_bytes. What the peer holds counts in `memory` too,
  // which is borrowed until the peer is destroyed.
  static Result<std::unique_ptr<RpcPeer>> create(Device& device, const RpcOptions& options,
                                                 const RemoteRegion& reply_region,
                                                 RpcHandler& handler, RpcMemory* memory = nullptr);
  ~RpcPeer() override;

  // The server sends it in its hello.
  const RemoteRegion& request_region() const;
  void attach(std::unique_ptr<Connection> connection);
  Connection* connection();
  // The number of requests without an answer.
  size_t calls_in_progress() const;
  // Bytes of memory that requests and answers have used since it was idle last, at most: as long as
  // a client does not read its answers, they stay. WRITEs that no request tells of do not count.
  uint64_t held_bytes() const;
  // Every reply from here on shows it (RpcClient::on_notice()); 0 before the first call. So a
  // client that calls learns that there is something to ask for.
  void set_notice(uint16_t notice);
  // For the owner's bookkeeping; not used here.
  void* owner = nullptr;

  void on_immediate(uint32_t immediate) override;
  void on_waiting(uint32_t immediate, std::span<const std::byte> data) override;
  void on_disconnect(const Error& why) override;
  // Between two requests: gives back the pages of its rings but the first ones, to which a client
  // with nothing under way returns. Requires that nothing of the next request is in the ring.
  void on_idle() override;

 private:
  friend class RpcCall;
  struct State;
  explicit RpcPeer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pmstore::fabric
