// TcpConnection: one connection of a multiplexer; see fabric/connection.h and docs/fabric-tcp.md.
//
// The target serves all requests of the byte stream in order, so requests take effect in posting
// order, and answers arrive in the order of their requests. The device's next poll sends what was
// posted. Closing a connection fences like destroying a QP: this end writes its memory only while
// it reads the socket, and frames for a closed connection are skipped.
//
// Invariants:
//   multiplexer_ and sender_ are there until the connection is closed
//   unanswered_ entries of expected_ from expected_head_ on, in posting order; at most
//   kMaxUnanswered
//   post_error_  =>  nothing is sent or taken any more; the next tick breaks the connection
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/internal/polled_connection.h"
#include "fabric/tcp/internal/frame.h"
#include "fabric/tcp/internal/frame_sender.h"
#include "fabric/tcp/internal/multiplexer.h"

namespace pmstore::fabric::tcp {

class TcpDevice;

class TcpConnection final : public internal::PolledConnection {
 public:
  // At the dialing end.
  TcpConnection(TcpDevice& device, Multiplexer& multiplexer,
                const internal::ConnectionOptions& options);
  // At the listening end: the connection that the peer calls `channel`.
  TcpConnection(TcpDevice& device, Multiplexer& multiplexer, uint32_t channel,
                const internal::ConnectionOptions& options);
  ~TcpConnection() override;

  Status post(const Batch& batch, Completion* completion) override;
  // The device reads multiplexers, not connections.
  size_t poll() override { return 0; }
  void tick(uint64_t now_ns) override;
  uint64_t next_tick_ns(uint64_t now_ns) override;

  bool transport_ready() const override {
    return multiplexer_ != nullptr && multiplexer_->connected();
  }
  Status link(const std::string& peer_endpoint) override;
  Status send_control(std::vector<std::byte> message) override;

  // ---- for the multiplexer; the first three may destroy the connection ----
  void take_handshake(std::vector<std::byte> message);
  // Sets the target of the body that follows, and the region of this end that it is in. False: the
  // body is skipped.
  bool take_body(const FrameHeader& header, std::byte*& target, const MemoryRegion*& region);
  // Handles a frame whose body is in its target.
  void take(const FrameHeader& header);
  // `region` is being deregistered: a connection whose peer was writing to it, or waits to read it,
  // breaks at the next tick. `arriving`: a body for it was being received.
  void withdraw(const MemoryRegion& region, bool arriving);

 private:
  // A request of ours that will be answered.
  struct Expected {
    std::byte* target;       // of a READ: for the rest of its answer; else null
    uint32_t bytes;          // of that
    Completion* completion;  // of the batch that it ends; null: unsignaled
    uint64_t deadline_ns;    // 0: not yet set by start_deadlines()
  };

  void close_transport() override;
  Completion* take_outstanding() override;
  // The time of what has been posted since the last call starts now.
  void start_deadlines(uint64_t now_ns);
  std::optional<Error> overdue(uint64_t now_ns);

  // Some of these end with a callback, which may destroy the connection.
  bool may_answer();
  // The oldest request that is to be answered has left.
  bool is_asked() const { return unanswered_ > sender_->unsent_questions(); }
  void serve_read(const FrameHeader& header);
  void take_done(uint32_t count);
  void finish_first_expected();
  void refuse(const std::string& why);
  void fail_protocol(const std::string& why);

  Expected& expected(uint32_t i) { return expected_[(expected_head_ + i) % kMaxUnanswered]; }

  TcpDevice& tcp_;
  Multiplexer* multiplexer_;
  const bool dialed_;
  const uint32_t channel_;
  const uint64_t operation_timeout_ns_;
  bool accepted_ = false;  // by the listener that we dialed: it may send frames from then on
  bool heard_ = false;     // the peer has answered something
  FrameKind last_ = FrameKind::kClosed;  // what the peer is told when this end closes
  bool peer_closed_ = false;             // it need not be told
  std::optional<Error> post_error_;

  std::unique_ptr<FrameSender> sender_;
  std::vector<Expected> expected_;  // ring
  uint32_t expected_head_ = 0;
  uint32_t unanswered_ = 0;

  uint64_t stuck_since_bytes_ = 0;
  uint64_t stuck_deadline_ns_ = 0;  // 0: nothing waits to be sent
};

}  // namespace pmstore::fabric::tcp
