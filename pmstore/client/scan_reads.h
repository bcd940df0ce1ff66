// ScanReads: what the scans of one transaction have seen, which must be the same at its commit: the
// leaves of ordered tables, and the records in them.
//
// Threads: the executor's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "pmstore/layout/protocol.h"
#include "pmstore/types.h"

namespace pmstore::internal {

class ScanReads {
 public:
  void add_page(std::span<const LeafSeen> leaves, std::span<const ReadCheck> records) {
    ++pages_;
    leaves_.insert(leaves_.end(), leaves.begin(), leaves.end());
    records_.insert(records_.end(), records.begin(), records.end());
  }
  // All keys of the range were seen. Ranges that continue the last one are one with it; what is
  // beyond kMostRanges is forgotten.
  void add_range(TableId table, KeyRange range) {
    const bool same_table = !ranges_.empty() && ranges_.back().table == table;
    if (same_table && !range.from.empty() && ranges_.back().keys.to == range.from) {
      ranges_.back().keys.to = std::move(range.to);
    } else if (same_table && !range.to.empty() && ranges_.back().keys.from == range.to) {
      ranges_.back().keys.from = std::move(range.from);
    } else if (ranges_.size() < kMostRanges) {
      ranges_.push_back({table, std::move(range)});
    }
  }
  // The key was seen by a scan, as there or as absent. False also where that is forgotten.
  bool covers(TableId table, std::string_view key) const {
    return std::any_of(ranges_.begin(), ranges_.end(), [&](const Range& seen) {
      return seen.table == table && key >= seen.keys.from &&
             (seen.keys.to.empty() || key < seen.keys.to);
    });
  }
  size_t pages() const { return pages_; }
  bool empty() const { return pages_ == 0; }
  std::span<const LeafSeen> leaves() const { return leaves_; }
  std::span<const ReadCheck> records() const { return records_; }
  // As checks of a commit.
  size_t bytes() const {
    return leaves_.size() * sizeof(AbsenceCheck) + records_.size() * sizeof(ReadCheck);
  }
  void clear() {
    pages_ = 0;
    leaves_.clear();
    records_.clear();
    ranges_.clear();
  }

 private:
  static constexpr size_t kMostRanges = 64;
  struct Range {
    TableId table;
    KeyRange keys;
  };

  size_t pages_ = 0;
  std::vector<LeafSeen> leaves_;
  std::vector<ReadCheck> records_;
  std::vector<Range> ranges_;
};

}  // namespace pmstore::internal
