#include "fabric/tcp/internal/frame_sender.h"

#include <algorithm>

#include "base/check.h"

namespace pmstore::fabric::tcp {

FrameSender::FrameSender(uint32_t channel) : channel_(channel), entries_(kCapacity) {}

void FrameSender::push(const Entry& entry) {
  PMSTORE_CHECK(size_ < kCapacity, "requests and answers are counted before they are pushed");
  at(size_) = entry;
  at(size_++).header.channel = channel_;
}

void FrameSender::push_request(const FrameHeader& header, const std::byte* body,
                               uint32_t body_bytes) {
  push({header, body_bytes, body, nullptr, What::kRequest});
  ++requests_;
}

void FrameSender::push_answer(const FrameHeader& header, const std::byte* body, uint32_t body_bytes,
                              const MemoryRegion* source) {
  push({header, body_bytes, body, source, What::kAnswer});
  ++answers_;
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
  push({header, header.bytes, kept.data(), nullptr, What::kOther});
}

bool FrameSender::push_closed(FrameKind kind, uint32_t channel) {
  if (size_ == kCapacity) return false;
  FrameHeader header{};
  header.kind = kind;
  push({header, 0, nullptr, nullptr, What::kOther});
  at(size_ - 1).header.channel = channel;
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

void FrameSender::abandon() {
  size_ = mid_frame() ? 1 : 0;
  requests_ = answers_ = 0;
  if (size_ == 0) return;
  Entry& first = at(0);
  first.what = What::kOther;
  first.source = nullptr;
  if (first.body_bytes == 0) return;
  owned_.emplace_back(first.body, first.body + first.body_bytes);
  first.body = owned_.back().data();
}

}  // namespace pmstore::fabric::tcp
