// The control path of ShmConnection: opening, breaking, blocking. The data path has its own file.
#include "fabric/shm/internal/shm_connection.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "fabric/shm/internal/shm_device.h"

namespace pmstore::fabric::shm {

using internal::ConnectionOptions;
using internal::DestructionWatch;
using internal::FrameKind;
using internal::FrameSender;

ShmConnection::ShmConnection(ShmDevice& device, bool dialed, const ConnectionOptions& options)
    : FramedConnection(device, dialed, options), shm_(device) {
  sender_ = std::make_unique<FrameSender>(0);
  pieces_.reserve(kMaxPieces);
}

ShmConnection::~ShmConnection() {
  if (closed()) return;
  // As much of the earlier posts as there is room for.
  send_frames();
  close_transport();
}

Result<std::unique_ptr<ShmConnection>> ShmConnection::dial(ShmDevice& device,
                                                           const std::string& name,
                                                           const ConnectionOptions& options) {
  std::unique_ptr<ShmConnection> connection(new ShmConnection(device, true, options));
  PMSTORE_TRY(connection->socket_, ShmSocket::create(name));
  connection->server_ = name;
  // First, so that a missing server is the cheap and likely error.
  PMSTORE_TRY(const bool connected, connection->socket_.connect(name));
  if (connected) {
    PMSTORE_TRY_STATUS(connection->watch_socket());
  }
  PMSTORE_TRY(Segment segment, Segment::create());
  PMSTORE_TRY_STATUS(connection->use(std::move(segment)));
  return connection;
}

Result<std::unique_ptr<ShmConnection>> ShmConnection::accept(ShmDevice& device, ShmSocket socket,
                                                             const ConnectionOptions& options) {
  std::unique_ptr<ShmConnection> connection(new ShmConnection(device, false, options));
  connection->socket_ = std::move(socket);
  PMSTORE_TRY_STATUS(connection->watch_socket());
  return connection;
}

Status ShmConnection::watch_socket() {
  PMSTORE_TRY_STATUS(shm_.executor().watch(socket_.fd(), EPOLLIN, *this));
  watches_socket_ = true;
  connected_ = true;
  return {};
}

Status ShmConnection::use(Segment segment) {
  PMSTORE_CHECK(!segment_ && !closed(), "a connection has one segment");
  segment_.emplace(std::move(segment));
  writer_ = segment_->writer();
  reader_ = segment_->reader();
  // Each ring is an event of its own, so that nobody needs to read the bell.
  PMSTORE_TRY_STATUS(shm_.executor().watch(segment_->own_bell(), EPOLLIN | EPOLLET, bell_));
  watches_bell_ = true;
  shm_.wake(*this);
  return {};
}

void ShmConnection::close_transport() {
  if (asleep) disarm();
  PMSTORE_CHECK(!armed_, "an executor that blocks breaks nothing");
  shm_.forget(*this);
  base::Executor& executor = shm_.executor();
  if (segment_) {
    if (!peer_closed_) {
      writer_.end(last_ == FrameKind::kRefused ? RingEnd::kRefused : RingEnd::kClosed);
      wake_peer(writer_.state().reader_sleeps);
    }
    if (std::exchange(watches_bell_, false)) executor.unwatch(segment_->own_bell());
    segment_.reset();
  }
  PMSTORE_CHECK(!watches_bell_, "a bell is watched as long as there is a segment");
  body_left_bytes_ = 0;
  if (std::exchange(watches_socket_, false)) executor.unwatch(socket_.fd());
  socket_.close();
  received_.clear();
  sender_.reset();
}

Status ShmConnection::link(const std::string& peer_endpoint) {
  if (closed()) return why_broken_;  // after its hello
  if (!dialed_) {
    if (peer_endpoint != kSegmentName) {
      return make_error(ErrorCode::kVersionMismatch,
                        "the peer shares memory as '" + peer_endpoint + "', this end as '" +
                            kSegmentName + "'; run the same pmstore release on both sides");
    }
    if (received_.size() != Segment::kDescriptors) {
      return make_error(ErrorCode::kIo,
                        "the peer's shared memory has not arrived; check the limit of open files");
    }
    Segment::Descriptors descriptors;
    std::move(received_.begin(), received_.end(), descriptors.begin());
    received_.clear();
    PMSTORE_TRY(Segment segment, Segment::adopt(std::move(descriptors)));
    PMSTORE_TRY_STATUS(use(std::move(segment)));
  }
  return FramedConnection::link(peer_endpoint);
}

Status ShmConnection::send_control(std::vector<std::byte> message) {
  if (broken()) return why_broken_;
  if (!segment_ || !segment_->holds_memory()) return socket_.send(message);
  const Status sent = socket_.send(message, segment_->descriptors());
  segment_->close_memory();
  return sent;
}

[[gnu::hot]] void ShmConnection::on_ready(uint32_t) {
  socket_has_news_ = true;
  attend();
  tick_soon();
}

[[gnu::hot]] void ShmConnection::BellWatch::on_ready(uint32_t) { connection.shm_.wake(connection); }

[[gnu::hot]] void ShmConnection::tick(uint64_t now_ns) {
  if (closed()) return;
  if (!connected_) return continue_connecting();
  if (post_error_) return fail(*post_error_);
  if (std::exchange(socket_has_news_, false)) {
    DestructionWatch watch(lifetime_);
    look_at_socket();
    if (watch.destroyed() || closed()) return;
  }
  if (std::optional<Error> why = overdue(now_ns)) fail(*why);
}

[[gnu::hot]] uint64_t ShmConnection::next_tick_ns(uint64_t now_ns) {
  if (closed()) return base::Poller::kNoEvent;
  return connected_ ? next_deadline_ns(now_ns) : now_ns + kConnectingTickNs;
}

void ShmConnection::continue_connecting() {
  const Result<bool> connected = socket_.connect(server_);
  if (!connected) return fail(connected.error());
  if (!*connected) return;
  if (Status watched = watch_socket(); !watched) fail(watched.error());
}

void ShmConnection::look_at_socket() {
  std::vector<std::byte> message;
  std::vector<base::FileDescriptor> descriptors;
  switch (socket_.receive(message, descriptors)) {
    case ShmSocket::Received::kNothing: return;
    case ShmSocket::Received::kMessage:
      if (!dialed_ && !segment_) received_ = std::move(descriptors);
      return receive_control(std::move(message));
    case ShmSocket::Received::kClosed: break;
  }
  DestructionWatch watch(lifetime_);
  if (segment_) receive();
  if (!watch.destroyed()) fail_ended(RingEnd::kOpen);
}

void ShmConnection::fail_ended(RingEnd end) {
  if (closed()) return;
  peer_closed_ = true;
  if (end == RingEnd::kRefused) {
    return fail(make_error(ErrorCode::kAccess, "the target refused a remote access"));
  }
  fail(make_error(ErrorCode::kDisconnected, end == RingEnd::kClosed
                                                ? "the peer closed the connection"
                                                : "the peer closed the connection or died"));
}

[[gnu::hot]] bool ShmConnection::arm() {
  PMSTORE_CHECK(!armed_, "each arm() is followed by a disarm()");
  if (!segment_ || post_error_) return true;
  armed_ = true;
  reader_.state().reader_sleeps.announce();
  const bool waits_for_room = !sender_->empty();
  if (waits_for_room) writer_.state().writer_sleeps.announce();
  if (reader_.has_news()) return false;
  return !waits_for_room || (writer_.room() == 0 && !writer_.has_news());
}

[[gnu::hot]] void ShmConnection::disarm() {
  if (!std::exchange(armed_, false)) return;
  PMSTORE_CHECK(segment_, "its words are cleared in the segment in which they were set");
  reader_.state().reader_sleeps.clear();
  writer_.state().writer_sleeps.clear();
}

[[gnu::hot]] bool ShmConnection::fall_asleep() {
  if (!segment_ || post_error_ || has_to_send()) return false;
  if (arm()) return true;
  disarm();
  return false;
}

}  // namespace pmstore::fabric::shm
