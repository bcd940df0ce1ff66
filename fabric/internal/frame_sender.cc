#include "fabric/internal/frame_sender.h"

#include <algorithm>
#include <utility>

#include "base/bulk_copy.h"
#include "base/check.h"
#include "fabric/internal/page_memory.h"

namespace pmstore::fabric::internal {

namespace {

// About a page.
constexpr uint32_t kPageBytes = 4096;

}  // namespace

FrameSender::FrameSender(uint32_t channel) : channel_(channel) {}

[[gnu::hot]] FrameSender::Entry& FrameSender::push(const FrameHeader& header, const std::byte* body,
                                                   uint32_t body_bytes, What what) {
  PMSTORE_CHECK(size() < kCapacity, "requests and answers are counted before they are pushed");
  if (copied_ == size()) ++copied_;
  Entry& entry = entries_.push_back(Entry{header, body_bytes, what, body, nullptr, 0, 0, nullptr});
  entry.header.channel = channel_;
  return entry;
}

[[gnu::hot]] void FrameSender::push_request(const FrameHeader& header, const std::byte* body,
                                            uint32_t body_bytes) {
  const Entry& entry = push(header, body, body_bytes, What::kRequest);
  ++requests_;
  if (is_question(entry)) ++unsent_questions_;
}

void FrameSender::push_read_answer(const std::byte* source, uint32_t bytes,
                                   const MemoryRegion& region) {
  FrameHeader header{};
  header.kind = FrameKind::kReadData;
  Entry& entry = push(header, nullptr, 0, What::kAnswer);
  ++answers_;
  entry.source = source;
  entry.source_bytes = bytes;
  entry.region = &region;
  copied_ = std::min(copied_, size() - 1);
  copy_answers();
}

[[gnu::hot]] void FrameSender::copy_answers() {
  for (; copied_ < size(); ++copied_) {
    Entry& entry = entries_[copied_];
    // The piece before must have left; and what remains waits for that of this one.
    if (entry.source_bytes > 0 && (entry.body_bytes > 0 || !copy_piece(entry))) return;
    if (entry.source_bytes > 0) return;
  }
}

bool FrameSender::copy_piece(Entry& answer) {
  uint32_t bytes = std::min(answer.source_bytes, kMaxPieceBytes);
  // Other frames may be sent between two pieces, so a piece ends at the end of a line.
  if (bytes < answer.source_bytes) {
    bytes -= static_cast<uint32_t>((reinterpret_cast<uintptr_t>(answer.source) + bytes) % 64);
  }
  if (room_ == nullptr) {
    room_ = std::make_unique_for_overwrite<std::byte[]>(kAnswerRoomBytes);
  }
  if (room_used_ == 0) room_end_ = 0;
  const uint32_t to_end = kAnswerRoomBytes - room_end_;
  const uint32_t skipped = to_end < bytes ? to_end : 0;
  if (room_used_ + skipped + bytes > kAnswerRoomBytes) return false;
  room_end_ = (room_end_ + skipped) % kAnswerRoomBytes;
  std::byte* const piece = room_.get() + room_end_;
  base::copy_bulk_from_shared(piece, answer.source, bytes);
  room_end_ += bytes;
  room_used_ += skipped + bytes;
  room_touched_ |= room_end_ > kPageBytes;
  answer.room_bytes = skipped + bytes;
  answer.body = piece;
  answer.body_bytes = answer.header.bytes = bytes;
  answer.source += bytes;
  answer.source_bytes -= bytes;
  return true;
}

[[gnu::hot]] void FrameSender::push_done() {
  // One that has not begun to leave says it for both.
  const bool last_is_whole = size() > 1 || (size() == 1 && sent_ == 0);
  if (last_is_whole && entries_[size() - 1].header.kind == FrameKind::kDone) {
    ++entries_[size() - 1].header.bytes;
    return;
  }
  FrameHeader header{};
  header.kind = FrameKind::kDone;
  header.bytes = 1;
  push(header, nullptr, 0, What::kAnswer);
  ++answers_;
}

void FrameSender::push_handshake(std::vector<std::byte> message) {
  owned_.push_back(std::move(message));
  const std::vector<std::byte>& kept = owned_.back();
  FrameHeader header{};
  header.kind = FrameKind::kHandshake;
  header.bytes = static_cast<uint32_t>(kept.size());
  push(header, kept.data(), header.bytes, What::kOther);
}

bool FrameSender::push_closed(FrameKind kind, uint32_t channel) {
  if (size() == kCapacity) return false;
  FrameHeader header{};
  header.kind = kind;
  push(header, nullptr, 0, What::kOther).header.channel = channel;
  return true;
}

bool FrameSender::push_refusal(std::vector<std::byte> message, uint32_t channel) {
  if (size() == kCapacity) return false;
  push_handshake(std::move(message));
  entries_[size() - 1].header.channel = channel;
  return true;
}

[[gnu::hot]] size_t FrameSender::gather(std::vector<iovec>& pieces, size_t max_pieces) {
  copy_answers();
  PMSTORE_CHECK(size() == 0 || copied_ > 0 || entries_[0].body_bytes > 0,
                "nothing else is in the room when a READ is the first");
  size_t wanted = 0;
  size_t skip = sent_;
  for (uint32_t i = 0; i < size() && pieces.size() + 2 <= max_pieces; ++i) {
    Entry& entry = entries_[i];
    if (i >= copied_ && (i > copied_ || entry.body_bytes == 0)) break;
    const size_t of_header = sizeof entry.header - std::min(skip, sizeof entry.header);
    const size_t of_body =
        entry.body_bytes - (skip > sizeof entry.header ? skip - sizeof entry.header : 0);
    if (of_header > 0) {
      auto* const header = reinterpret_cast<std::byte*>(&entry.header);
      pieces.push_back({header + (sizeof entry.header - of_header), of_header});
    }
    if (of_body > 0) {
      auto* const body = const_cast<std::byte*>(entry.body);
      pieces.push_back({body + (entry.body_bytes - of_body), of_body});
    }
    wanted += of_header + of_body;
    skip = 0;
  }
  gathered_ = wanted;
  return wanted;
}

[[gnu::hot]] void FrameSender::count_sent(size_t bytes) {
  PMSTORE_CHECK(bytes <= gathered_, "only gathered bytes are sent");
  sent_ += bytes;
  while (size() > 0) {
    Entry& first = entries_[0];
    const size_t whole = sizeof first.header + first.body_bytes;
    if (sent_ < whole) return;
    sent_ -= whole;
    PMSTORE_CHECK(room_used_ >= first.room_bytes, "a piece is in the room");
    room_used_ -= std::exchange(first.room_bytes, 0);
    if (first.source_bytes > 0) {
      first.body_bytes = 0;
      PMSTORE_CHECK(sent_ == 0, "nothing is sent behind an answer that is not whole");
      return;
    }
    pop();
  }
}

[[gnu::hot]] void FrameSender::pop() {
  PMSTORE_CHECK(size() > 0 && copied_ > 0, "only a whole entry leaves");
  const Entry& first = entries_[0];
  if (first.what == What::kRequest) --requests_;
  if (first.what == What::kAnswer) --answers_;
  if (is_question(first)) --unsent_questions_;
  // They leave in the order in which they came.
  if (first.header.kind == FrameKind::kHandshake) owned_.pop_front();
  entries_.pop_front();
  --copied_;
}

bool FrameSender::waits_for(const MemoryRegion& region) const {
  for (uint32_t i = copied_; i < size(); ++i) {
    if (entries_[i].source_bytes > 0 && entries_[i].region == &region) return true;
  }
  return false;
}

bool FrameSender::abandon() {
  copied_ = mid_frame() ? 1 : 0;
  entries_.truncate(copied_);
  requests_ = answers_ = unsent_questions_ = 0;
  room_used_ = size() == 0 ? 0 : entries_[0].room_bytes;
  if (size() == 0) return true;
  Entry& first = entries_[0];
  const bool borrowed = first.what == What::kRequest && first.body_bytes > 0;
  first.what = What::kOther;
  first.source_bytes = 0;
  if (!borrowed) return true;
  const size_t gone = sent_ > sizeof first.header ? sent_ - sizeof first.header : 0;
  if (first.body_bytes - gone > kMaxCopyBytes) return false;
  const std::vector<std::byte>& kept =
      owned_.emplace_back(first.body + gone, first.body + first.body_bytes);
  // As if it were all of the body; the header has left, or leaves as it is.
  first.body = kept.data();
  first.body_bytes -= static_cast<uint32_t>(gone);
  sent_ -= gone;
  return true;
}

void FrameSender::give_back() {
  PMSTORE_CHECK(empty() && room_used_ == 0, "what is to be sent stays");
  entries_.give_back();
  // The memory stays reserved, but its pages go: it is too large for the heap to give it back.
  if (std::exchange(room_touched_, false)) give_back_pages({room_.get(), kAnswerRoomBytes});
}

}  // namespace pmstore::fabric::internal
