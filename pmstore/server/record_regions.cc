#include "pmstore/server/record_regions.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pmstore::internal {

static_assert(kMostFrames <= 64, "a word has a bit for each frame");

Status RecordRegions::start() {
  PMSTORE_TRY(first_, device_.register_memory(arena_.first_records(), rights_));
  while (register_one()) {
  }
  return {};
}

bool RecordRegions::register_one() {
  const RecordFrames& frames = arena_.frames();
  for (uint32_t frame = 0; frame < frames.most(); ++frame) {
    if (!frames.comes_back(frame) || later_[frame] || refused_[frame]) continue;
    if (arena_.is_aside(frame)) continue;
    auto region = device_.register_memory(frames.memory(frame), rights_);
    refused_[frame] = !region;
    if (region) later_[frame] = std::move(*region);
    return true;
  }
  return false;
}

std::vector<fabric::RemoteRegion> RecordRegions::list(uint64_t& known) const {
  const RecordFrames& frames = arena_.frames();
  std::vector<fabric::RemoteRegion> regions;
  for (uint32_t frame = 0; frame < frames.most(); ++frame) {
    if (arena_.is_aside(frame)) continue;
    const uint64_t bytes = frames.memory(frame).size();
    fabric::RemoteRegion region;
    if (later_[frame]) {
      PMSTORE_CHECK(later_[frame]->bytes().data() == frames.memory(frame).data(),
                    "a region goes before its frame does");
      region = later_[frame]->remote();
      known |= uint64_t{1} << frame;
    } else if (bytes > 0 && !frames.comes_back(frame)) {
      region = first();
      region.address += frame * frames.frame_bytes();
      region.bytes = bytes;
    }
    if (region.bytes == 0) continue;
    regions.resize(frame + 1);
    regions[frame] = region;
  }
  return regions;
}

}  // namespace pmstore::internal
