// Of LogDirectory: the extents that logs have, and what is free in them.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/size_text.h"
#include "log/internal/log_directory.h"
#include "log/ring_layout.h"
#include "persist/padding.h"

namespace pmstore::log::internal {
namespace {

// A room has at most this share of the pool, unless one log needs more: the extent table has 64
// entries for everything.
constexpr uint64_t kPoolPerRoom = 32;

}  // namespace

// ---- extents ----

const persist::Extent* LogDirectory::find_room(uint64_t name) const {
  const auto& all = pool_->info().extents;
  const auto found = std::find_if(all.begin(), all.end(), [&](const persist::Extent& extent) {
    return extent.kind == persist::ExtentKind::kLog && extent.offset != extent_.offset &&
           room_name(extent.entry, extent.generation) == name;
  });
  return found == all.end() ? nullptr : &*found;
}

std::optional<LogExtent> LogDirectory::find_extent(uint64_t name) const {
  if (name == 0) return LogExtent{0, extent_.offset, extent_.bytes};
  const persist::Extent* const room = find_room(name);
  if (room == nullptr) return std::nullopt;
  return LogExtent{name, room->offset, room->bytes};
}

std::vector<LogExtent> LogDirectory::extents() const {
  std::vector<LogExtent> all;
  if (!exists()) return all;
  all.push_back({0, extent_.offset, extent_.bytes});
  for (const persist::Extent& extent : pool_->info().extents) {
    if (extent.kind != persist::ExtentKind::kLog || extent.offset == extent_.offset) continue;
    all.push_back({room_name(extent.entry, extent.generation), extent.offset, extent.bytes});
  }
  return all;
}

bool LogDirectory::is_used(uint64_t extent) const {
  return std::any_of(places_.begin(), places_.end(), [&](const Place& place) {
    return place.live() && place.slot.extent == extent;
  });
}

bool LogDirectory::has_region(const LogSlot& slot) const {
  const auto extent = find_extent(slot.extent);
  return extent && slot.region_offset <= extent->bytes &&
         slot.region_bytes <= extent->bytes - slot.region_offset;
}

uint64_t LogDirectory::region_offset(const LogSlot& slot) const {
  PMSTORE_CHECK(has_region(slot), "a region would lie outside of the extents of logs");
  return find_extent(slot.extent)->offset + slot.region_offset;
}

uint64_t LogDirectory::extent_bytes() const {
  uint64_t bytes = 0;
  for (const LogExtent& extent : extents()) bytes += extent.bytes;
  return bytes;
}

// Beside what is reserved and kept for others.
uint64_t LogDirectory::free_in_pool() const {
  const uint64_t kept = kept_ ? kept_() : 0;
  return persist::round_down(pool_->room_for(persist::ExtentKind::kLog, kept),
                             persist::kXpLineBytes);
}

// That, and within the limit.
uint64_t LogDirectory::free_for_logs() const {
  const uint64_t left = most_bytes_ - std::min(most_bytes_, extent_bytes());
  // A smaller extent takes as much of the pool.
  if (left < pool_->least_extent()) return 0;
  return std::min(free_in_pool(), persist::round_down(left, persist::kXpLineBytes));
}

std::optional<uint64_t> LogDirectory::new_room_bytes(uint64_t bytes) const {
  const uint64_t needed = kRoomReservedBytes + bytes;
  const uint64_t most = free_for_logs();
  if (needed > most) return std::nullopt;
  const uint64_t step = std::min(extent_bytes() / 2, pool_->info().bytes / kPoolPerRoom);
  const uint64_t wanted = std::max({needed, step, pool_->least_extent()});
  return std::min(persist::round_up(std::min(wanted, most), persist::kXpLineBytes), most);
}

Result<LogDirectory::Region> LogDirectory::take_room(uint64_t bytes) {
  PMSTORE_CHECK(exists() && durable_, "slots name rooms");
  const uint64_t kept = std::min(kept_ ? kept_() : 0, pool_->largest_free_extent());
  const auto taken = new_room_bytes(bytes);
  if (!taken) return no_room(bytes);
  PMSTORE_TRY(const persist::Extent room,
              pool_->allocate_extent(persist::ExtentKind::kLog, *taken));
  PMSTORE_CHECK(room.bytes >= kRoomReservedBytes + bytes, "the region lies in the room");
  PMSTORE_CHECK(extent_bytes() <= most_bytes_, "no extent is taken above the limit");
  // `kept` counts what a pool's objects take beside their extents.
  PMSTORE_CHECK(pool_->largest_free_extent() + pool_->least_extent() / 8 >= kept,
                "what is kept free for others stays free");
  return Region{room_name(room.entry, room.generation), kRoomReservedBytes, true};
}

Result<bool> LogDirectory::zero_room_ahead(uint64_t bytes, uint64_t most_bytes) {
  const auto taken = new_room_bytes(bytes);
  if (!taken) return false;
  return pool_->zero_ahead(persist::ExtentKind::kLog, *taken, most_bytes);
}

Status LogDirectory::give_back(uint64_t room) {
  PMSTORE_CHECK(durable_ && !is_used(room), "a log would lie in memory that is not the logs'");
  const persist::Extent* const extent = find_room(room);
  PMSTORE_CHECK(extent != nullptr, "the area stays, and a room is given back once");
  return pool_->free_extent(persist::Extent(*extent));
}

// ---- room in them ----

Result<size_t> LogDirectory::free_place() const {
  for (size_t place = 0; place < places_.size(); ++place) {
    if (!places_[place].damaged && !places_[place].live()) return place;
  }
  if (places_.size() < header_.slots) return places_.size();
  return make_error(
      ErrorCode::kFull,
      fmt::format("all {} places for logs of this pool are taken: delete a log", places_.size()));
}

std::vector<LogDirectory::Gap> LogDirectory::regions() const {
  std::vector<Gap> taken;
  taken.reserve(places_.size());
  for (const Place& place : places_) {
    if (!place.live()) continue;
    taken.push_back({place.slot.extent, place.slot.region_offset, place.slot.region_bytes});
  }
  std::sort(taken.begin(), taken.end(), [](const Gap& a, const Gap& b) {
    return std::pair(a.extent, a.offset) < std::pair(b.extent, b.offset);
  });
  return taken;
}

void LogDirectory::add_gaps(const LogExtent& extent, std::span<const Gap> taken,
                            std::vector<Gap>& free) const {
  uint64_t at = extent.name == 0 ? header_.regions_offset : kRoomReservedBytes;
  for (const Gap& region : taken) {
    PMSTORE_CHECK(region.extent == extent.name, "a gap lies in the extent of its neighbours");
    if (region.offset > at) free.push_back({extent.name, at, region.offset - at});
    at = std::max(at, region.offset + region.bytes);
  }
  const uint64_t end = persist::round_down(extent.bytes, persist::kXpLineBytes);
  if (end > at) free.push_back({extent.name, at, end - at});
}

std::vector<LogDirectory::Gap> LogDirectory::gaps() const {
  const std::vector<Gap> taken = regions();
  std::vector<Gap> free;
  for (const LogExtent& extent : extents()) {
    const auto [from, to] =
        std::equal_range(taken.begin(), taken.end(), Gap{extent.name, 0, 0},
                         [](const Gap& a, const Gap& b) { return a.extent < b.extent; });
    add_gaps(extent, {from, to}, free);
  }
  return free;
}

uint64_t LogDirectory::largest_free_region() const {
  uint64_t largest = 0;
  for (const Gap& gap : gaps()) largest = std::max(largest, gap.bytes);
  const uint64_t more = free_for_logs();
  return std::max(largest, more - std::min(more, kRoomReservedBytes));
}

std::optional<LogDirectory::Region> LogDirectory::free_region(uint64_t bytes) const {
  const Gap* best = nullptr;
  const std::vector<Gap> free = gaps();
  for (const Gap& gap : free) {
    if (gap.bytes >= bytes && (best == nullptr || gap.bytes < best->bytes)) best = &gap;
  }
  if (best == nullptr) return std::nullopt;
  return Region{best->extent, best->offset, false};
}

Error LogDirectory::no_room(uint64_t bytes) const {
  const uint64_t largest = exists() ? largest_free_region() : 0;
  const bool is_limited = free_for_logs() < free_in_pool();
  std::string what_to_do =
      "delete a log, or free other space of the pool (pmstore pool info shows who has it)";
  const std::string reserved = pool_->reserved_for_others(persist::ExtentKind::kLog);
  if (is_limited) {
    what_to_do = fmt::format(
        "delete a log, or raise --log-limit (pmstore pool limit): logs have {}, limited to {}",
        base::size_text(extent_bytes()), base::size_text(most_bytes_));
  } else if (!reserved.empty() && pool_->largest_free_extent() >= bytes + kRoomReservedBytes) {
    what_to_do = fmt::format(
        "delete a log, or lower the reserve (pmstore pool limit): of the free space of the pool is "
        "reserved {}",
        reserved);
  }
  return make_error(
      ErrorCode::kFull,
      fmt::format("no room for a log of {}: the largest that fits has {}; {}",
                  base::size_text(bytes - kRingHeaderBytes),
                  base::size_text(largest >= kMinRingBytes ? largest - kRingHeaderBytes : 0),
                  what_to_do));
}

}  // namespace pmstore::log::internal
