// DirtyPages: the pages that wait for msync, when memory is in no persistence domain.
//
// The memory is divided into areas. Of each area one range is kept, from the first page that was
// noted to the last: msync writes only dirty pages, so one call for a range costs less than one for
// each page, which would each wait for the disk. Areas keep the ranges apart, so that the pages
// between two areas are not written as well.
//
// Invariants: every byte noted since the last clear() is inside the range of some area; ranges are
// page aligned; areas are sorted by their first byte, and the first area begins at 0. Who ends
// areas with what they are for keeps their number bounded. Threads: one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"

namespace pmstore::persist::internal {

struct PageRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;  // the same as `begin`: no page

  bool is_empty() const { return begin == end; }
};

class DirtyPages {
 public:
  explicit DirtyPages(uintptr_t page_bytes) : page_mask_(page_bytes - 1), firsts_{0}, ranges_(1) {
    PMSTORE_CHECK(page_bytes > 0 && (page_bytes & page_mask_) == 0, "pages are a power of two");
  }

  // A new area begins here, and ends where the next one does. What was noted before stays noted.
  // Does nothing where an area begins already.
  void begin_area(uintptr_t first) {
    const auto next = std::lower_bound(firsts_.begin(), firsts_.end(), first);
    if (next != firsts_.end() && *next == first) return;
    ranges_.insert(ranges_.begin() + (next - firsts_.begin()), PageRange{});
    firsts_.insert(next, first);
  }

  // No area begins in [first, last] any more, but for the first of all: what was noted of those
  // that did counts for the area before them.
  void end_areas(uintptr_t first, uintptr_t last) {
    size_t kept = 1;
    for (size_t i = 1; i < firsts_.size(); ++i) {
      if (firsts_[i] >= first && firsts_[i] <= last) {
        widen(ranges_[kept - 1], ranges_[i]);
        continue;
      }
      firsts_[kept] = firsts_[i];
      ranges_[kept] = ranges_[i];
      ++kept;
    }
    firsts_.resize(kept);
    ranges_.resize(kept);
  }

  void note(uintptr_t begin, uintptr_t end) {
    PMSTORE_CHECK(begin < end, "an empty range would be synchronized as a page");
    PageRange& range = ranges_[area_of(begin)];
    begin &= ~page_mask_;
    end = (end + page_mask_) & ~page_mask_;
    widen(range, {begin, end});
    PMSTORE_CHECK(range.begin <= begin && end <= range.end, "a page would be forgotten");
  }

  // One per area, also the empty ones.
  std::span<const PageRange> ranges() const { return ranges_; }

  void clear() { std::fill(ranges_.begin(), ranges_.end(), PageRange{}); }

 private:
  static void widen(PageRange& range, const PageRange& by) {
    if (by.is_empty()) return;
    range.begin = range.is_empty() ? by.begin : std::min(range.begin, by.begin);
    range.end = std::max(range.end, by.end);
  }
  size_t area_of(uintptr_t address) const {
    const auto behind = std::upper_bound(firsts_.begin(), firsts_.end(), address);
    return static_cast<size_t>(behind - firsts_.begin()) - 1;
  }

  uintptr_t page_mask_;
  std::vector<uintptr_t> firsts_;
  std::vector<PageRange> ranges_;  // parallel to firsts_
};

}  // namespace pmstore::persist::internal
