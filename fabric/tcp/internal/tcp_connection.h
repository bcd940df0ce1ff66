// TcpConnection: one TCP socket that carries RDMA's requests; see fabric/connection.h and
// docs/fabric-tcp.md.
//
// The target serves everything from one byte stream, in order, so requests take effect in posting
// order, and answers come in the order of what they answer. What is posted leaves when the device
// polls: what one turn of the executor posts on a connection is one system call. Closing the socket
// is like destroying a QP: we move data into our memory only while we read the socket.
//
// Invariants:
//   received bytes that are not used yet are in_[in_begin_, in_end_); while a body is being placed
//   there are none
//   unanswered_ entries of expected_ from expected_head_ on, in posting order; at most
//   kMaxUnanswered
//   post_error_  =>  nothing is sent or taken any more; the next poll or tick breaks the connection
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fabric/internal/polled_connection.h"
#include "fabric/tcp/internal/frame.h"
#include "fabric/tcp/internal/frame_sender.h"
#include "fabric/tcp/internal/socket.h"

namespace pmstore::fabric::tcp {

class TcpDevice;

class TcpConnection final : public internal::PolledConnection {
 public:
  // Starts connecting to the first of `addresses` that answers; `where` names them in errors.
  static Result<std::unique_ptr<TcpConnection>> dial(TcpDevice& device,
                                                     std::vector<SocketAddress> addresses,
                                                     const internal::ConnectionOptions& options,
                                                     std::string where);
  // Over a client's `socket`.
  TcpConnection(TcpDevice& device, Socket socket, const internal::ConnectionOptions& options);
  ~TcpConnection() override;

  Status post(const Batch& batch, Completion* completion) override;
  size_t poll() override;
  void tick(uint64_t now_ns) override;

  // Sends what the socket takes; true when nothing is left, and the device may forget that there
  // was. Calls nobody.
  bool flush_dirty();
  // `region` is no longer there: breaks, at the next poll, what has been moving data there or from
  // there.
  void withdraw(const MemoryRegion& region);

  bool transport_ready() const override { return connected_; }
  Status link(const std::string& peer_endpoint) override;
  Status send_control(std::vector<std::byte> message) override;

 private:
  static constexpr size_t kInBytes = 64 * 1024;
  // A body up to this size is placed when all of it is here, so that nobody sees half of a small
  // word; a larger one as it comes.
  static constexpr uint32_t kPlaceWholeBytes = 512;
  // So many times a socket that has more is read in one poll.
  static constexpr int kMaxReads = 8;

  // A request of ours that will be answered.
  struct Expected {
    std::byte* to;  // of a READ; else null
    uint32_t bytes;
    Completion* completion;  // of the batch that it ends, if somebody waits for that
    uint64_t deadline_ns;    // 0: not yet stamped by tick()
  };
  enum class Parsed { kFrame, kNeedsMore, kBroken };

  TcpConnection(TcpDevice& device, const internal::ConnectionOptions& options);
  void close_transport() override;
  Completion* take_outstanding() override;

  // Connecting.
  Status connect_next();
  void look_at_connecting();

  // Receiving. After those that return false or kBroken the connection may be gone.
  size_t receive();
  bool take_received(size_t bytes);
  Parsed parse_one();
  Parsed parse_control();
  Parsed begin_frame(const FrameHeader& header);
  Parsed begin_body(const FrameHeader& header, std::byte* to, const MemoryRegion* region);
  Parsed finish_frame();
  Parsed serve_read(const FrameHeader& header);
  Parsed take_done(uint32_t count);
  Parsed refuse(const std::string& why);
  Parsed broken_by(const Error& why);
  bool finish_first_expected();
  bool answer_done();

  Expected& expected(uint32_t i) { return expected_[(expected_head_ + i) % kMaxUnanswered]; }
  void expect(const Expected& entry);
  void mark_dirty();
  void flush();
  std::optional<Error> overdue(uint64_t now_ns);

  TcpDevice& tcp_;
  const uint64_t operation_timeout_ns_;
  Socket socket_;
  bool connected_ = false;
  bool accepted_ = false;  // by the listener that we dialed: it may send frames from then on
  bool dirty_ = false;         // in the device's list of those that have something to send
  std::optional<Error> post_error_;

  // While dialing.
  std::string where_;
  std::vector<SocketAddress> addresses_;
  size_t next_address_ = 0;

  FrameSender sender_;
  std::vector<Expected> expected_;  // ring
  uint32_t expected_head_ = 0;
  uint32_t unanswered_ = 0;

  std::unique_ptr<std::byte[]> in_;
  size_t in_begin_ = 0;
  size_t in_end_ = 0;
  // The frame whose body is being placed.
  FrameHeader placing_{};
  std::byte* place_to_ = nullptr;
  uint32_t place_left_ = 0;
  const MemoryRegion* place_region_ = nullptr;  // of ours that a peer writes; null: a READ's buffer

  uint64_t stuck_since_bytes_ = 0;
  uint64_t stuck_deadline_ns_ = 0;  // 0: nothing waits to be sent
};

}  // namespace pmstore::fabric::tcp
