// FrameSender: what one connection has to send on its wire, in order. It does not copy what frames
// carry: bodies are sent from where they are, and must stay there until then.
//
// One thread. No allocation after construction, but for handshake messages.
//
// Invariants:
//   requests() and answers() count the entries that were pushed as such
//   of the first entry, sent_ bytes have gone; of the others nothing
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "fabric/memory_region.h"
#include "fabric/tcp/internal/frame.h"

namespace pmstore::fabric::tcp {

class FrameSender {
 public:
  static constexpr uint32_t kMaxRequests = 512;
  static constexpr size_t kMaxCopyBytes = 1u << 20;

  // All frames are of connection `channel`.
  explicit FrameSender(uint32_t channel);

  bool empty() const { return size_ == 0; }
  uint32_t requests() const { return requests_; }
  uint32_t answers() const { return answers_; }
  // Of the requests those that will be answered, and have not left whole: no answer can be there.
  uint32_t unsent_questions() const { return unsent_questions_; }
  // A frame has begun to leave: it must leave whole before any other of the wire.
  bool mid_frame() const { return sent_ > 0; }
  // In the wire's list of those that have something to send.
  bool listed = false;

  // A request of ours; the caller has seen that there is room.
  void push_request(const FrameHeader& header, const std::byte* body, uint32_t body_bytes);
  // An answer; `source` is the region whose memory it sends. At most kMaxUnanswered wait. What is
  // small is copied, so that words of it are sent whole.
  void push_answer(const FrameHeader& header, const std::byte* body, uint32_t body_bytes,
                   const MemoryRegion* source);
  // Says that one more request is done.
  void push_done();
  void push_handshake(std::vector<std::byte> message);
  // Tells that this end of connection `channel` is closed: kRefused or kClosed. False: no room.
  bool push_closed(FrameKind kind, uint32_t channel);

  // Adds what is next to `pieces` while there is room for two; returns how many bytes that is,
  // as does gathered().
  size_t gather(std::vector<iovec>& pieces, size_t max_pieces);
  size_t gathered() const { return gathered_; }
  // So many of those bytes have gone.
  void count_sent(size_t bytes);

  // Something of `region` waits to be sent.
  bool sends_from(const MemoryRegion& region) const;
  // Forgets everything but the rest of a frame that has begun to leave, of which it makes a copy.
  // False when that is more than kMaxCopyBytes: the wire cannot be used any more.
  [[nodiscard]] bool abandon();

 private:
  // Handshakes are two messages at most, and closing is one.
  static constexpr uint32_t kCapacity = kMaxRequests + kMaxUnanswered + 16;

  enum class What : uint8_t { kRequest, kAnswer, kOther };
  struct Entry {
    FrameHeader header;
    uint32_t body_bytes;
    const std::byte* body;
    const MemoryRegion* source;
    What what;
    std::byte copy[64];
  };

  static bool is_question(const Entry& entry) {
    return entry.what == What::kRequest &&
           (entry.header.kind == FrameKind::kRead || entry.header.flags == kAnswerWhenDone);
  }
  Entry& at(uint32_t i) { return entries_[(head_ + i) % kCapacity]; }
  const Entry& at(uint32_t i) const { return entries_[(head_ + i) % kCapacity]; }
  Entry& push(const FrameHeader& header, const std::byte* body, uint32_t body_bytes, What what);

  const uint32_t channel_;
  std::unique_ptr<Entry[]> entries_;  // ring
  uint32_t head_ = 0;
  uint32_t size_ = 0;
  uint32_t requests_ = 0;
  uint32_t answers_ = 0;
  uint32_t unsent_questions_ = 0;
  size_t sent_ = 0;
  size_t gathered_ = 0;
  std::deque<std::vector<std::byte>> owned_;  // handshake messages, the rest of a frame
};

}  // namespace pmstore::fabric::tcp
