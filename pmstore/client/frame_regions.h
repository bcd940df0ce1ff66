// FrameRegions: the memory of records that a session may access, by frames of slot space
// (pmstore/layout/frame_layout.h).
//
// The server names frames in its hello, and later ones when it is asked. A frame may go while the
// session lives. Then the server has a list without it, which the session's replies tell of
// (fabric::RpcClient::on_notice()). The session accesses the frame no more, waits for what is under
// way, and confirms the list; only then the frame's memory goes. Invariants: confirmed() is at most
// list(), neither falls, and what the list `confirmed()` has not is not accessed. Bounded:
// kMostFrames. Threads: one.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/memory_region.h"
#include "pmstore/layout/frame_layout.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/types.h"

namespace pmstore::internal {

class ClientSession;

class FrameRegions {
 public:
  // After an answer without the frame that was needed, that frame is not asked for so long; others
  // are. A location that is remembered may be in a frame that has gone.
  static constexpr uint64_t kAskAgainNs = 1'000'000'000;

  // What the server's hello says, and `list` behind it. False: it makes no sense.
  bool start(const ServerHello& hello, std::span<const std::byte> list);
  // Whether this session may access the record there; else it asks the server for it.
  bool holds(SlotOffset slot, uint64_t bytes) const {
    const uint64_t frame = raw(slot) >> shift_;
    if (frame >= kMostFrames || raw(slot) % 64 != 0 || !named_[frame]) return false;
    return bytes <= regions_[frame].bytes && in_frame(slot) <= regions_[frame].bytes - bytes;
  }
  // Requires that it was held when the operation, which has its buffer since then, asked (CHECK).
  fabric::RemoteAddress at(SlotOffset slot) const {
    const uint64_t frame = raw(slot) >> shift_;
    PMSTORE_CHECK(frame < kMostFrames && regions_[frame].bytes > 0, "the frame was named");
    return regions_[frame].at(in_frame(slot));
  }
  // The server does the reads from here on.
  void forget() {
    named_ = {};
    grows_ = later_ = false;
  }
  // Whether there may be a region that the server was not asked for yet: of the frame of `slot`.
  bool may_name(SlotOffset slot, uint64_t now_ns) const {
    const uint64_t frame = raw(slot) >> shift_;
    return grows_ && !asking_ && frame < kMostFrames && !named_[frame] &&
           now_ns >= not_before_ns_[frame];
  }
  // Whether it may access a frame that may go.
  bool knows_later() const { return later_; }
  // follow_frames() runs.
  bool following() const { return following_; }
  uint64_t list() const { return list_; }
  uint64_t confirmed() const { return confirmed_; }
  // CHECK: what the list has not is under way no more.
  void confirm(uint64_t list) {
    PMSTORE_CHECK(list >= confirmed_ && list <= list_, "a list is confirmed after it has come");
    confirmed_ = list;
  }
  // An answer of kind kRecords. False: it is malformed. One that is older than another is ignored.
  bool apply(std::span<const std::byte> answer);

 private:
  friend base::Task<Status> fetch_frame(ClientSession& session, SlotOffset slot);
  friend base::Task<void> follow_frames(ClientSession& session);
  // Sets a flag as long as it lives.
  class Flag {
   public:
    explicit Flag(bool& flag) : flag_(flag) { flag_ = true; }
    ~Flag() { flag_ = false; }
    Flag(const Flag&) = delete;
    Flag& operator=(const Flag&) = delete;

   private:
    bool& flag_;
  };
  uint64_t in_frame(SlotOffset slot) const { return raw(slot) & ((uint64_t{1} << shift_) - 1); }
  bool makes_sense(uint64_t frame, const fabric::RemoteRegion& region) const;
  void name(uint64_t frame, const fabric::RemoteRegion& region);

  // A frame that is named no more keeps its region for operations that have begun.
  std::array<fabric::RemoteRegion, kMostFrames> regions_{};
  std::array<bool, kMostFrames> named_{};
  unsigned shift_ = 0;
  uint64_t words_bytes_ = 0;
  uint64_t list_ = 0;
  uint64_t confirmed_ = 0;
  std::array<uint64_t, kMostFrames> not_before_ns_{};
  bool grows_ = false;  // the server tells of later frames
  bool later_ = false;
  bool asking_ = false;  // fetch_frame()
  bool following_ = false;
};

// Asks the server for the frames that there are, if that may name the one of `slot`. So the frame
// may still be unknown afterwards. Errors of RpcClient::call(). Protocol, and the session is
// dropped: the answer does not decode. `session` is borrowed until the task ends; it may be
// destroyed at any moment.
base::Task<Status> fetch_frame(ClientSession& session, SlotOffset slot);

// Asks for the list of frames, and confirms it when nothing of what it has not is under way; until
// no later list has come meanwhile. Begins in the executor's next turn. Ends when the session is
// not usable; drops it when the server does not answer. `session` is borrowed until the task ends.
base::Task<void> follow_frames(ClientSession& session);

}  // namespace pmstore::internal
