// The data path of Multiplexer: sending, receiving. It does not throw, log or lock, and allocates
// for handshakes, or when more is under way than before.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/bulk_copy.h"
#include "base/check.h"
#include "fabric/internal/frame_walk.h"
#include "fabric/internal/handshake.h"
#include "fabric/tcp/internal/multiplexer.h"
#include "fabric/tcp/internal/multiplexer_set.h"
#include "fabric/tcp/internal/tcp_connection.h"
#include "fabric/tcp/internal/tcp_listener.h"

namespace pmstore::fabric::tcp {

using internal::carries_body;
using internal::DestructionWatch;

[[gnu::hot]] void Multiplexer::mark_ready(FrameSender& sender) {
  if (!sender.listed) {
    PMSTORE_CHECK(!sender.mid_frame(), "a sender in the middle of a frame stays listed");
    sender.listed = true;
    ready_.push_back(&sender);
  }
  if (!over_) set_.add_dirty(*this);
}

[[gnu::hot]] void Multiplexer::unlist(FrameSender& sender) {
  sender.listed = false;
  std::erase(ready_, &sender);
  if (leftover_.get() != &sender) return;
  leftover_.reset();
  update_lists();
}

[[gnu::hot]] bool Multiplexer::send(int max_sends) {
  msghdr message;
  for (int sends = 0; prepare_send(message); ++sends) {
    if (sends == max_sends) return false;
    ssize_t sent = sendmsg(socket_.fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) sent = -errno;
    const bool done = finish_send(sent);
    if (done || blocked_) return done;
  }
  unwatch_room();
  return ready_.empty() || mute_;
}

void Multiplexer::unwatch_room() {
  if (watches_room_ && ready_.empty()) set_watches_room(false);
}

[[gnu::hot]] bool Multiplexer::prepare_send(msghdr& message) {
  if (mute_ || !connected_ || over_ || ready_.empty()) return false;
  pieces_.clear();
  wanted_ = 0;
  for (asked_ = 0; asked_ < ready_.size() && pieces_.size() + 2 <= kMaxPieces; ++asked_) {
    wanted_ += ready_[asked_]->gather(pieces_, kMaxPieces);
  }
  message = msghdr{};
  message.msg_iov = pieces_.data();
  message.msg_iovlen = pieces_.size();
  return true;
}

[[gnu::hot]] bool Multiplexer::finish_send(ssize_t sent) {
  PMSTORE_CHECK(asked_ > 0 && asked_ <= ready_.size(), "what is sent was prepared");
  const size_t asked = std::exchange(asked_, 0);
  if (sent == -EINTR) return false;
  if (sent < 0) {
    const bool full = sent == -EAGAIN || sent == -EWOULDBLOCK;
    if (full || sent == -ENOBUFS || sent == -ENOMEM || sent == -EPERM) {
      blocked_ = true;
      refused_ = !full;
      return false;
    }
    // What has arrived is still read: it may tell the reason.
    hang_up();
    return true;
  }
  sent_bytes_ += static_cast<size_t>(sent);
  count_sent(static_cast<size_t>(sent), asked);
  refused_ = false;
  blocked_ = static_cast<size_t>(sent) < wanted_;
  if (blocked_ || !ready_.empty()) return false;
  unwatch_room();
  return true;
}

// Of the first `asked` of ready_, in order.
[[gnu::hot]] void Multiplexer::count_sent(size_t sent, size_t asked) {
  const FrameSender* const front = ready_.front();
  for (size_t i = 0; i < asked && sent > 0; ++i) {
    const size_t own = std::min(sent, ready_[i]->gathered());
    ready_[i]->count_sent(own);
    sent -= own;
  }
  for (size_t i = asked; i-- > 0;) {
    if (ready_[i]->empty()) unlist(*ready_[i]);
  }
  // The first sender goes behind the others, unless it is in the middle of a frame.
  if (ready_.size() > 1 && ready_.front() == front && !front->mid_frame()) {
    std::rotate(ready_.begin(), ready_.begin() + 1, ready_.end());
  }
}

[[gnu::hot]] size_t Multiplexer::receive() {
  msghdr message;
  prepare_receive(message);
  const ssize_t got = into_body_ ? readv(socket_.fd(), message.msg_iov, 2)
                                 : recv(socket_.fd(), message.msg_iov->iov_base,
                                        message.msg_iov->iov_len, MSG_DONTWAIT);
  return finish_receive(got < 0 ? -errno : got);
}

[[gnu::hot]] void Multiplexer::prepare_receive(msghdr& message) {
  if (in_ == nullptr) {
    in_ = set_.take_room();
  } else if (in_begin_ > 0) {
    std::memmove(in_.get(), in_.get() + in_begin_, in_end_ - in_begin_);
    in_end_ -= in_begin_;
    in_begin_ = 0;
  }
  PMSTORE_CHECK(body_left_bytes_ == 0 || in_begin_ == in_end_, "a body goes to its target first");
  into_body_ = body_connection_ != nullptr && body_left_bytes_ > 0;
  told_end_ = in_begin_;
  targets_[0] = {body_target_, body_left_bytes_};
  targets_[1] = {in_.get() + in_end_, MultiplexerSet::kRoomBytes - in_end_};
  message = msghdr{};
  message.msg_iov = targets_ + (into_body_ ? 0 : 1);
  message.msg_iovlen = into_body_ ? 2 : 1;
}

[[gnu::hot]] size_t Multiplexer::finish_receive(ssize_t got) {
  if (got == -EAGAIN || got == -EWOULDBLOCK || got == -EINTR) {
    return_room();
    return 0;
  }
  if (got <= 0) [[unlikely]] {
    break_all(make_error(ErrorCode::kDisconnected, got == 0
                                                       ? "the peer closed the connection or died"
                                                       : std::string("the connection broke: ") +
                                                             strerror(static_cast<int>(-got))));
  } else {
    take_received(static_cast<size_t>(got));
  }
  return 1;
}

// The multiplexer may be over or destroyed afterwards.
[[gnu::hot]] void Multiplexer::take_received(size_t bytes) {
  const size_t of_body = into_body_ ? std::min<size_t>(bytes, body_left_bytes_) : 0;
  in_end_ += bytes - of_body;
  if (of_body > 0) {
    body_target_ += of_body;
    body_left_bytes_ -= static_cast<uint32_t>(of_body);
    // Without its connection, which was closed since the bytes came, the body is only counted.
    if (body_left_bytes_ == 0 && body_connection_ != nullptr && finish_body() == Parsed::kOver) {
      return;
    }
  }
  Parsed parsed = Parsed::kFrame;
  while (parsed == Parsed::kFrame) {
    const bool told = dialed_ || in_begin_ < told_end_ || in_begin_ == in_end_;
    if (!told && body_left_bytes_ == 0) tell_of_waiting(in_end_, kToldTogether, /*alone=*/true);
    parsed = parse_one();
  }
  if (parsed != Parsed::kOver) return_room();
}

[[gnu::hot]] size_t Multiplexer::tell_of_received(ssize_t got, size_t most) {
  if (got <= 0 || dialed_ || body_left_bytes_ > 0) return 0;
  return tell_of_waiting(in_end_ + static_cast<size_t>(got), most, /*alone=*/false);
}

[[gnu::hot]] size_t Multiplexer::tell_of_waiting(size_t end, size_t most, bool alone) {
  internal::FrameWalk walk({in_.get() + in_begin_, end - in_begin_});
  const size_t told = internal::tell_of_requests(
      walk, most, alone, [this](const FrameHeader& header, std::span<const std::byte> body) {
        TcpConnection* const connection = find(header.channel);
        if (connection != nullptr) connection->announce(header.immediate, body);
      });
  told_end_ = end - walk.rest().size();
  return told;
}

[[gnu::hot]] void Multiplexer::return_room() {
  if (in_begin_ < in_end_) return;
  in_begin_ = in_end_ = 0;
  set_.return_room(std::move(in_));
}

[[gnu::hot]] Multiplexer::Parsed Multiplexer::parse_one() {
  const size_t available = in_end_ - in_begin_;
  if (body_left_bytes_ > 0) {
    if (body_connection_ != nullptr) return Parsed::kNeedsMore;
    const size_t skipped = std::min<size_t>(available, body_left_bytes_);
    in_begin_ += skipped;
    body_left_bytes_ -= static_cast<uint32_t>(skipped);
    return body_left_bytes_ > 0 ? Parsed::kNeedsMore : Parsed::kFrame;
  }
  FrameHeader header;
  if (available < sizeof header) return Parsed::kNeedsMore;
  std::memcpy(&header, in_.get() + in_begin_, sizeof header);
  if (header.kind == FrameKind::kHandshake && header.bytes > internal::kMaxMessageBytes) {
    return protocol_error();
  }
  // A small body is taken when all of it is here.
  const bool whole =
      header.bytes <= internal::kWholeBodyBytes || header.kind == FrameKind::kHandshake;
  if (carries_body(header.kind) && whole && available < sizeof header + header.bytes) {
    return Parsed::kNeedsMore;
  }
  in_begin_ += sizeof header;
  return take_frame(header);
}

[[gnu::hot]] Multiplexer::Parsed Multiplexer::take_frame(const FrameHeader& header) {
  const bool known = header.kind >= FrameKind::kWrite && header.kind <= FrameKind::kHandshake;
  const uint32_t limit = dialed_ ? last_channel_ : last_channel_ + kMaxPendingChannels;
  if (!known || header.channel == 0 || header.channel > limit) return protocol_error();
  if (header.kind == FrameKind::kHandshake) return take_handshake(header);
  if (!dialed_ && is_new(header.channel)) {
    // A connection that was abandoned before its hello. No other frame may come first.
    return header.kind == FrameKind::kClosed ? Parsed::kFrame : protocol_error();
  }
  TcpConnection* connection = find(header.channel);
  if (carries_body(header.kind)) {
    DestructionWatch watch(lifetime_);
    const MemoryRegion* region = nullptr;
    std::byte* target = nullptr;
    if (connection != nullptr && !connection->take_body(header, target, region))
      connection = nullptr;
    if (watch.destroyed() || over_) return Parsed::kOver;
    return begin_body(header, connection, target, region);
  }
  if (connection == nullptr) return Parsed::kFrame;
  DestructionWatch watch(lifetime_);
  connection->take(header);
  return watch.destroyed() || over_ ? Parsed::kOver : Parsed::kFrame;
}

bool Multiplexer::is_new(uint32_t channel) {
  if (channel <= last_channel_) return pending_channels_.erase(channel) > 0;
  for (uint32_t skipped = last_channel_ + 1; skipped < channel; ++skipped) {
    pending_channels_.insert(skipped);
    if (pending_channels_.size() > kMaxPendingChannels)
      pending_channels_.erase(pending_channels_.begin());
  }
  last_channel_ = channel;
  return true;
}

Multiplexer::Parsed Multiplexer::take_handshake(const FrameHeader& header) {
  const std::byte* const begin = in_.get() + in_begin_;
  std::vector<std::byte> message(begin, begin + header.bytes);
  in_begin_ += header.bytes;
  if (!dialed_ && is_new(header.channel)) {
    if (listener_ == nullptr) {
      tell_closed(FrameKind::kClosed, header.channel);
      return Parsed::kFrame;
    }
    if (Status served = connections_.empty() ? set_.may_serve() : Status{}; !served) {
      refuse(header.channel, served.error());
      return Parsed::kFrame;
    }
    std::unique_ptr<TcpConnection> opened = listener_->accept(*this, header.channel);
    connections_.emplace(header.channel, opened.get());
    update_lists();
    DestructionWatch watch(lifetime_);
    listener_->adopt(std::move(opened), origin);
    if (watch.destroyed() || over_) return Parsed::kOver;
  }
  TcpConnection* const connection = find(header.channel);
  if (connection == nullptr) return Parsed::kFrame;
  DestructionWatch watch(lifetime_);
  connection->take_handshake(std::move(message));
  return watch.destroyed() || over_ ? Parsed::kOver : Parsed::kFrame;
}

[[gnu::hot]] Multiplexer::Parsed Multiplexer::begin_body(const FrameHeader& header,
                                                         TcpConnection* connection,
                                                         std::byte* target,
                                                         const MemoryRegion* region) {
  PMSTORE_CHECK(body_left_bytes_ == 0, "bodies are received one after the other");
  body_header_ = header;
  body_connection_ = connection;
  body_region_ = region;
  body_target_ = target;
  body_left_bytes_ = header.bytes;
  if (connection == nullptr) return Parsed::kFrame;  // skipped
  const size_t here = std::min<size_t>(header.bytes, in_end_ - in_begin_);
  // The CPU may read and write the target at the same time, as with an RNIC.
  if (here > 0) base::copy_bulk_to_shared(target, in_.get() + in_begin_, here);
  in_begin_ += here;
  body_target_ += here;
  body_left_bytes_ -= static_cast<uint32_t>(here);
  return body_left_bytes_ > 0 ? Parsed::kNeedsMore : finish_body();
}

// The whole body of body_header_ is in its target.
[[gnu::hot]] Multiplexer::Parsed Multiplexer::finish_body() {
  PMSTORE_CHECK(body_connection_ != nullptr && body_left_bytes_ == 0, "the body is complete");
  TcpConnection* const connection = std::exchange(body_connection_, nullptr);
  body_region_ = nullptr;
  DestructionWatch watch(lifetime_);
  connection->take(body_header_);
  return watch.destroyed() || over_ ? Parsed::kOver : Parsed::kFrame;
}

Multiplexer::Parsed Multiplexer::protocol_error() {
  break_all(make_error(ErrorCode::kProtocol, "the peer sent a frame that makes no sense"));
  return Parsed::kOver;
}

}  // namespace pmstore::fabric::tcp
