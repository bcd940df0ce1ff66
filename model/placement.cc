// Invariant: ranges_ are disjoint; model addresses are given out once.
#include "model/placement.h"

#include "base/check.h"

namespace pmstore::model {

void Placement::place(std::span<const std::byte> range, Medium medium, uint32_t socket) {
  if (range.empty()) return;
  const auto begin = reinterpret_cast<uintptr_t>(range.data());
  auto after = ranges_.upper_bound(begin);
  if (after != ranges_.begin()) {
    const auto before = std::prev(after);
    if (before->first == begin && before->second.bytes == range.size()) {
      before->second.first.medium = medium;
      before->second.first.socket = socket;
      return;
    }
    PMSTORE_CHECK(before->first + before->second.bytes <= begin, "placed ranges do not overlap");
  }
  PMSTORE_CHECK(after == ranges_.end() || begin + range.size() <= after->first,
                "placed ranges do not overlap");
  constexpr uint64_t kAlignment = 1u << 20;
  ranges_.emplace_hint(after, begin, Range{range.size(), {next_, medium, socket}});
  next_ += (range.size() + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
}

void Placement::remove(std::span<const std::byte> range) {
  ranges_.erase(reinterpret_cast<uintptr_t>(range.data()));
}

bool Placement::overlaps(std::span<const std::byte> range) const {
  const auto begin = reinterpret_cast<uintptr_t>(range.data());
  const auto after = ranges_.lower_bound(begin + range.size());
  if (after == ranges_.begin()) return false;
  const auto& [first, before] = *std::prev(after);
  return first + before.bytes > begin;
}

Location Placement::find(const void* address) const {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  auto after = ranges_.upper_bound(wanted);
  if (after == ranges_.begin()) return {};
  const auto& [begin, range] = *std::prev(after);
  if (wanted - begin >= range.bytes) return {};
  Location location = range.first;
  location.address += wanted - begin;
  return location;
}

}  // namespace pmstore::model
