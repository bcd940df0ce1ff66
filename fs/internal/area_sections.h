// AreaSections: which units the data servers of a file system have.
//
// A section is a range of units that lie one behind the other; there are no units between two.
// Invariant: sections of one server neither meet nor overlap. Threads: one at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "base/check.h"
#include "fs/types.h"

namespace pmstore::fs::internal {

class AreaSections {
 public:
  // In the order of their offsets.
  void add(const AreaRange& section) {
    std::vector<AreaRange>& sections = by_server_[section.server];
    PMSTORE_CHECK(sections.empty() || end_of(sections.back()) < section.offset,
                  "sections neither meet nor overlap");
    sections.push_back(section);
  }
  bool knows(uint16_t server) const { return by_server_.contains(server); }
  // Whether the whole range lies in one section.
  bool has(const AreaRange& range) const {
    const auto found = by_server_.find(range.server);
    if (found == by_server_.end()) return false;
    const std::vector<AreaRange>& sections = found->second;
    const auto behind =
        std::upper_bound(sections.begin(), sections.end(), range.offset,
                         [](uint64_t at, const AreaRange& section) { return at < section.offset; });
    return behind != sections.begin() && end_of(range) <= end_of(*std::prev(behind));
  }
  const std::map<uint16_t, std::vector<AreaRange>>& by_server() const { return by_server_; }

 private:
  static uint64_t end_of(const AreaRange& range) { return range.offset + range.bytes; }

  std::map<uint16_t, std::vector<AreaRange>> by_server_;
};

}  // namespace pmstore::fs::internal
