// Where the redo rings of clients are (pmstore/shard/table_catalog.h).
#include <algorithm>

#include "base/check.h"
#include "base/random.h"
#include "base/size_text.h"
#include "log/ring_room.h"
#include "pmstore/shard/table_catalog.h"

namespace pmstore::internal {

namespace {

// The extent table has 64 entries for everything.
constexpr uint32_t kMostRingExtents = 32;

}  // namespace

// A pool file gives at least 2.5 MiB to an extent: several small rings share one.
uint32_t TableCatalog::rings_per_extent() const {
  const uint64_t all_bytes = header_.ring_count * header_.ring_bytes;
  const auto extents = static_cast<uint32_t>(
      std::clamp<uint64_t>(all_bytes / (2 * pool_->least_extent()), 1, kMostRingExtents));
  return (header_.ring_count + extents - 1) / extents;
}

uint64_t TableCatalog::most_rings_bytes() const {
  return header_.rings_offset != 0 ? 0 : header_.ring_count * header_.ring_bytes;
}

uint64_t TableCatalog::first_rings_bytes() const {
  if (most_rings_bytes() == 0) return 0;
  // Two objects of libpmemobj take up to a chunk more than one.
  return std::max(rings_per_extent() * header_.ring_bytes, pool_->least_extent()) +
         pool_->least_extent() / 8;
}

uint64_t TableCatalog::kept_for_rings() const {
  const auto& extents = pool_->info().extents;
  const bool there_are = std::any_of(extents.begin(), extents.end(), [](const auto& extent) {
    return extent.kind == persist::ExtentKind::kRings;
  });
  return there_are ? 0 : first_rings_bytes();
}

std::vector<TableCatalog::RingPlace> TableCatalog::places_in(const persist::Extent& extent) const {
  const uint64_t name = base::mix64(uint64_t{extent.entry} << 32 | extent.generation);
  std::vector<RingPlace> places;
  for (uint64_t i = 0; i < extent.bytes / header_.ring_bytes; ++i) {
    places.push_back({extent.offset + i * header_.ring_bytes,
                      static_cast<uint32_t>(base::mix64(header_.pool ^ (name + i))), extent});
  }
  return places;
}

Result<std::vector<TableCatalog::RingPlace>> TableCatalog::ring_places() const {
  std::vector<RingPlace> places;
  if (header_.version < kFirstVersionWithRingExtents || header_.rings_offset != 0) {
    for (uint32_t i = 0; i < header_.ring_count; ++i) {
      places.push_back({header_.rings_offset + i * header_.ring_bytes,
                        static_cast<uint32_t>(base::mix64(header_.pool + i)), std::nullopt});
    }
    return places;
  }
  for (const persist::Extent& extent : pool_->info().extents) {
    if (extent.kind != persist::ExtentKind::kRings) continue;
    const uint64_t rings = header_.ring_count == 0 ? 0 : extent.bytes / header_.ring_bytes;
    if (rings == 0 || extent.bytes % header_.ring_bytes != 0 ||
        rings > header_.ring_count - places.size()) {
      return make_error(ErrorCode::kBadPool,
                        path() +
                            ": the pool has an extent of client rings that is none of its "
                            "catalog's; restore the pool from a backup");
    }
    const std::vector<RingPlace> in_extent = places_in(extent);
    places.insert(places.end(), in_extent.begin(), in_extent.end());
  }
  return places;
}

Result<bool> TableCatalog::zero_ahead_of_rings(uint32_t count, uint64_t most_bytes) const {
  return pool_->zero_ahead(persist::ExtentKind::kRings, count * header_.ring_bytes, most_bytes);
}

Result<std::vector<TableCatalog::RingPlace>> TableCatalog::make_rings(uint32_t count) const {
  PMSTORE_CHECK(count > 0 && header_.rings_offset == 0, "else the pool came with its rings");
  const auto fill = [&](const persist::Extent& extent) -> Status {
    for (const RingPlace& place : places_in(extent)) {
      PMSTORE_TRY(log::RingRoom room, log::RingRoom::zeroed(pool_->memory(), place.offset,
                                                            header_.ring_bytes, place.salt));
      PMSTORE_TRY_STATUS(log::Ring::format(std::move(room)));
    }
    return {};
  };
  PMSTORE_TRY(
      const persist::Extent extent,
      pool_->allocate_filled(persist::ExtentKind::kRings, count * header_.ring_bytes, fill));
  return places_in(extent);
}

Result<log::Ring> TableCatalog::open_ring(const RingPlace& place) const {
  PMSTORE_TRY(auto opened,
              log::Ring::open(pool_->memory(), place.offset, header_.ring_bytes, place.salt));
  opened.set_padding(pool_->info().padding);
  return opened;
}

Result<std::vector<persist::Extent>> TableCatalog::make_redo_room() {
  const Error no_room =
      make_error(ErrorCode::kFull,
                 "the pool has no room for a shard log of " + base::size_text(header_.log_bytes) +
                     " and " + std::to_string(header_.ring_count) + " client rings of " +
                     base::size_text(header_.ring_bytes) +
                     ": use a smaller log, fewer or smaller rings, or a larger pool");
  const auto or_no_room = [&](Error error) {
    return error.code == ErrorCode::kFull ? no_room : std::move(error);
  };
  const uint64_t most = pool_->largest_free_extent();
  if (header_.log_bytes > most || (header_.ring_count > 0 && header_.ring_bytes > most)) {
    return no_room;
  }
  if (has_log_extent()) {
    auto log = pool_->allocate_extent(persist::ExtentKind::kShardLog, header_.log_bytes);
    if (!log) return or_no_room(log.error());
    header_.log_offset = log->offset;
  }
  std::vector<persist::Extent> ring_room;
  for (uint32_t left = header_.ring_count; left > 0;) {
    const uint32_t count = std::min(left, rings_per_extent());
    auto extent = pool_->allocate_extent(persist::ExtentKind::kRings, count * header_.ring_bytes);
    if (!extent) return or_no_room(extent.error());
    ring_room.push_back(*extent);
    left -= count;
  }
  return ring_room;
}

}  // namespace pmstore::internal
