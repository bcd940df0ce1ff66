// The data path of Wire: sending, receiving. It does not throw, log or lock, and allocates for
// handshakes only.
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/atomic_copy.h"
#include "fabric/internal/handshake.h"
#include "fabric/tcp/internal/tcp_connection.h"
#include "fabric/tcp/internal/tcp_listener.h"
#include "fabric/tcp/internal/wire.h"
#include "fabric/tcp/internal/wire_set.h"

namespace pmstore::fabric::tcp {

using internal::DestructionWatch;

namespace {

bool carries_body(FrameKind kind) {
  return kind == FrameKind::kWrite || kind == FrameKind::kWriteImmediate ||
         kind == FrameKind::kReadData || kind == FrameKind::kHandshake;
}

}  // namespace

void Wire::mark_ready(FrameSender& sender) {
  if (!sender.listed) {
    sender.listed = true;
    ready_.push_back(&sender);
  }
  if (dirty) return;
  dirty = true;
  set_.add_dirty(*this);
}

void Wire::unlist(FrameSender& sender) {
  sender.listed = false;
  std::erase(ready_, &sender);
  if (leftover_.get() == &sender) leftover_.reset();
}

bool Wire::flush() {
  if (mute_) return true;
  for (int sends = 0; connected_ && !over_ && !ready_.empty(); ++sends) {
    if (sends == kMaxSends) return false;
    pieces_.clear();
    size_t wanted = 0;
    size_t asked = 0;
    for (; asked < ready_.size() && pieces_.size() + 2 <= kMaxPieces; ++asked) {
      wanted += ready_[asked]->gather(pieces_, kMaxPieces);
    }
    msghdr message{};
    message.msg_iov = pieces_.data();
    message.msg_iovlen = pieces_.size();
    const ssize_t sent = sendmsg(socket_.fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      const bool passes = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS ||
                          errno == ENOMEM || errno == EPERM;
      if (passes) return false;
      // What had arrived is still taken: it may say why.
      hang_up();
      return true;
    }
    sent_bytes_ += static_cast<size_t>(sent);
    count_sent(static_cast<size_t>(sent), asked);
    if (static_cast<size_t>(sent) < wanted) return false;
  }
  return ready_.empty();
}

// Of the first `asked` of ready_, in order.
void Wire::count_sent(size_t sent, size_t asked) {
  const FrameSender* const front = ready_.front();
  for (size_t i = 0; i < asked && sent > 0; ++i) {
    const size_t own = std::min(sent, ready_[i]->gathered());
    ready_[i]->count_sent(own);
    sent -= own;
  }
  for (size_t i = asked; i-- > 0;) {
    if (ready_[i]->empty()) unlist(*ready_[i]);
  }
  // Who has more waits for the others, unless it is in the middle of a frame.
  if (ready_.size() > 1 && ready_.front() == front && !front->mid_frame()) {
    std::rotate(ready_.begin(), ready_.begin() + 1, ready_.end());
  }
}

size_t Wire::receive() {
  size_t handled = 0;
  for (int reads = 0; reads < kMaxReads; ++reads) {
    if (in_begin_ > 0) {
      std::memmove(in_.get(), in_.get() + in_begin_, in_end_ - in_begin_);
      in_end_ -= in_begin_;
      in_begin_ = 0;
    }
    const size_t place = place_for_ != nullptr ? place_left_ : 0;
    const iovec pieces[2] = {{place_to_, place}, {in_.get() + in_end_, kInBytes - in_end_}};
    const ssize_t got = place > 0 ? readv(socket_.fd(), pieces, 2)
                                  : recv(socket_.fd(), pieces[1].iov_base, pieces[1].iov_len, 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return handled;
    ++handled;
    if (got <= 0) [[unlikely]] {
      break_all(make_error(ErrorCode::kDisconnected,
                           got == 0 ? "the peer closed the connection or died"
                                    : std::string("the connection broke: ") + strerror(errno)));
      return handled;
    }
    const bool all = static_cast<size_t>(got) < pieces[1].iov_len + place;
    if (!take_received(static_cast<size_t>(got)) || all) return handled;
  }
  return handled;
}

// False: the wire is over or gone.
bool Wire::take_received(size_t bytes) {
  if (place_for_ != nullptr && place_left_ > 0) {
    const size_t placed = std::min<size_t>(bytes, place_left_);
    place_to_ += placed;
    place_left_ -= static_cast<uint32_t>(placed);
    in_end_ += bytes - placed;
    if (place_left_ == 0 && finish_body() == Parsed::kOver) return false;
  } else {
    in_end_ += bytes;
  }
  for (;;) {
    switch (parse_one()) {
      case Parsed::kFrame: break;
      case Parsed::kNeedsMore: return true;
      case Parsed::kOver: return false;
    }
  }
}

Wire::Parsed Wire::parse_one() {
  const size_t available = in_end_ - in_begin_;
  if (place_left_ > 0) {
    if (place_for_ != nullptr) return Parsed::kNeedsMore;
    const size_t skipped = std::min<size_t>(available, place_left_);
    in_begin_ += skipped;
    place_left_ -= static_cast<uint32_t>(skipped);
    return place_left_ > 0 ? Parsed::kNeedsMore : Parsed::kFrame;
  }
  FrameHeader header;
  if (available < sizeof header) return Parsed::kNeedsMore;
  std::memcpy(&header, in_.get() + in_begin_, sizeof header);
  if (header.kind == FrameKind::kHandshake && header.bytes > internal::kMaxMessageBytes) {
    return protocol_error();
  }
  // A small body is taken when all of it is here.
  const bool whole = header.bytes <= kPlaceWholeBytes || header.kind == FrameKind::kHandshake;
  if (carries_body(header.kind) && whole && available < sizeof header + header.bytes) {
    return Parsed::kNeedsMore;
  }
  in_begin_ += sizeof header;
  return take_frame(header);
}

Wire::Parsed Wire::take_frame(const FrameHeader& header) {
  const bool known = header.kind >= FrameKind::kWrite && header.kind <= FrameKind::kHandshake;
  const uint32_t limit = dialed_ ? last_channel_ : last_channel_ + kMaxUnheard;
  if (!known || header.channel == 0 || header.channel > limit) return protocol_error();
  if (header.kind == FrameKind::kHandshake) return take_handshake(header);
  if (!dialed_ && is_new(header.channel)) {
    // Given up before it said anything; nothing else may come first.
    return header.kind == FrameKind::kClosed ? Parsed::kFrame : protocol_error();
  }
  TcpConnection* connection = find(header.channel);
  if (carries_body(header.kind)) {
    DestructionWatch watch(lifetime_);
    const MemoryRegion* region = nullptr;
    std::byte* to = nullptr;
    if (connection != nullptr && !connection->take_body(header, to, region)) connection = nullptr;
    if (watch.destroyed() || over_) return Parsed::kOver;
    return begin_body(header, connection, to, region);
  }
  if (connection == nullptr) return Parsed::kFrame;
  DestructionWatch watch(lifetime_);
  connection->take(header);
  return watch.destroyed() || over_ ? Parsed::kOver : Parsed::kFrame;
}

bool Wire::is_new(uint32_t channel) {
  if (channel <= last_channel_) return unheard_.erase(channel) > 0;
  for (uint32_t skipped = last_channel_ + 1; skipped < channel; ++skipped) {
    unheard_.insert(skipped);
    if (unheard_.size() > kMaxUnheard) unheard_.erase(unheard_.begin());
  }
  last_channel_ = channel;
  return true;
}

Wire::Parsed Wire::take_handshake(const FrameHeader& header) {
  const std::byte* const begin = in_.get() + in_begin_;
  std::vector<std::byte> message(begin, begin + header.bytes);
  in_begin_ += header.bytes;
  if (!dialed_ && is_new(header.channel)) {
    std::unique_ptr<TcpConnection> opened =
        listener_ == nullptr ? nullptr : listener_->accept(*this, header.channel);
    if (opened == nullptr) {
      tell_closed(FrameKind::kClosed, header.channel);
      return Parsed::kFrame;
    }
    connections_.emplace(header.channel, opened.get());
    listener_->adopt(std::move(opened));
  }
  TcpConnection* const connection = find(header.channel);
  if (connection == nullptr) return Parsed::kFrame;
  DestructionWatch watch(lifetime_);
  connection->take_handshake(std::move(message));
  return watch.destroyed() || over_ ? Parsed::kOver : Parsed::kFrame;
}

Wire::Parsed Wire::begin_body(const FrameHeader& header, TcpConnection* connection, std::byte* to,
                              const MemoryRegion* region) {
  placing_ = header;
  place_for_ = connection;
  place_region_ = region;
  place_to_ = to;
  place_left_ = header.bytes;
  if (connection == nullptr) return Parsed::kFrame;  // skipped
  const size_t here = std::min<size_t>(header.bytes, in_end_ - in_begin_);
  // Others of this process may read and write it at the same time, as beside an RNIC.
  if (here > 0) base::copy_to_shared(to, in_.get() + in_begin_, here);
  in_begin_ += here;
  place_to_ += here;
  place_left_ -= static_cast<uint32_t>(here);
  return place_left_ > 0 ? Parsed::kNeedsMore : finish_body();
}

// All of placing_ is where it belongs.
Wire::Parsed Wire::finish_body() {
  TcpConnection* const connection = std::exchange(place_for_, nullptr);
  place_region_ = nullptr;
  DestructionWatch watch(lifetime_);
  connection->take(placing_);
  return watch.destroyed() || over_ ? Parsed::kOver : Parsed::kFrame;
}

Wire::Parsed Wire::protocol_error() {
  break_all(make_error(ErrorCode::kProtocol, "the peer sent a frame that makes no sense"));
  return Parsed::kOver;
}

}  // namespace pmstore::fabric::tcp
