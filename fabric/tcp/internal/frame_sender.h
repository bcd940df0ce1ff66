// FrameSender: what waits to be sent on one socket, in order. It does not copy what frames carry:
// bodies are sent from where they are, and must stay there until then.
//
// One thread. Never blocks; no allocation after construction, but for handshake messages.
//
// Invariants:
//   requests() counts the entries that were pushed as requests; it is at most kMaxRequests
//   of the first entry, sent_ bytes have gone; of the others nothing
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "fabric/memory_region.h"
#include "fabric/tcp/internal/frame.h"

namespace pmstore::fabric::tcp {

class FrameSender {
 public:
  static constexpr uint32_t kMaxRequests = 512;

  FrameSender();

  bool empty() const { return size_ == 0; }
  uint32_t requests() const { return requests_; }
  uint32_t answers() const { return answers_; }
  // So many bytes have gone since construction.
  uint64_t sent_bytes() const { return total_sent_; }

  // A request of ours; the caller has seen that there is room.
  void push_request(const FrameHeader& header, const std::byte* body, uint32_t body_bytes);
  // An answer; `source` is the region whose memory it sends. At most kMaxUnanswered wait.
  void push_answer(const FrameHeader& header, const std::byte* body, uint32_t body_bytes,
                   const MemoryRegion* source);
  // Says that one more request is done.
  void push_done();
  void push_control(std::vector<std::byte> message);

  // Sends what the socket takes. 0, or the errno of a socket that is broken.
  int flush(int fd);
  // Something of `region` waits to be sent.
  bool sends_from(const MemoryRegion& region) const;
  void clear();

 private:
  // Handshakes are two messages at most, a refusal one frame.
  static constexpr uint32_t kCapacity = kMaxRequests + kMaxUnanswered + 16;
  static constexpr int kMaxPieces = 64;

  enum class What : uint8_t { kRequest, kAnswer, kOther };
  struct Entry {
    FrameHeader header;
    uint32_t header_bytes;  // 0: a handshake message has none
    uint32_t body_bytes;
    const std::byte* body;
    const MemoryRegion* source;
    What what;
  };

  Entry& at(uint32_t i) { return entries_[(head_ + i) % kCapacity]; }
  const Entry& at(uint32_t i) const { return entries_[(head_ + i) % kCapacity]; }
  void push(const Entry& entry);
  void count_sent(size_t bytes);

  std::vector<Entry> entries_;  // ring
  uint32_t head_ = 0;
  uint32_t size_ = 0;
  uint32_t requests_ = 0;
  uint32_t answers_ = 0;
  size_t sent_ = 0;
  uint64_t total_sent_ = 0;
  std::deque<std::vector<std::byte>> control_;  // kept to the end
};

}  // namespace pmstore::fabric::tcp
