// The data path of FramedConnection: posting, serving. It does not allocate, throw, log or lock.
#include "base/check.h"
#include "fabric/internal/framed_connection.h"

namespace pmstore::fabric::internal {

namespace {

[[gnu::hot]] FrameHeader header_of(const WorkRequest& request, bool answered) {
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

}  // namespace

[[gnu::hot]] Status FramedConnection::post(const Batch& batch, Completion* completion) {
  if (closed() || post_error_) [[unlikely]] {
    return make_error(ErrorCode::kDisconnected, broken_ ? why_broken_.message : std::string());
  }
  PMSTORE_TRY_STATUS(check(batch));
  const size_t last = batch.size() - 1;
  uint32_t answers = completion != nullptr && is_write(batch[last]) ? 1 : 0;
  for (const WorkRequest& request : batch) answers += is_write(request) ? 0 : 1;
  if (sender_->requests() + batch.size() > FrameSender::kMaxRequests) send_frames();
  if (sender_->requests() + batch.size() > FrameSender::kMaxRequests ||
      unanswered() + answers > kMaxUnanswered) {
    return make_error(ErrorCode::kBackPressure);
  }
  ++counters_.doorbells;
  if (completion != nullptr) completion->arm();
  for (size_t i = 0; i <= last; ++i) {
    const WorkRequest& request = batch[i];
    count(request);
    moved_bytes_ += request.bytes;
    Completion* const own = i == last ? completion : nullptr;
    const bool read = !is_write(request);
    sender_->push_request(header_of(request, own != nullptr), read ? nullptr : request.local,
                          read ? 0 : request.bytes);
    if (read || own != nullptr) {
      expected_.push_back({read ? request.local : nullptr, read ? request.bytes : 0, own, 0});
    }
  }
  frames_wait();
  return {};
}

[[gnu::hot]] bool FramedConnection::take_body(const FrameHeader& header, std::byte*& target,
                                              const MemoryRegion*& region) {
  if (post_error_) return false;
  if (!established_ && !accepted_) {
    fail_protocol("the peer sent a frame before its handshake was over");
    return false;
  }
  if (header.kind == FrameKind::kReadData) {
    // A large READ is answered in pieces.
    if (!is_asked() || expected_[0].target == nullptr || header.bytes == 0 ||
        header.bytes > expected_[0].bytes) {
      fail_protocol("the peer answered what it was not asked");
      return false;
    }
    target = expected_[0].target;
    attend();
    return true;
  }
  if (header.bytes == 0 && header.kind == FrameKind::kWriteImmediate) return true;
  const FramedRegion* const found = framed_.find(header.key);
  target =
      found == nullptr ? nullptr : found->grant(header.address, header.bytes, Access::kRemoteWrite);
  if (target == nullptr || header.bytes == 0) [[unlikely]] {
    refuse("the peer wrote where it was not granted");
    return false;
  }
  region = found;
  moved_bytes_ += header.bytes;
  attend();
  return true;
}

[[gnu::hot]] void FramedConnection::take(const FrameHeader& header) {
  if (post_error_) return;
  switch (header.kind) {
    case FrameKind::kReadData:
      expected_[0].target += header.bytes;
      expected_[0].bytes -= header.bytes;
      if (expected_[0].bytes == 0) finish_first_expected();
      return;
    case FrameKind::kWrite:
    case FrameKind::kWriteImmediate:
      if ((header.flags & kAnswerWhenDone) != 0) {
        if (!may_answer()) return;
        sender_->push_done();
        frames_wait();
      }
      if (header.kind == FrameKind::kWriteImmediate) handle_immediate(header.immediate);
      return;
    case FrameKind::kRead: return serve_read(header);
    case FrameKind::kDone: return take_done(header.bytes);
    case FrameKind::kRefused:
    case FrameKind::kClosed:
      peer_closed_ = true;
      return fail(header.kind == FrameKind::kClosed
                      ? make_error(ErrorCode::kDisconnected, "the peer closed the connection")
                      : make_error(ErrorCode::kAccess, "the target refused a remote access"));
    case FrameKind::kHandshake: return;
  }
}

[[gnu::hot]] bool FramedConnection::may_answer() {
  if (!established_ && !accepted_) [[unlikely]] {
    fail_protocol("the peer sent a frame before its handshake was over");
    return false;
  }
  if (sender_->answers() == kMaxUnanswered) [[unlikely]] {
    fail_protocol("the peer asks for more than it may at a time");
    return false;
  }
  return true;
}

void FramedConnection::serve_read(const FrameHeader& header) {
  if (!may_answer()) return;
  const FramedRegion* const region = framed_.find(header.key);
  const std::byte* const source =
      region == nullptr || header.bytes == 0
          ? nullptr
          : region->grant(header.address, header.bytes, Access::kRemoteRead);
  if (source == nullptr) [[unlikely]] {
    return refuse("the peer read where it was not granted");
  }
  if (answer_inline(source, header.bytes)) return;
  sender_->push_read_answer(source, header.bytes, *region);
  frames_wait();
}

[[gnu::hot]] void FramedConnection::take_done(uint32_t count) {
  DestructionWatch watch(lifetime_);
  for (; count > 0; --count) {
    if (post_error_) return;
    if (!is_asked() || expected_[0].target != nullptr) {
      return fail_protocol("the peer answered what it was not asked");
    }
    finish_first_expected();
    if (watch.destroyed() || closed()) return;
  }
}

[[gnu::hot]] void FramedConnection::finish_first_expected() {
  PMSTORE_CHECK(!expected_.empty(), "an answer belongs to a request");
  Completion* const completion = expected_[0].completion;
  expected_.pop_front();
  if (completion == nullptr) return;
  ++counters_.completions;
  completion->finish(true);
}

void FramedConnection::refuse(const std::string& why) {
  last_ = FrameKind::kRefused;
  fail(make_error(ErrorCode::kAccess, why));
}

void FramedConnection::fail_protocol(const std::string& why) {
  fail(make_error(ErrorCode::kProtocol, why));
}

}  // namespace pmstore::fabric::internal
