// The data path of TcpConnection: posting, sending, serving. It does not allocate, throw, log or
// lock.
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/atomic_copy.h"
#include "fabric/tcp/internal/tcp_connection.h"
#include "fabric/tcp/internal/tcp_device.h"

namespace pmstore::fabric::tcp {

using internal::DestructionWatch;
using internal::is_write;

namespace {

FrameHeader header_of(const WorkRequest& request, bool answered) {
  FrameHeader header{};
  header.kind = request.op == OpCode::kRead             ? FrameKind::kRead
                : request.op == OpCode::kWriteImmediate ? FrameKind::kWriteImmediate
                                                        : FrameKind::kWrite;
  header.flags = answered && is_write(request) ? kAnswerWhenDone : 0;
  header.bytes = request.bytes;
  header.address = request.remote_address;
  header.key = request.remote_key;
  header.immediate = request.immediate;
  return header;
}

bool carries_body(FrameKind kind) {
  return kind == FrameKind::kWrite || kind == FrameKind::kWriteImmediate ||
         kind == FrameKind::kReadData;
}

}  // namespace

Status TcpConnection::post(const Batch& batch, Completion* completion) {
  if (closed() || post_error_) [[unlikely]] {
    return make_error(ErrorCode::kDisconnected, broken_ ? why_broken_.message : std::string());
  }
  PMSTORE_TRY_STATUS(check(batch));
  const size_t last = batch.size() - 1;
  uint32_t answers = completion != nullptr && is_write(batch[last]) ? 1 : 0;
  for (const WorkRequest& request : batch) answers += is_write(request) ? 0 : 1;
  if (sender_.requests() + batch.size() > FrameSender::kMaxRequests) flush();
  if (sender_.requests() + batch.size() > FrameSender::kMaxRequests ||
      unanswered_ + answers > kMaxUnanswered) {
    return make_error(ErrorCode::kBackPressure);
  }
  ++counters_.doorbells;
  if (completion != nullptr) completion->arm();
  for (size_t i = 0; i <= last; ++i) {
    const WorkRequest& request = batch[i];
    count(request);
    Completion* const own = i == last ? completion : nullptr;
    const bool read = !is_write(request);
    sender_.push_request(header_of(request, own != nullptr), read ? nullptr : request.local,
                         read ? 0 : request.bytes);
    if (read || own != nullptr) {
      expect({read ? request.local : nullptr, read ? request.bytes : 0, own, 0});
    }
  }
  mark_dirty();
  return {};
}

void TcpConnection::expect(const Expected& entry) {
  expected(unanswered_) = entry;
  ++unanswered_;
}

void TcpConnection::mark_dirty() {
  if (dirty_) return;
  dirty_ = true;
  tcp_.add_dirty(*this);
}

void TcpConnection::flush() {
  if (closed() || post_error_ || !connected_) return;
  if (const int code = sender_.flush(socket_.fd()); code != 0) [[unlikely]] {
    // What had arrived is still taken: it may say why. Then reading finds the end of the stream.
    sender_.clear();
  }
}

bool TcpConnection::flush_dirty() {
  flush();
  dirty_ = !sender_.empty();
  return !dirty_;
}

size_t TcpConnection::poll() {
  if (closed() || !connected_) return 0;
  if (post_error_) [[unlikely]] {
    fail(*post_error_);
    return 1;
  }
  return receive();
}

size_t TcpConnection::receive() {
  DestructionWatch watch(lifetime_);
  size_t handled = 0;
  for (int reads = 0; reads < kMaxReads; ++reads) {
    if (in_begin_ > 0) {
      std::memmove(in_.get(), in_.get() + in_begin_, in_end_ - in_begin_);
      in_end_ -= in_begin_;
      in_begin_ = 0;
    }
    const iovec pieces[2] = {{place_to_, place_left_}, {in_.get() + in_end_, kInBytes - in_end_}};
    const ssize_t got = place_left_ > 0
                            ? readv(socket_.fd(), pieces, 2)
                            : recv(socket_.fd(), pieces[1].iov_base, pieces[1].iov_len, 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return handled;
    if (got <= 0) [[unlikely]] {
      fail(make_error(ErrorCode::kDisconnected,
                      got == 0 ? "the peer closed the connection or died"
                               : std::string("the connection broke: ") + strerror(errno)));
      return handled + 1;
    }
    ++handled;
    const size_t room = pieces[1].iov_len + place_left_;
    if (!take_received(static_cast<size_t>(got))) return handled;
    if (static_cast<size_t>(got) < room) return handled;
  }
  return handled;
}

// False: the connection is broken or gone.
bool TcpConnection::take_received(size_t bytes) {
  DestructionWatch watch(lifetime_);
  const size_t placed = std::min<size_t>(bytes, place_left_);
  if (place_left_ > 0) {
    place_to_ += placed;
    place_left_ -= static_cast<uint32_t>(placed);
    if (place_left_ == 0 && finish_frame() == Parsed::kBroken) return false;
  }
  in_end_ += bytes - placed;
  for (;;) {
    switch (parse_one()) {
      case Parsed::kFrame: break;
      case Parsed::kNeedsMore: return true;
      case Parsed::kBroken: return false;
    }
  }
}

TcpConnection::Parsed TcpConnection::parse_one() {
  if (closed() || post_error_) return Parsed::kBroken;
  const size_t available = in_end_ - in_begin_;
  uint32_t first_word = 0;
  if (place_left_ > 0 || available < sizeof first_word) return Parsed::kNeedsMore;
  std::memcpy(&first_word, in_.get() + in_begin_, sizeof first_word);
  if (!(established_ || accepted_) || first_word == internal::kHandshakeMagic) [[unlikely]] {
    return parse_control();
  }
  if (available < sizeof(FrameHeader)) return Parsed::kNeedsMore;
  FrameHeader header;
  std::memcpy(&header, in_.get() + in_begin_, sizeof header);
  // A small body is taken when all of it is here.
  if (carries_body(header.kind) && header.bytes <= kPlaceWholeBytes &&
      available < sizeof header + header.bytes) {
    return Parsed::kNeedsMore;
  }
  in_begin_ += sizeof header;
  return begin_frame(header);
}

TcpConnection::Parsed TcpConnection::parse_control() {
  const std::byte* const begin = in_.get() + in_begin_;
  const size_t available = in_end_ - in_begin_;
  internal::HandshakeHeader header{};
  std::memcpy(&header, begin, std::min(available, sizeof header));
  size_t bytes = available;  // of a stranger: whatever it is, decode() says so
  if (header.magic == internal::kHandshakeMagic) {
    if (available < sizeof header) return Parsed::kNeedsMore;
    const size_t body = size_t{header.endpoint_bytes} + header.body_bytes;
    // Of another version, or malformed: the header says that.
    const bool fits = header.version == internal::kHandshakeVersion &&
                      header.endpoint_bytes <= internal::kMaxEndpointBytes &&
                      header.body_bytes <= internal::kMaxBodyBytes;
    if (fits && available < sizeof header + body) return Parsed::kNeedsMore;
    bytes = fits ? sizeof header + body : available;
  }
  in_begin_ += bytes;
  DestructionWatch watch(lifetime_);
  receive_control({begin, begin + bytes});
  return watch.destroyed() || closed() ? Parsed::kBroken : Parsed::kFrame;
}

TcpConnection::Parsed TcpConnection::begin_frame(const FrameHeader& header) {
  switch (header.kind) {
    case FrameKind::kWrite:
    case FrameKind::kWriteImmediate: {
      if (header.bytes == 0 && header.kind == FrameKind::kWriteImmediate) {
        return begin_body(header, nullptr, nullptr);
      }
      const TcpRegion* region = tcp_.find(header.key);
      std::byte* const to = region == nullptr
                                ? nullptr
                                : region->grant(header.address, header.bytes, Access::kRemoteWrite);
      if (to == nullptr) [[unlikely]] {
        return refuse("the peer wrote where it was not granted");
      }
      return begin_body(header, to, region);
    }
    case FrameKind::kRead: return serve_read(header);
    case FrameKind::kReadData: {
      const bool fits =
          unanswered_ > 0 && expected(0).to != nullptr && expected(0).bytes == header.bytes;
      if (!fits) break;
      return begin_body(header, expected(0).to, nullptr);
    }
    case FrameKind::kDone: return take_done(header.bytes);
    case FrameKind::kRefused:
      return broken_by(make_error(ErrorCode::kAccess, "the target refused a remote access"));
  }
  return broken_by(make_error(ErrorCode::kProtocol, "the peer sent a frame that makes no sense"));
}

TcpConnection::Parsed TcpConnection::begin_body(const FrameHeader& header, std::byte* to,
                                                const MemoryRegion* region) {
  const uint32_t here = static_cast<uint32_t>(std::min<size_t>(header.bytes, in_end_ - in_begin_));
  // Others of this process may read and write it at the same time, as beside an RNIC.
  if (here > 0) base::copy_to_shared(to, in_.get() + in_begin_, here);
  in_begin_ += here;
  placing_ = header;
  place_to_ = to + here;
  place_left_ = header.bytes - here;
  place_region_ = region;
  return place_left_ > 0 ? Parsed::kNeedsMore : finish_frame();
}

// All of placing_ is where it belongs.
TcpConnection::Parsed TcpConnection::finish_frame() {
  place_region_ = nullptr;
  if (placing_.kind == FrameKind::kReadData) {
    return finish_first_expected() ? Parsed::kFrame : Parsed::kBroken;
  }
  if ((placing_.flags & kAnswerWhenDone) != 0 && !answer_done()) return Parsed::kBroken;
  if (placing_.kind == FrameKind::kWrite) return Parsed::kFrame;
  DestructionWatch watch(lifetime_);
  handle_immediate(placing_.immediate);
  return watch.destroyed() || closed() ? Parsed::kBroken : Parsed::kFrame;
}

bool TcpConnection::answer_done() {
  if (sender_.answers() == kMaxUnanswered) {
    broken_by(make_error(ErrorCode::kProtocol, "the peer asks for more than it may at a time"));
    return false;
  }
  sender_.push_done();
  mark_dirty();
  return true;
}

TcpConnection::Parsed TcpConnection::serve_read(const FrameHeader& header) {
  const TcpRegion* region = tcp_.find(header.key);
  const std::byte* const from =
      region == nullptr || header.bytes == 0
          ? nullptr
          : region->grant(header.address, header.bytes, Access::kRemoteRead);
  if (from == nullptr) [[unlikely]] {
    return refuse("the peer read where it was not granted");
  }
  if (sender_.answers() == kMaxUnanswered) [[unlikely]] {
    return broken_by(
        make_error(ErrorCode::kProtocol, "the peer asks for more than it may at a time"));
  }
  FrameHeader answer{};
  answer.kind = FrameKind::kReadData;
  answer.bytes = header.bytes;
  sender_.push_answer(answer, from, header.bytes, region);
  mark_dirty();
  return Parsed::kFrame;
}

TcpConnection::Parsed TcpConnection::take_done(uint32_t count) {
  for (; count > 0; --count) {
    if (unanswered_ == 0 || expected(0).to != nullptr) {
      return broken_by(make_error(ErrorCode::kProtocol, "the peer answered what it was not asked"));
    }
    if (!finish_first_expected()) return Parsed::kBroken;
  }
  return Parsed::kFrame;
}

// False: the connection is broken or gone.
bool TcpConnection::finish_first_expected() {
  Completion* const completion = expected(0).completion;
  expected_head_ = (expected_head_ + 1) % kMaxUnanswered;
  --unanswered_;
  if (completion == nullptr) return true;
  ++counters_.completions;
  DestructionWatch watch(lifetime_);
  completion->finish(true);
  return !watch.destroyed() && !closed();
}

TcpConnection::Parsed TcpConnection::refuse(const std::string& why) {
  // Whoever asked learns why, unless it does not even take that.
  FrameHeader header{};
  header.kind = FrameKind::kRefused;
  if (sender_.answers() < kMaxUnanswered) sender_.push_answer(header, nullptr, 0, nullptr);
  flush();
  return broken_by(make_error(ErrorCode::kAccess, why));
}

TcpConnection::Parsed TcpConnection::broken_by(const Error& why) {
  fail(why);
  return Parsed::kBroken;
}

}  // namespace pmstore::fabric::tcp
