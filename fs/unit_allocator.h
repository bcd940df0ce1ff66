// UnitAllocator: which units of a file area are free, in DRAM.
//
// Units have numbers, with holes between them where the area has several sections. Free units are
// kept as runs, by place and by size: every call costs the logarithm of their number, and memory
// about 100 bytes for each. Invariants: a unit is free or taken; two runs never touch; both orders
// hold the same runs; free_units() is their sum. Threads: one. Bounded: there are at most half as
// many runs as units.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace pmstore::fs {

class UnitAllocator {
 public:
  struct Run {
    uint64_t first = 0;  // number of its first unit
    uint64_t units = 0;
    bool operator==(const Run&) const = default;
  };

  // All are free, with the numbers from 0 on.
  explicit UnitAllocator(uint64_t units);

  // These are units, too, and free. Requires that no number as high was one before, and that at
  // least one number is left out (CHECK).
  void add(const Run& run);
  // These are no units any more: they can be neither claimed nor allocated. Requires that all of
  // them are free, as one run (CHECK).
  void remove(const Run& run);
  // All of these are free, and no number beside them is.
  bool is_free_run(const Run& run) const {
    const auto found = by_place_.find(run.first);
    return found != by_place_.end() && found->second == run.units;
  }

  uint64_t units() const { return units_; }
  uint64_t free_units() const { return free_units_; }
  size_t runs() const { return by_place_.size(); }
  // 0: none is free.
  uint64_t largest_run() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }
  // No unit of it is free. Requires that it is inside.
  bool is_taken(const Run& run) const;

  // Takes these units. False, and nothing is taken: a part of them is taken or outside.
  bool claim(const Run& run);
  // Takes `most` units of the smallest run that has them, else the largest run if it has `least`.
  // nullopt: no run has. Requires 0 < least <= most.
  std::optional<Run> allocate(uint64_t least, uint64_t most);
  // Requires that all of it is taken.
  void release(const Run& run);

 private:
  bool is_inside(const Run& run) const {
    return run.units > 0 && run.first < end_ && run.units <= end_ - run.first;
  }
  void insert(const Run& run);
  void erase(std::map<uint64_t, uint64_t>::const_iterator run);
  // Takes the middle out of a free run.
  void take(std::map<uint64_t, uint64_t>::const_iterator from, const Run& run);

  uint64_t units_;
  uint64_t end_;  // behind the highest number
  uint64_t free_units_ = 0;
  std::map<uint64_t, uint64_t> by_place_;            // first unit -> units
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // units, first unit
};

}  // namespace pmstore::fs
