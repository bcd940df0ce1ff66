// ScanReads: what the scans of one transaction have seen, which must be the same at its commit: the
// leaves of ordered tables, and the records in them.
//
// Threads: the executor's.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "pmstore/layout/protocol.h"

namespace pmstore::internal {

class ScanReads {
 public:
  void add_page(std::span<const LeafSeen> leaves, std::span<const ReadCheck> records) {
    ++pages_;
    leaves_.insert(leaves_.end(), leaves.begin(), leaves.end());
    records_.insert(records_.end(), records.begin(), records.end());
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
  }

 private:
  size_t pages_ = 0;
  std::vector<LeafSeen> leaves_;
  std::vector<ReadCheck> records_;
};

}  // namespace pmstore::internal
