// ShmConnection: one connection over shared memory: a segment with a ring of frames each way, and a
// Unix socket, which carries the handshake and tells when the peer has died. See
// fabric/connection.h and docs/fabric-shm.md.
//
// Two busy ends make no system call: each looks at the words of the rings when it is polled. An end
// that blocks announces it in the segment; the peer then rings a bell, once.
//
// Fencing: this end alone moves bytes between its memory and the rings, when it is polled, and a
// closed connection has no rings.
//
// Invariants:
//   segment_  =>  not closed; without segment_ there are no frames
//   watches_bell_  =>  segment_;  watches_socket_  =>  the socket is open
//   segment_  <=>  awake.listed or asleep, between two polls
//   armed_  =>  segment_, and nothing but arm() and disarm() happens until disarm(). (The peer may
//   change the sleep words at any time.);  asleep  =>  armed_
//   woken_for_ <= written()
//   body_left_bytes_ > 0  <=>  the next bytes of the ring belong to body_target_
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/sleeper.h"
#include "fabric/internal/framed_connection.h"
#include "fabric/shm/internal/segment.h"
#include "fabric/shm/internal/shm_socket.h"

namespace pmstore::fabric::shm {

class ShmDevice;

class ShmConnection final : public internal::FramedConnection, private base::Watched {
 public:
  // Starts connecting to the server `name`. Disconnected, Access, InvalidArgument, Io.
  static Result<std::unique_ptr<ShmConnection>> dial(ShmDevice& device, const std::string& name,
                                                     const internal::ConnectionOptions& options);
  // At the listener. Io when the socket cannot be watched.
  static Result<std::unique_ptr<ShmConnection>> accept(ShmDevice& device, ShmSocket socket,
                                                       const internal::ConnectionOptions& options);
  ~ShmConnection() override;

  size_t poll() override;
  void tick(uint64_t now_ns) override;
  uint64_t next_tick_ns(uint64_t now_ns) override;

  bool transport_ready() const override { return connected_; }
  std::string endpoint_name() const override { return dialed_ ? kSegmentName : std::string(); }
  Status link(const std::string& peer_endpoint) override;
  Status send_control(std::vector<std::byte> message) override;

  // ---- for the device ----
  // At the listening end: requests may wait in the ring. Asks for their memory, too.
  bool may_have_requests() const;
  // Tells the receiver of `most` of them at most; gives of how many. `alone`: no other connection
  // has any, and a single one is not told of. Destroys nothing.
  size_t tell_of_waiting(size_t most, bool alone);
  // Before the executor blocks: the peer is to ring. False: there is something to do.
  bool arm();
  void disarm();
  // The device stops polling it until its bell rings. False: there is something to do.
  bool fall_asleep();
  internal::ListLinks<ShmConnection> awake;  // in the device's list of those that it polls
  bool asleep = false;
  unsigned quiet_polls = 0;  // in a row

 private:
  // So often, while more than this moves in one direction, the other end is shown what has moved.
  static constexpr size_t kPublishBytes = 16 * 1024;
  static constexpr size_t kMaxPieces = 32;
  // How soon a blocked executor asks again whether a socket has connected.
  static constexpr uint64_t kConnectingTickNs = 1'000'000;

  // The bell ends the executor's wait, or the connection's sleep; poll() finds what it was rung
  // for.
  struct BellWatch final : base::Watched {
    explicit BellWatch(ShmConnection& owner) : connection(owner) {}
    void on_ready(uint32_t) override;
    ShmConnection& connection;
  };

  ShmConnection(ShmDevice& device, bool dialed, const internal::ConnectionOptions& options);
  Status watch_socket();
  Status use(Segment segment);
  void on_ready(uint32_t events) override;
  void continue_connecting();
  // The connection may be destroyed afterwards.
  void look_at_socket();

  void close_transport() override;
  void frames_are_ready() override;  // each poll looks
  bool transport_needs_attention() const override {
    return !connected_ || socket_has_news_ || body_left_bytes_ > 0;
  }
  bool forget_body(const MemoryRegion& region) override {
    return body_left_bytes_ > 0 && body_region_ == &region;  // post_error_ skips it
  }
  bool answer_inline(const std::byte* source, uint32_t bytes) override;
  void send_frames() override;
  bool has_to_send() const { return !sender_->empty() || writer_.written() != woken_for_; }
  uint64_t sent_bytes() const override { return writer_.written(); }
  void give_up_sending() override {}  // post_error_ is set

  // Appends frames as far as there is room. False: the reader's word is forged.
  bool fill_ring();
  // Handles the frames that have arrived; returns how many. The connection may be destroyed
  // afterwards.
  size_t receive();
  // Handles the next frame. False: it is not all here. The connection may be destroyed afterwards.
  bool take_one();
  // The same, after the receiver was told of the frames behind it.
  bool take_next();
  void take_body_bytes();
  // The peer has ended, and all that it has sent has been handled. The connection may be destroyed
  // afterwards.
  void fail_ended(RingEnd end);
  // After something was published: rings if the peer sleeps.
  void wake_peer(base::SleepFlag& flag);

  ShmDevice& shm_;
  ShmSocket socket_;
  std::string server_;  // when dialing
  bool connected_ = false;
  bool watches_socket_ = false;
  bool socket_has_news_ = false;
  std::vector<base::FileDescriptor> received_;  // with the hello, until link()

  std::optional<Segment> segment_;
  RingWriter writer_;
  RingReader reader_;
  BellWatch bell_{*this};
  bool watches_bell_ = false;
  bool armed_ = false;
  std::vector<iovec> pieces_;
  uint64_t told_through_ = 0;  // of the bytes of the ring that is read: the receiver knows them
  uint64_t woken_for_ = 0;     // what the peer has been woken for, if it slept: written() then

  // The frame whose body is being taken.
  internal::FrameHeader body_header_{};
  std::byte* body_target_ = nullptr;
  uint32_t body_left_bytes_ = 0;
  const MemoryRegion* body_region_ = nullptr;  // of a WRITE to this end; null: a READ answer
};

}  // namespace pmstore::fabric::shm
