// The data path of ShmConnection: sending, receiving. It does not allocate, throw, log or lock.
#include <algorithm>

#include "base/atomic_copy.h"
#include "base/bulk_copy.h"
#include "base/check.h"
#include "fabric/internal/frame_walk.h"
#include "fabric/shm/internal/shm_connection.h"
#include "fabric/shm/internal/shm_device.h"

namespace pmstore::fabric::shm {

using internal::carries_body;
using internal::DestructionWatch;
using internal::FrameHeader;
using internal::FrameKind;
using internal::FrameSender;

namespace {

// A WRITE as large as this is data that no CPU here reads soon. With an immediate it is a message.
constexpr uint32_t kStreamedBytes = 128 * 1024;

bool is_streamed(const FrameHeader& header) {
  return header.kind == FrameKind::kWrite && header.bytes >= kStreamedBytes;
}

}  // namespace

[[gnu::hot]] size_t ShmConnection::poll() {
  PMSTORE_CHECK(!armed_, "a sleeper's words are cleared before it looks: the peer would ring");
  if (!segment_ || post_error_) return 0;
  if (has_to_send()) send_frames();
  if (!reader_.has_news()) return 0;
  quiet_polls = 0;
  DestructionWatch watch(lifetime_);
  const size_t handled = receive();
  if (!watch.destroyed() && segment_ && has_to_send()) send_frames();
  return handled;
}

[[gnu::hot]] bool ShmConnection::may_have_requests() const {
  if (dialed_ || !segment_ || body_left_bytes_ > 0) return false;
  const std::span<const std::byte> ahead = reader_.ahead();
  if (ahead.empty()) return false;
  constexpr size_t kLineBytes = 64;
  __builtin_prefetch(ahead.data());
  __builtin_prefetch(ahead.data() + kLineBytes);
  return true;
}

[[gnu::hot]] size_t ShmConnection::tell_of_waiting(size_t most, bool alone) {
  const std::span<const std::byte> ahead = reader_.ahead();
  internal::FrameWalk walk(ahead);
  const size_t told = internal::tell_of_requests(
      walk, most, alone, [this](const FrameHeader& header, std::span<const std::byte> body) {
        announce_immediate(header.immediate, body);
      });
  told_through_ = reader_.consumed() + (ahead.size() - walk.rest().size());
  return told;
}

[[gnu::hot]] void ShmConnection::frames_are_ready() { shm_.wake(*this); }

[[gnu::hot]] void ShmConnection::wake_peer(base::SleepFlag& flag) {
  if (!flag.claim()) return;
  segment_->ring_peer();
  shm_.count_ring();
}

[[gnu::hot]] void ShmConnection::send_frames() {
  if (!segment_ || post_error_) return;
  if (!fill_ring()) [[unlikely]] {
    post_error_ = make_error(ErrorCode::kProtocol, "the peer has read what was not written");
    attend();
    tick_soon();
    return;
  }
  if (writer_.written() == woken_for_) return;
  PMSTORE_CHECK(woken_for_ < writer_.written(), "the peer is not woken for more than there is");
  woken_for_ = writer_.written();
  writer_.publish();
  wake_peer(writer_.state().reader_sleeps);
}

[[gnu::hot]] bool ShmConnection::answer_inline(const std::byte* source, uint32_t bytes) {
  FrameHeader header{};
  header.kind = FrameKind::kReadData;
  header.bytes = bytes;
  const size_t whole = sizeof header + bytes;
  // A larger one would not be copied at one moment.
  if (!sender_->empty() || bytes > FrameSender::kMaxPieceBytes) return false;
  if (writer_.room() < whole && (!writer_.look() || writer_.room() < whole)) return false;
  writer_.append(&header, sizeof header);
  for (size_t left = bytes; left > 0;) {
    size_t piece = std::min(left, kPublishBytes);
    // Between two words, so that each is seen old or new.
    if (piece < left) piece -= (reinterpret_cast<uintptr_t>(source) + piece) % sizeof(uint64_t);
    writer_.append_shared(source, piece);
    source += piece;
    left -= piece;
    if (writer_.unpublished() >= kPublishBytes) writer_.publish();
  }
  return true;
}

[[gnu::hot]] bool ShmConnection::fill_ring() {
  // A ring's worth in a turn: a peer that takes as fast as this end writes does not delay others.
  for (size_t moved = 0; !sender_->empty() && moved < kRingBytes;) {
    if (writer_.room() == 0 && !writer_.has_news()) return true;
    pieces_.clear();
    const size_t wanted = sender_->gather(pieces_, kMaxPieces);
    if (writer_.room() < wanted && !writer_.look()) return false;
    size_t appended = 0;
    for (const iovec& piece : pieces_) {
      const auto* from = static_cast<const std::byte*>(piece.iov_base);
      for (size_t left = piece.iov_len; left > 0 && writer_.room() > 0;) {
        const size_t bytes = writer_.append(from, std::min(left, kPublishBytes));
        from += bytes;
        left -= bytes;
        appended += bytes;
        // So that the peer can begin.
        if (writer_.unpublished() >= kPublishBytes) writer_.publish();
      }
    }
    sender_->count_sent(appended);
    moved += appended;
    if (appended < wanted) return true;
  }
  return true;
}

[[gnu::hot]] size_t ShmConnection::receive() {
  if (post_error_) return 0;
  // Before the look, which then finds all that was written before the end.
  const RingEnd end = reader_.end();
  if (!reader_.look()) [[unlikely]] {
    fail_protocol("the peer has written more than there is room for");
    return 1;
  }
  const uint64_t before = reader_.consumed();
  size_t handled = 0;
  DestructionWatch watch(lifetime_);
  while (take_next()) {
    ++handled;
    if (watch.destroyed() || closed() || post_error_) return handled;
  }
  if (reader_.consumed() != before) {
    handled = std::max<size_t>(handled, 1);
    reader_.publish();
    wake_peer(reader_.state().writer_sleeps);
  }
  if (end == RingEnd::kOpen) return handled;
  fail_ended(end);
  return handled + 1;
}

[[gnu::hot]] bool ShmConnection::take_next() {
  const bool told = dialed_ || reader_.consumed() < told_through_ || reader_.available() == 0;
  if (!told && body_left_bytes_ == 0) tell_of_waiting(kToldTogether, /*alone=*/true);
  return take_one();
}

[[gnu::hot]] bool ShmConnection::take_one() {
  FrameHeader header;
  if (body_left_bytes_ > 0) {
    header = body_header_;
  } else {
    if (reader_.available() < sizeof header) return false;
    base::copy_from_shared(&header, reader_.front(), sizeof header);
    if (header.kind < FrameKind::kWrite || header.kind > FrameKind::kDone) [[unlikely]] {
      fail_protocol("the peer sent a frame that makes no sense");
      return true;
    }
    const bool body = carries_body(header.kind);
    // A small body is taken when all of it is here.
    if (body && header.bytes <= internal::kWholeBodyBytes &&
        reader_.available() < sizeof header + header.bytes) {
      return false;
    }
    reader_.consume(sizeof header);
    if (body) {
      std::byte* target = nullptr;
      const MemoryRegion* region = nullptr;
      if (!take_body(header, target, region)) return true;
      body_header_ = header;
      body_target_ = target;
      body_region_ = region;
      body_left_bytes_ = header.bytes;
    }
  }
  take_body_bytes();
  if (body_left_bytes_ > 0) return false;
  take(header);
  return true;
}

[[gnu::hot]] void ShmConnection::take_body_bytes() {
  PMSTORE_CHECK(body_left_bytes_ == 0 || body_target_ != nullptr, "a body has a target");
  while (body_left_bytes_ > 0 && reader_.available() > 0) {
    size_t bytes = std::min({size_t{body_left_bytes_}, reader_.available(), kPublishBytes});
    // Between two words of the target, so that each is seen old or new; the rest comes with more.
    if (bytes < body_left_bytes_) {
      const size_t behind = (reinterpret_cast<uintptr_t>(body_target_) + bytes) % sizeof(uint64_t);
      if (behind >= bytes) return;
      bytes -= behind;
    }
    // The CPU may read and write the target at the same time, as with an RNIC.
    if (is_streamed(body_header_)) {
      base::copy_bulk_past_caches(body_target_, reader_.front(), bytes);
    } else {
      base::copy_bulk_to_shared(body_target_, reader_.front(), bytes);
    }
    reader_.consume(bytes);
    body_target_ += bytes;
    body_left_bytes_ -= static_cast<uint32_t>(bytes);
    // So that the peer can go on.
    if (reader_.unpublished() >= kPublishBytes) reader_.publish();
  }
}

}  // namespace pmstore::fabric::shm
