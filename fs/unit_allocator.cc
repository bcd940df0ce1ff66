#include "fs/unit_allocator.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace pmstore::fs {

UnitAllocator::UnitAllocator(uint64_t units) : units_(units), end_(units) {
  if (units > 0) insert({0, units});
}

void UnitAllocator::add(const Run& run) {
  PMSTORE_CHECK(run.units > 0 && run.first > end_, "numbers grow, and runs never touch");
  units_ += run.units;
  end_ = run.first + run.units;
  insert(run);
}

void UnitAllocator::remove(const Run& run) {
  PMSTORE_CHECK(is_free_run(run), "units that go are free, all of them");
  erase(by_place_.find(run.first));
  units_ -= run.units;
  PMSTORE_CHECK(free_units_ <= units_, "more units would be free than there are");
}

void UnitAllocator::insert(const Run& run) {
  const bool placed = by_place_.emplace(run.first, run.units).second;
  const bool sized = by_size_.emplace(run.units, run.first).second;
  PMSTORE_CHECK(placed && sized, "a run is free once");
  free_units_ += run.units;
  PMSTORE_CHECK(free_units_ <= units_, "more units would be free than there are");
}

void UnitAllocator::erase(std::map<uint64_t, uint64_t>::const_iterator run) {
  const size_t erased = by_size_.erase({run->second, run->first});
  PMSTORE_CHECK(erased == 1 && free_units_ >= run->second, "both orders hold the same runs");
  free_units_ -= run->second;
  by_place_.erase(run);
}

bool UnitAllocator::is_taken(const Run& run) const {
  PMSTORE_CHECK(is_inside(run), "units of the area are asked for");
  const auto behind = by_place_.lower_bound(run.first + run.units);
  if (behind == by_place_.begin()) return true;
  const auto last = std::prev(behind);  // the last run that begins before the end
  return last->first + last->second <= run.first;
}

void UnitAllocator::take(std::map<uint64_t, uint64_t>::const_iterator from, const Run& run) {
  const Run whole{from->first, from->second};
  const uint64_t end = run.first + run.units;
  const uint64_t whole_end = whole.first + whole.units;
  PMSTORE_CHECK(whole.first <= run.first && end <= whole_end, "only free units are taken");
  erase(from);
  if (run.first > whole.first) insert({whole.first, run.first - whole.first});
  if (end < whole_end) insert({end, whole_end - end});
}

bool UnitAllocator::claim(const Run& run) {
  if (!is_inside(run)) return false;
  const auto behind = by_place_.upper_bound(run.first);
  if (behind == by_place_.begin()) return false;
  const auto from = std::prev(behind);
  if (from->first + from->second < run.first + run.units) return false;
  take(from, run);
  return true;
}

std::optional<UnitAllocator::Run> UnitAllocator::allocate(uint64_t least, uint64_t most) {
  PMSTORE_CHECK(0 < least && least <= most, "between `least` and `most` units are asked for");
  auto found = by_size_.lower_bound({most, 0});
  if (found == by_size_.end()) {
    if (largest_run() < least) return std::nullopt;
    found = std::prev(by_size_.end());
  }
  const Run run{found->second, std::min(found->first, most)};
  take(by_place_.find(run.first), run);
  return run;
}

void UnitAllocator::release(const Run& run) {
  PMSTORE_CHECK(is_taken(run), "free units would be given away twice");
  Run whole = run;
  auto next = by_place_.lower_bound(run.first);
  if (next != by_place_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == run.first) {
      whole = {before->first, before->second + whole.units};
      erase(before);
    }
  }
  next = by_place_.lower_bound(run.first);
  if (next != by_place_.end() && next->first == run.first + run.units) {
    whole.units += next->second;
    erase(next);
  }
  insert(whole);
}

}  // namespace pmstore::fs
