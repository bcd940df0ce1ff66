// FrameSender: the frames that one connection has to send on its socket or in its ring, in order.
//
// The answers of READs are copied, in the order of the READs, from the target's memory into a room
// of bounded size: when the READ is pushed, or, if the room is full or an earlier READ waits, when
// enough of the earlier frames has been sent. So a READ never shows older memory than the READ
// before it, however slow the peer is. A READ larger than a piece is copied and answered piece by
// piece. Bodies of requests are not copied: they are sent from the caller's buffer, which must not
// change until then.
//
// One thread. Memory is taken by need, and given back by give_back().
//
// Invariants:
//   requests() and answers() count the entries that were pushed as such
//   sent_ bytes of the first entry have been sent, and nothing of the others
//   source_bytes == 0 in the first copied_ entries; of the entries behind them, only the next one
//   may have a piece in the room
//   room_used_ is the sum of the entries' room_bytes; in the ring room_ they end at room_end_
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "fabric/internal/frame.h"
#include "fabric/internal/growing_ring.h"
#include "fabric/memory_region.h"

namespace pmstore::fabric::internal {

class FrameSender {
 public:
  static constexpr uint32_t kMaxRequests = 512;
  static constexpr size_t kMaxCopyBytes = 1u << 20;
  static constexpr uint32_t kAnswerRoomBytes = 256 * 1024;
  // A READ of up to so many bytes is copied at one moment.
  static constexpr uint32_t kMaxPieceBytes = 128 * 1024;

  // All frames are of connection `channel`.
  explicit FrameSender(uint32_t channel);

  bool empty() const { return entries_.empty(); }
  uint32_t requests() const { return requests_; }
  uint32_t answers() const { return answers_; }
  // The requests with an answer that are not sent in full: no answer to them can have arrived.
  uint32_t unsent_questions() const { return unsent_questions_; }
  // A frame is sent in part: its rest comes before any other frame of the socket.
  bool mid_frame() const { return sent_ > 0; }
  // tcp: in the multiplexer's list of senders with frames.
  bool listed = false;

  // A request of this end. The caller has checked that there is room.
  void push_request(const FrameHeader& header, const std::byte* body, uint32_t body_bytes);
  // The answer to a READ of source[0, bytes), which lies in `region`. At most kMaxUnanswered
  // answers wait.
  void push_read_answer(const std::byte* source, uint32_t bytes, const MemoryRegion& region);
  // Tells the peer that one more of its requests is done.
  void push_done();
  void push_handshake(std::vector<std::byte> message);
  // Tells the peer that this end of connection `channel` is closed: kRefused or kClosed. False: no
  // room.
  bool push_closed(FrameKind kind, uint32_t channel);
  // The same for a handshake message to connection `channel`.
  bool push_refusal(std::vector<std::byte> message, uint32_t channel);

  // Adds what is next to `pieces` while there is room for two; returns how many bytes that is,
  // as does gathered().
  size_t gather(std::vector<iovec>& pieces, size_t max_pieces);
  size_t gathered() const { return gathered_; }
  // The first `bytes` of them have been sent.
  void count_sent(size_t bytes);

  // A READ of `region` waits to be copied.
  bool waits_for(const MemoryRegion& region) const;
  // Forgets everything but the rest of a frame that has begun to leave, which is copied if it is a
  // request's. False when that is more than kMaxCopyBytes: the socket cannot be used any more.
  [[nodiscard]] bool abandon();
  // While it is empty: whether give_back() has an effect.
  bool has_surplus() const { return entries_.has_surplus() || room_touched_; }
  // Gives back the memory that a sender without anything to send does not need.
  void give_back();

 private:
  // Handshakes are two messages at most, and closing is one.
  static constexpr uint32_t kCapacity = kMaxRequests + kMaxUnanswered + 16;

  enum class What : uint8_t { kRequest, kAnswer, kOther };
  struct Entry {
    FrameHeader header;
    uint32_t body_bytes;  // of the answer to a READ: of its piece in the room, 0 for none
    What what;
    const std::byte* body;
    // Of the answer to a READ: what is not copied yet, and the room that its piece takes.
    const std::byte* source;
    uint32_t source_bytes;
    uint32_t room_bytes;
    const MemoryRegion* region;
  };

  static bool is_question(const Entry& entry) {
    return entry.what == What::kRequest &&
           (entry.header.kind == FrameKind::kRead || entry.header.flags == kAnswerWhenDone);
  }
  uint32_t size() const { return static_cast<uint32_t>(entries_.size()); }
  Entry& push(const FrameHeader& header, const std::byte* body, uint32_t body_bytes, What what);
  void pop();
  // Copies READs, in order, as far as the room goes.
  void copy_answers();
  // False: there is no room for the next piece of `answer`.
  bool copy_piece(Entry& answer);

  const uint32_t channel_;
  GrowingRing<Entry> entries_;
  uint32_t copied_ = 0;
  uint32_t requests_ = 0;
  uint32_t answers_ = 0;
  uint32_t unsent_questions_ = 0;
  size_t sent_ = 0;
  size_t gathered_ = 0;
  std::unique_ptr<std::byte[]> room_;  // ring; a piece does not wrap around; from the first READ on
  bool room_touched_ = false;          // more than one page of it since give_back()
  uint32_t room_end_ = 0;
  uint32_t room_used_ = 0;
  std::deque<std::vector<std::byte>> owned_;  // handshake messages, the rest of a frame
};

}  // namespace pmstore::fabric::internal
