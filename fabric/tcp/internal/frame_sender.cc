#include "fabric/tcp/internal/frame_sender.h"

#include <algorithm>

#include "base/atomic_copy.h"
#include "base/check.h"

namespace pmstore::fabric::tcp {

FrameSender::FrameSender(uint32_t channel)
    : channel_(channel), entries_(std::make_unique_for_overwrite<Entry[]>(kCapacity)) {}

FrameSender::Entry& FrameSender::push(const FrameHeader& header, const std::byte* body,
                                      uint32_t body_bytes, What what) {
  PMSTORE_CHECK(size_ < kCapacity, "requests and answers are counted before they are pushed");
  Entry& entry = at(size_++);
  entry.header = header;
  entry.header.channel = channel_;
  entry.body = body;
  entry.body_bytes = body_bytes;
  entry.source = nullptr;
  entry.what = what;
  return entry;
}

void FrameSender::push_request(const FrameHeader& header, const std::byte* body,
                               uint32_t body_bytes) {
  const Entry& entry = push(header, body, body_bytes, What::kRequest);
  ++requests_;
  if (is_question(entry)) ++unsent_questions_;
}

void FrameSender::push_answer(const FrameHeader& header, const std::byte* body, uint32_t body_bytes,
                              const MemoryRegion* source) {
  Entry& entry = push(header, body, body_bytes, What::kAnswer);
  ++answers_;
  if (body_bytes <= sizeof entry.copy) {
    if (body_bytes > 0) base::copy_from_shared(entry.copy, body, body_bytes);
    entry.body = entry.copy;
  } else {
    entry.source = source;
  }
}

void FrameSender::push_done() {
  // One that has not begun to leave says it for both.
  const bool last_is_whole = size_ > 1 || (size_ == 1 && sent_ == 0);
  if (last_is_whole && at(size_ - 1).header.kind == FrameKind::kDone) {
    ++at(size_ - 1).header.bytes;
    return;
  }
  FrameHeader header{};
  header.kind = FrameKind::kDone;
  header.bytes = 1;
  push_answer(header, nullptr, 0, nullptr);
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
  if (size_ == kCapacity) return false;
  FrameHeader header{};
  header.kind = kind;
  push(header, nullptr, 0, What::kOther).header.channel = channel;
  return true;
}

size_t FrameSender::gather(std::vector<iovec>& pieces, size_t max_pieces) {
  size_t wanted = 0;
  size_t skip = sent_;
  for (uint32_t i = 0; i < size_ && pieces.size() + 2 <= max_pieces; ++i) {
    Entry& entry = at(i);
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

void FrameSender::count_sent(size_t bytes) {
  sent_ += bytes;
  while (size_ > 0) {
    const Entry& first = at(0);
    const size_t whole = sizeof first.header + first.body_bytes;
    if (sent_ < whole) return;
    sent_ -= whole;
    if (first.what == What::kRequest) --requests_;
    if (first.what == What::kAnswer) --answers_;
    if (is_question(first)) --unsent_questions_;
    head_ = (head_ + 1) % kCapacity;
    --size_;
  }
}

bool FrameSender::sends_from(const MemoryRegion& region) const {
  for (uint32_t i = 0; i < size_; ++i) {
    if (at(i).source == &region) return true;
  }
  return false;
}

bool FrameSender::abandon() {
  size_ = mid_frame() ? 1 : 0;
  requests_ = answers_ = unsent_questions_ = 0;
  if (size_ == 0) return true;
  Entry& first = at(0);
  first.what = What::kOther;
  first.source = nullptr;
  if (first.body_bytes == 0 || first.body == first.copy) return true;
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

}  // namespace pmstore::fabric::tcp
