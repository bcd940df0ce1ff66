#include "persist/internal/zeroed_ranges.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pmstore::persist::internal {

void ZeroedRanges::add(ByteRange range) {
  PMSTORE_CHECK(range.begin < range.end, "nothing is not noted");
  std::vector<ByteRange> joined;
  for (const ByteRange& each : ranges_) {
    if (each.end < range.begin || range.end < each.begin) {
      joined.push_back(each);
    } else {
      range = {std::min(range.begin, each.begin), std::max(range.end, each.end)};
    }
  }
  if (joined.size() == kMost) joined.erase(joined.begin());
  const auto behind = std::find_if(joined.begin(), joined.end(),
                                   [&](const ByteRange& each) { return each.begin > range.begin; });
  joined.insert(behind, range);
  ranges_ = std::move(joined);
  PMSTORE_CHECK(std::adjacent_find(ranges_.begin(), ranges_.end(),
                                   [](const ByteRange& a, const ByteRange& b) {
                                     return a.end >= b.begin;
                                   }) == ranges_.end(),
                "ranges are in order and do not touch");
}

void ZeroedRanges::remove(ByteRange range) {
  std::vector<ByteRange> left;
  for (const ByteRange& each : ranges_) {
    const uint64_t before = std::min(each.end, range.begin);
    const uint64_t behind = std::max(each.begin, range.end);
    if (each.begin < before) left.push_back({each.begin, before});
    if (behind < each.end) left.push_back({behind, each.end});
  }
  if (left.size() > kMost) left.pop_back();
  ranges_ = std::move(left);
  PMSTORE_CHECK(ranges_.size() <= kMost, "a range that is cut makes one more, at most");
}

std::optional<ByteRange> ZeroedRanges::first_unknown(ByteRange range) const {
  for (const ByteRange& each : ranges_) {
    if (each.end <= range.begin) continue;
    if (each.begin > range.begin) {
      range.end = std::min(range.end, each.begin);
      break;
    }
    range.begin = each.end;
  }
  if (range.begin >= range.end) return std::nullopt;
  return range;
}

}  // namespace pmstore::persist::internal
