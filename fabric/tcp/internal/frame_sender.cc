#include "fabric/tcp/internal/frame_sender.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>

#include "base/check.h"

namespace pmstore::fabric::tcp {

FrameSender::FrameSender() : entries_(kCapacity) {}

void FrameSender::push(const Entry& entry) {
  PMSTORE_CHECK(size_ < kCapacity, "requests and answers are counted before they are pushed");
  at(size_++) = entry;
}

void FrameSender::push_request(const FrameHeader& header, const std::byte* body,
                               uint32_t body_bytes) {
  push({header, sizeof header, body_bytes, body, nullptr, What::kRequest});
  ++requests_;
}

void FrameSender::push_answer(const FrameHeader& header, const std::byte* body, uint32_t body_bytes,
                              const MemoryRegion* source) {
  push({header, sizeof header, body_bytes, body, source, What::kAnswer});
  ++answers_;
}

void FrameSender::push_done() {
  // One that has not begun to leave says it for both.
  if (size_ > 1 || (size_ == 1 && sent_ == 0)) {
    FrameHeader& last = at(size_ - 1).header;
    if (at(size_ - 1).header_bytes > 0 && last.kind == FrameKind::kDone) {
      ++last.bytes;
      return;
    }
  }
  FrameHeader header{};
  header.kind = FrameKind::kDone;
  header.bytes = 1;
  push_answer(header, nullptr, 0, nullptr);
}

void FrameSender::push_control(std::vector<std::byte> message) {
  control_.push_back(std::move(message));
  const std::vector<std::byte>& kept = control_.back();
  push({{}, 0, static_cast<uint32_t>(kept.size()), kept.data(), nullptr, What::kOther});
}

int FrameSender::flush(int fd) {
  while (size_ > 0) {
    iovec pieces[kMaxPieces];
    int count = 0;
    size_t wanted = 0;
    size_t skip = sent_;
    for (uint32_t i = 0; i < size_ && count + 2 <= kMaxPieces; ++i) {
      Entry& entry = at(i);
      const size_t of_header = skip < entry.header_bytes ? entry.header_bytes - skip : 0;
      const size_t of_body =
          entry.body_bytes - (skip > entry.header_bytes ? skip - entry.header_bytes : 0);
      if (of_header > 0) {
        pieces[count++] = {
            reinterpret_cast<std::byte*>(&entry.header) + (entry.header_bytes - of_header),
            of_header};
      }
      if (of_body > 0) {
        pieces[count++] = {const_cast<std::byte*>(entry.body) + (entry.body_bytes - of_body),
                           of_body};
      }
      wanted += of_header + of_body;
      skip = 0;
    }
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = static_cast<size_t>(count);
    const ssize_t sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : errno;
    }
    count_sent(static_cast<size_t>(sent));
    if (static_cast<size_t>(sent) < wanted) return 0;
  }
  return 0;
}

void FrameSender::count_sent(size_t bytes) {
  total_sent_ += bytes;
  sent_ += bytes;
  while (size_ > 0) {
    const Entry& first = at(0);
    const size_t whole = size_t{first.header_bytes} + first.body_bytes;
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

void FrameSender::clear() {
  size_ = requests_ = answers_ = 0;
  sent_ = 0;
}

}  // namespace pmstore::fabric::tcp
