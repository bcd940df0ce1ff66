#include "fs/internal/dirty_ranges.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace pmstore::fs::internal {

void DirtyRanges::add(uint16_t server, uint64_t start, persist::RemoteRange range) {
  PMSTORE_CHECK(range.bytes > 0, "a dirty range is not empty");
  Ends& ends = ranges_[{server, start}];
  uint64_t from = range.offset;
  uint64_t to = range.offset + range.bytes;
  auto at = ends.upper_bound(from);
  if (at != ends.begin() && std::prev(at)->second >= from) --at;
  // All that it meets become one with it.
  while (at != ends.end() && at->first <= to) {
    from = std::min(from, at->first);
    to = std::max(to, at->second);
    PMSTORE_CHECK(count_ > 0 && bytes_ >= at->second - at->first, "what is there was counted");
    --count_;
    bytes_ -= at->second - at->first;
    at = ends.erase(at);
  }
  ends.emplace(from, to);
  ++count_;
  bytes_ += to - from;
}

void DirtyRanges::add(const OfServer& dirty) {
  for (const persist::RemoteRange& range : dirty.ranges) add(dirty.server, dirty.start, range);
}

std::vector<DirtyRanges::OfServer> DirtyRanges::take() {
  std::vector<OfServer> all;
  for (const auto& [key, ends] : ranges_) {
    OfServer& dirty = all.emplace_back();
    dirty.server = key.first;
    dirty.start = key.second;
    for (const auto& [from, to] : ends) dirty.ranges.push_back({from, to - from});
  }
  ranges_.clear();
  count_ = 0;
  bytes_ = 0;
  return all;
}

}  // namespace pmstore::fs::internal
