// PolledConnection: the base of connections between processes (tcp, shm): the handshake, immediates
// that arrive during the handshake, and breaking. See fabric/connection.h.
//
// A connection is first handshaking (control messages are exchanged, immediates that arrive are
// kept), then established, then broken. A derived class moves the bytes.
//
// Invariant: broken  =>  the transport is closed and nothing is outstanding
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fabric/connection.h"
#include "fabric/destruction_watch.h"
#include "fabric/internal/intrusive_list.h"

namespace pmstore::fabric::internal {

class PolledDevice;

struct ConnectionOptions {
  uint64_t operation_timeout_ns;
};

constexpr bool is_write(const WorkRequest& request) {
  return request.op == OpCode::kWrite || request.op == OpCode::kWriteImmediate;
}

// Shakes hands with a peer.
class HandshakeWatcher {
 public:
  // A message can be taken, or the connection has broken. Only notes it.
  virtual void on_handshake_news() = 0;

 protected:
  ~HandshakeWatcher() = default;
};

class PolledConnection : public Connection {
 public:
  ~PolledConnection() override;
  PolledConnection(const PolledConnection&) = delete;
  PolledConnection& operator=(const PolledConnection&) = delete;

  // ---- for the device ----
  // Handles what has arrived and sends what waits; returns how much it handled. The connection may
  // be destroyed afterwards.
  virtual size_t poll() = 0;
  // Checks deadlines, and the transport's rare events. It may be destroyed afterwards.
  virtual void tick(uint64_t now_ns) = 0;
  // Whether tick() and next_tick_ns() have something to look at. Whatever makes this true calls
  // attend().
  virtual bool needs_attention() const = 0;
  // It does not need attention any more.
  virtual void rest() {}
  // While it rests: it has memory that it does not need.
  virtual bool has_surplus() const { return false; }
  virtual void give_back() {}
  // Before the executor blocks: the time at which tick() must run though nothing arrives, for a
  // deadline; base::Poller::kNoEvent for none. Deadlines that no tick has set yet count from now.
  virtual uint64_t next_tick_ns(uint64_t now_ns) = 0;
  // Breaks the connection: closes the transport, fails what is outstanding, tells the receiver. No
  // effect if it is broken. It may be destroyed afterwards.
  void fail(const Error& why);

  // ---- for the handshake ----
  virtual bool transport_ready() const = 0;
  // The name by which the peer reaches this end.
  virtual std::string endpoint_name() const { return {}; }
  // Connects to the peer's end of that name.
  virtual Status link(const std::string&) { return {}; }
  virtual Status send_control(std::vector<std::byte> message) = 0;
  // `watcher` hears of news until another one, or null, takes its place.
  void watch_handshake(HandshakeWatcher* watcher) { watcher_ = watcher; }
  std::optional<std::vector<std::byte>> take_control() { return std::exchange(inbox_, {}); }
  // The peer has connected to this end.
  virtual void peer_has_linked() {}
  void set_peer_hello(std::vector<std::byte> hello) { peer_hello_ = std::move(hello); }
  // The handshake is complete and the receiver is set: delivers the immediates that arrived during
  // the handshake. The connection may be destroyed afterwards.
  void establish();
  // Gives `connection` to its new owner, which sets the receiver or destroys the connection. If it
  // still exists: sends `welcome` to the peer and establishes it.
  template <typename Give>
  static void give_away(std::unique_ptr<PolledConnection> connection,
                        std::vector<std::byte> welcome, Give give) {
    PolledConnection* observed = connection.get();
    DestructionWatch watch(observed->lifetime_);
    give(std::move(connection));
    if (watch.destroyed()) return;
    if (Status sent = observed->send_control(std::move(welcome)); !sent) {
      observed->fail(sent.error());
    } else {
      observed->establish();
    }
  }

 protected:
  // It begins with the attention of the device.
  explicit PolledConnection(PolledDevice& device);

  bool closed() const { return broken_ || failing_; }
  // From the next tick on the device looks at this connection, until it needs no attention.
  void attend();
  // Checks a batch before any of it is posted: InvalidArgument, Unsupported.
  static Status check(const Batch& batch);
  void count(const WorkRequest& request) {
    ++counters_.work_requests;
    (is_write(request) ? counters_.bytes_written : counters_.bytes_read) += request.bytes;
  }
  // The device ticks in its next poll.
  void tick_soon();
  void receive_control(std::vector<std::byte> message);
  // An immediate has arrived. The connection may be destroyed afterwards.
  void handle_immediate(uint32_t immediate);
  // One of several has arrived. Destroys nothing.
  void announce_immediate(uint32_t immediate, std::span<const std::byte> data) {
    if (established_ && receiver_ != nullptr) receiver_->on_waiting(immediate, data);
  }
  // Of fail(): afterwards no registered buffer is read or written, and nothing is queued.
  virtual void close_transport() = 0;
  // Of fail(), after close_transport(): removes the next batch that has not completed; nullptr when
  // none is left.
  virtual Completion* take_outstanding() = 0;

  bool established_ = false;

 private:
  friend class PolledDevice;
  static constexpr size_t kMaxEarly = 1024;

  // Tells the object that shakes hands to look at this connection.
  void tell_handshake();

  PolledDevice& device_;
  ListLinks<PolledConnection> attention_;  // in the device's list of those that need it
  ListLinks<PolledConnection> surplus_;  // in the device's list of those that have memory to spare
  uint64_t visited_ = 0;                 // by which of the device's ticks
  uint64_t rested_ns_ = 0;
  HandshakeWatcher* watcher_ = nullptr;
  bool failing_ = false;
  std::optional<std::vector<std::byte>> inbox_;
  std::vector<uint32_t> early_immediates_;
};

}  // namespace pmstore::fabric::internal
