#include "tests/crash/local_areas.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pmstore::crash {
namespace {

// As the area itself names it.
fs::AreaRange in_area(fs::AreaRange range) {
  range.server = fs::LocalDataSpace::kServer;
  return range;
}

}  // namespace

void LocalAreas::add(const fs::FileArea& area) {
  servers_.push_back({std::make_unique<fs::LocalDataSpace>(executor_, area), false});
}

uint64_t LocalAreas::used_bytes(uint16_t server) const {
  const fs::LocalDataSpace& space = *servers_[server].space;
  return space.total_bytes() - space.free_bytes();
}

uint16_t LocalAreas::takers() const {
  return static_cast<uint16_t>(std::count_if(servers_.begin(), servers_.end(),
                                             [](const Server& server) { return !server.drains; }));
}

uint16_t LocalAreas::taker(uint64_t number) const {
  uint64_t left = number % takers();
  for (uint16_t i = 0; i < servers(); ++i) {
    if (servers_[i].drains) continue;
    if (left-- == 0) return i;
  }
  PMSTORE_CHECK(false, "some server takes new data");
  return 0;
}

uint64_t LocalAreas::total_bytes() const {
  uint64_t sum = 0;
  for (const Server& server : servers_) sum += server.space->total_bytes();
  return sum;
}
uint64_t LocalAreas::free_bytes() const {
  uint64_t sum = 0;
  for (const Server& server : servers_) sum += server.space->free_bytes();
  return sum;
}

uint64_t LocalAreas::growable_bytes() const {
  return servers_.front().drains ? 0 : servers_.front().space->growable_bytes();
}
base::Task<Status> LocalAreas::make_room() {
  return servers_.front().drains ? DataSpace::make_room() : servers_.front().space->make_room();
}

Status LocalAreas::claim(const fs::AreaRange& range) {
  if (range.server >= servers_.size()) {
    return make_error(ErrorCode::kDamaged, "an extent of a data server that there is not");
  }
  return of(range).claim(in_area(range));
}
Result<fs::AreaRange> LocalAreas::allocate(uint16_t server, uint64_t least, uint64_t most) {
  PMSTORE_TRY(fs::AreaRange range,
              servers_[server].space->allocate(fs::LocalDataSpace::kServer, least, most));
  range.server = server;
  return range;
}
std::optional<fs::AreaRange> LocalAreas::take_unclean(uint16_t server) {
  auto range = servers_[server].space->take_unclean(fs::LocalDataSpace::kServer);
  if (range) range->server = server;
  return range;
}

void LocalAreas::give_back(const fs::AreaRange& range) { of(range).give_back(in_area(range)); }
uint64_t LocalAreas::generation(const fs::AreaRange& range) const {
  return of(range).generation(in_area(range));
}
base::Task<Status> LocalAreas::change_generations(std::vector<fs::AreaRange> ranges) {
  for (const fs::AreaRange& range : ranges) {
    std::vector<fs::AreaRange> one{in_area(range)};
    PMSTORE_CO_TRY_STATUS(co_await of(range).change_generations(std::move(one)));
  }
  co_return Status{};
}
base::Task<Status> LocalAreas::write(fs::AreaRange range, std::span<const std::byte> bytes) {
  return of(range).write(in_area(range), bytes);
}
base::Task<Status> LocalAreas::zero(fs::AreaRange range) { return of(range).zero(in_area(range)); }
base::Task<Status> LocalAreas::read(fs::AreaRange range, std::span<std::byte> into) {
  return of(range).read(in_area(range), into);
}
base::Task<Status> LocalAreas::clean(fs::AreaRange range) {
  return of(range).clean(in_area(range));
}
void LocalAreas::release(const fs::AreaRange& range) { of(range).release(in_area(range)); }

}  // namespace pmstore::crash
