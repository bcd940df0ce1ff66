// FramedConnection: a connection whose requests and answers are frames (fabric/internal/frame.h) in
// an ordered stream of bytes: the part of tcp and shm that does not depend on how the bytes move.
// See fabric/connection.h and docs/fabric-tcp.md.
//
// The target serves all requests of the byte stream in order, so requests take effect in posting
// order, and answers arrive in the order of their requests. The device's next poll sends what was
// posted. Closing a connection fences like destroying a QP: this end writes its memory only while
// it takes frames, and a closed connection takes none.
//
// Invariants:
//   sender_ is there until the transport is closed
//   expected_ in posting order; at most kMaxUnanswered
//   post_error_  =>  nothing is sent or taken any more; the next tick breaks the connection
//   what is outstanding, waits to be sent or is arriving  =>  the device attends to the connection
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/internal/frame.h"
#include "fabric/internal/frame_sender.h"
#include "fabric/internal/framed_device.h"
#include "fabric/internal/polled_connection.h"

namespace pmstore::fabric::internal {

class FramedConnection : public PolledConnection {
 public:
  Status post(const Batch& batch, Completion* completion) override;
  // The end that dialed: the listener may send frames as soon as it has accepted.
  Status link(const std::string& peer_endpoint) override;

  // ---- for what receives the frames ----
  // Sets the target of the body that follows, and the region of this end that it is in. False:
  // there is no target, and the connection may be broken or destroyed.
  bool take_body(const FrameHeader& header, std::byte*& target, const MemoryRegion*& region);
  // Handles a frame whose body is in its target. The connection may be destroyed afterwards.
  void take(const FrameHeader& header);

  // ---- for the device ----
  // `region` is being deregistered: a connection whose peer was writing to it, or waits to read it,
  // breaks at the next tick.
  void withdraw(const MemoryRegion& region);
  bool needs_attention() const override;
  void rest() override;
  bool has_surplus() const override;
  void give_back() override;

 protected:
  // `dialed`: this end has called connect(). The derived class sets sender_.
  FramedConnection(FramedDevice& device, bool dialed, const ConnectionOptions& options);

  // sender_ has frames for the next poll.
  virtual void frames_are_ready() = 0;
  void frames_wait() {
    attend();
    frames_are_ready();
  }
  // Whether the bytes still move in or a tick has another reason to look at how they move.
  virtual bool transport_needs_attention() const = 0;
  // Forgets the body that is arriving for `region`; false: none is.
  virtual bool forget_body(const MemoryRegion& region) = 0;
  // Answers a READ without sender_ and its copy, if nothing waits there and all of it can be sent
  // now. False: it is not answered.
  virtual bool answer_inline(const std::byte*, uint32_t) { return false; }
  // Sends what the peer takes now. Makes no callback.
  virtual void send_frames() = 0;
  // How much has been sent: what stands still is stuck.
  virtual uint64_t sent_bytes() const = 0;
  // The rest of a frame that has begun to leave is lost: nothing can be sent behind it.
  virtual void give_up_sending() = 0;

  // For tick(): the error when a batch is not done in time, or frames do not leave.
  std::optional<Error> overdue(uint64_t now_ns);
  // For next_tick_ns(): when overdue() must be called.
  uint64_t next_deadline_ns(uint64_t now_ns);
  // Restarts the time of what waits to be sent, if some of it has been sent.
  void watch_progress(uint64_t now_ns);
  Completion* take_outstanding() override;
  void fail_protocol(const std::string& why);

  const bool dialed_;
  FrameKind last_ = FrameKind::kClosed;  // what the peer is told when this end closes
  bool peer_closed_ = false;             // it need not be told
  std::optional<Error> post_error_;
  std::unique_ptr<FrameSender> sender_;

 private:
  // A connection that has moved more bytes has used more than the first pages of its rings.
  static constexpr uint64_t kFewBytes = 16 * 1024;

  // A request of ours that will be answered.
  struct Expected {
    std::byte* target;       // of a READ: for the rest of its answer; else null
    uint32_t bytes;          // of that
    Completion* completion;  // of the batch that it ends; null: unsignaled
    uint64_t deadline_ns;    // 0: not yet set by start_deadlines()
  };

  // The time of what has been posted since the last call starts now.
  void start_deadlines(uint64_t now_ns);
  // Some of these end with a callback, which may destroy the connection.
  bool may_answer();
  // The oldest request that is to be answered has left.
  uint32_t unanswered() const { return static_cast<uint32_t>(expected_.size()); }
  bool is_asked() const { return unanswered() > sender_->unsent_questions(); }
  void serve_read(const FrameHeader& header);
  void take_done(uint32_t count);
  void finish_first_expected();
  void refuse(const std::string& why);

  FramedDevice& framed_;
  const uint64_t operation_timeout_ns_;
  bool accepted_ = false;  // by the listener that we dialed: it may send frames from then on
  GrowingRing<Expected> expected_;
  uint64_t moved_bytes_ = 0;  // since give_back()

  bool late_ = false;  // a deadline had passed at the last tick
  uint64_t stuck_since_bytes_ = 0;
  uint64_t stuck_deadline_ns_ = 0;  // 0: nothing waits to be sent
};

}  // namespace pmstore::fabric::internal
