// DirtyPages: the page ranges that wait for msync, when memory is in no persistence domain.
//
// Invariants: every byte noted since the last clear() is inside some range; size() <= kMaxRanges;
// ranges are page aligned. Ranges may overlap until merged() sorts them. When kMaxRanges are not
// enough, they collapse into one that covers them all: msync of clean pages is cheap, a list
// without bound is not. Threads: one.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"

namespace pmstore::persist::internal {

struct PageRange {
  uintptr_t begin;
  uintptr_t end;
};

class DirtyPages {
 public:
  static constexpr size_t kMaxRanges = 64;

  explicit DirtyPages(uintptr_t page_bytes) : page_mask_(page_bytes - 1) {
    PMSTORE_CHECK(page_bytes > 0 && (page_bytes & page_mask_) == 0, "pages are a power of two");
  }

  void note(uintptr_t begin, uintptr_t end) {
    PMSTORE_CHECK(begin < end, "an empty range would be synchronized as a page");
    begin &= ~page_mask_;
    end = (end + page_mask_) & ~page_mask_;
    if (size_ > 0) {
      // Most flushes follow the one before: extend it.
      PageRange& last = ranges_[size_ - 1];
      if (begin <= last.end && end >= last.begin) {
        last.begin = std::min(last.begin, begin);
        last.end = std::max(last.end, end);
        return;
      }
    }
    if (size_ == kMaxRanges) make_room();
    PMSTORE_CHECK(size_ < kMaxRanges, "a page would be forgotten");
    ranges_[size_++] = {begin, end};
  }

  // Sorted, disjoint and not touching. Valid until the next note() or clear().
  std::span<const PageRange> merged() {
    merge();
    return {ranges_.data(), size_};
  }

  void clear() { size_ = 0; }
  size_t size() const { return size_; }

 private:
  void merge() {
    if (size_ < 2) return;
    std::sort(ranges_.begin(), ranges_.begin() + size_,
              [](const PageRange& a, const PageRange& b) { return a.begin < b.begin; });
    size_t kept = 0;
    for (size_t i = 1; i < size_; ++i) {
      if (ranges_[i].begin <= ranges_[kept].end) {
        ranges_[kept].end = std::max(ranges_[kept].end, ranges_[i].end);
      } else {
        ranges_[++kept] = ranges_[i];
      }
    }
    size_ = kept + 1;
  }

  void make_room() {
    merge();
    if (size_ < kMaxRanges) return;
    PMSTORE_CHECK(ranges_[0].begin <= ranges_[size_ - 1].begin, "a page would be forgotten");
    ranges_[0].end = ranges_[size_ - 1].end;
    size_ = 1;
  }

  uintptr_t page_mask_;
  size_t size_ = 0;
  std::array<PageRange, kMaxRanges> ranges_;
};

}  // namespace pmstore::persist::internal
