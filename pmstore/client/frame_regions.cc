#include "pmstore/client/frame_regions.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "pmstore/client/client_session.h"
#include "pmstore/layout/lock_word.h"

namespace pmstore::internal {
namespace {

constexpr unsigned kMostFrameShift = 40;
static_assert(kMostFrames <= kMostRegionsInReply, "one answer has all frames");

base::Task<Status> ask_for_frames(ClientSession& session) {
  std::array<std::byte, sizeof(RequestPrefix) + sizeof(RegionsRequest)> room;
  MessageWriter request(room);
  request.put(session.prefix());
  request.put(RegionsRequest{0, RegionKind::kRecords, {}, session.frames().confirmed()});
  constexpr uint32_t kRoom = sizeof(RegionsReply) + kMostFrames * sizeof(NumberedRegion);
  const auto answer = co_await session.rpc().call(static_cast<uint16_t>(Method::kRegions),
                                                  request.message(), kRoom);
  if (!answer) co_return Error(answer.error());
  if (session.frames().apply(answer->bytes())) co_return Status{};
  co_return session.malformed_reply("a request for frames");
}

}  // namespace

bool FrameRegions::makes_sense(uint64_t frame, const fabric::RemoteRegion& region) const {
  return region.bytes <= uint64_t{1} << shift_ &&
         lock_table_bytes((frame << shift_) + region.bytes) <= words_bytes_;
}

void FrameRegions::name(uint64_t frame, const fabric::RemoteRegion& region) {
  regions_[frame] = region;
  named_[frame] = true;
  later_ |= frame > 0;
}

bool FrameRegions::start(const ServerHello& hello, std::span<const std::byte> list) {
  const size_t count = list.size() / sizeof(fabric::RemoteRegion);
  grows_ = hello.frame_shift != 0;
  if (list.size() % sizeof(fabric::RemoteRegion) != 0 || count > kMostFrames ||
      grows_ != (count > 0) || hello.frame_shift > kMostFrameShift) {
    return false;
  }
  shift_ = grows_ ? hello.frame_shift : kMostFrameShift;
  words_bytes_ = hello.words.bytes;
  list_ = confirmed_ = hello.region_list;
  if (!grows_) {  // it is told of one region of records only
    name(0, hello.records);
    return true;
  }
  for (uint64_t frame = 0; frame < count; ++frame) {
    fabric::RemoteRegion region;
    std::memcpy(&region, list.data() + frame * sizeof(region), sizeof(region));
    if (!makes_sense(frame, region)) return false;
    if (region.bytes > 0) name(frame, region);
  }
  return true;
}

bool FrameRegions::apply(std::span<const std::byte> answer) {
  MessageReader reader(answer);
  const auto reply = reader.get<RegionsReply>();
  std::array<fabric::RemoteRegion, kMostFrames> regions{};
  uint64_t next = 0;
  for (uint32_t i = 0; i < reply.count && !reader.failed(); ++i) {
    const auto each = reader.get<NumberedRegion>();
    if (reader.failed() || each.number < next || each.number >= kMostFrames ||
        each.region.bytes == 0 || !makes_sense(each.number, each.region)) {
      return false;
    }
    next = uint64_t{each.number} + 1;
    regions[each.number] = each.region;
  }
  if (!reader.complete()) return false;
  if (reply.list < list_) return true;
  list_ = reply.list;
  later_ = false;
  for (uint64_t frame = 0; frame < kMostFrames; ++frame) {
    if (regions[frame].bytes > 0) {
      name(frame, regions[frame]);
    } else {
      named_[frame] = false;
    }
  }
  return true;
}

base::Task<Status> fetch_frame(ClientSession& session, SlotOffset slot) {
  FrameRegions& frames = session.frames();
  if (!frames.may_name(slot, session.executor().now_ns())) co_return Status{};
  const FrameRegions::Flag asking(frames.asking_);
  PMSTORE_CO_TRY_STATUS(co_await ask_for_frames(session));
  if (!frames.holds(slot, 1)) {
    frames.not_before_ns_[raw(slot) >> frames.shift_] =
        session.executor().now_ns() + FrameRegions::kAskAgainNs;
  }
  co_return Status{};
}

base::Task<void> follow_frames(ClientSession& session) {
  constexpr uint64_t kPauseNs = 50'000;
  FrameRegions& frames = session.frames();
  const FrameRegions::Flag following(frames.following_);
  co_await session.executor().yield();
  while (session.usable()) {
    const Status asked = co_await ask_for_frames(session);
    if (!asked) co_return session.drop();
    if (frames.list() == frames.confirmed()) co_return;
    const uint64_t list = frames.list();
    const std::vector<uint64_t> begun = session.operations_under_way();
    while (session.usable() && !session.buffers().have_ended(begun)) {
      co_await session.executor().sleep_for(kPauseNs);
    }
    frames.confirm(list);
  }
}

}  // namespace pmstore::internal
