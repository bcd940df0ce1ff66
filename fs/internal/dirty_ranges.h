// DirtyRanges: where in the areas of data servers a client has written bytes of one file that are
// visible and not durable yet.
//
// A range belongs to a start of its server: a later start does not have what was not durable.
// Invariants: ranges of one server and start neither overlap nor touch; bytes() is their sum.
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "persist/persist_ranges_message.h"

namespace pmstore::fs::internal {

class DirtyRanges {
 public:
  // A file that has more is made durable by the write that finds it so.
  static constexpr size_t kMostRanges = persist::kMaxPersistRanges;
  static constexpr uint64_t kMostBytes = uint64_t{16} << 20;

  struct OfServer {
    uint16_t server = 0;
    uint64_t start = 0;
    std::vector<persist::RemoteRange> ranges;
  };

  // Requires that the range is not empty.
  void add(uint16_t server, uint64_t start, persist::RemoteRange range);
  void add(const OfServer& dirty);
  // Nothing is left. In order of their offsets.
  std::vector<OfServer> take();

  bool empty() const { return count_ == 0; }
  bool full() const { return count_ > kMostRanges || bytes_ > kMostBytes; }
  size_t count() const { return count_; }
  uint64_t bytes() const { return bytes_; }

 private:
  using Ends = std::map<uint64_t, uint64_t>;              // by their beginnings
  std::map<std::pair<uint16_t, uint64_t>, Ends> ranges_;  // by server and start
  size_t count_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace pmstore::fs::internal
