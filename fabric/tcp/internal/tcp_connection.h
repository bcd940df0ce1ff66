// TcpConnection: one connection of a wire; see fabric/connection.h and docs/fabric-tcp.md.
//
// The target serves everything from one byte stream, in order, so requests take effect in posting
// order, and answers come in the order of what they answer. What is posted leaves when the device
// polls. Closing a connection is like destroying a QP: we move data into our memory only while we
// read the socket, and what arrives for a connection that has closed is skipped.
//
// Invariants:
//   wire_ and sender_ are there until the connection is closed
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
#include "fabric/tcp/internal/wire.h"

namespace pmstore::fabric::tcp {

class TcpDevice;

class TcpConnection final : public internal::PolledConnection {
 public:
  // A new one over `wire`, of the end that dialed that.
  TcpConnection(TcpDevice& device, Wire& wire, const internal::ConnectionOptions& options);
  // The one that the other end calls `channel`.
  TcpConnection(TcpDevice& device, Wire& wire, uint32_t channel,
                const internal::ConnectionOptions& options);
  ~TcpConnection() override;

  Status post(const Batch& batch, Completion* completion) override;
  // The device reads wires, not connections.
  size_t poll() override { return 0; }
  void tick(uint64_t now_ns) override;

  bool transport_ready() const override { return wire_ != nullptr && wire_->connected(); }
  Status link(const std::string& peer_endpoint) override;
  Status send_control(std::vector<std::byte> message) override;

  // ---- for the wire; the connection may be gone after the first three ----
  void take_handshake(std::vector<std::byte> message);
  // Where the body that follows belongs, and in which region of ours; false: it is to be skipped.
  bool take_body(const FrameHeader& header, std::byte*& to, const MemoryRegion*& region);
  // A frame, its body placed.
  void take(const FrameHeader& header);
  // `region` is no longer there: breaks, at the next tick, a connection whose peer was writing or
  // waits to read it. `arriving`: a body was.
  void withdraw(const MemoryRegion& region, bool arriving);

 private:
  // A request of ours that will be answered.
  struct Expected {
    std::byte* to;           // of a READ: where the rest of its answer belongs; else null
    uint32_t bytes;          // of that
    Completion* completion;  // of the batch that it ends, if somebody waits for that
    uint64_t deadline_ns;    // 0: not yet stamped by tick()
  };

  void close_transport() override;
  Completion* take_outstanding() override;
  std::optional<Error> overdue(uint64_t now_ns);

  // Some of these end with a callback, after which the connection may be gone.
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
  Wire* wire_;
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
