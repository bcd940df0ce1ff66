#include "pmstore/server/region_table.h"

#include <cstring>
#include <utility>

#include "base/check.h"

namespace pmstore::internal {

void RegionTable::add(RegionKind kind, Source source) {
  PMSTORE_CHECK(is_kind(kind) && !of(kind).source.end, "a kind of memory has one source");
  of(kind).source = std::move(source);
}

Result<fabric::RemoteRegion> RegionTable::provide(RegionKind kind, uint32_t number) {
  Kind& pieces = of(kind);
  const auto known = pieces.regions.find(number);
  if (known != pieces.regions.end()) {
    if (known->second != nullptr) return known->second->remote();
    return make_error(ErrorCode::kIo, "the device has refused this memory before");
  }
  const std::span<std::byte> memory = pieces.source.memory(number);
  PMSTORE_CHECK(!memory.empty(), "a region is for a piece that there is");
  auto region = device_.register_memory(memory, pieces.source.access);
  ++(region ? registered_ : refused_);
  if (!region) {
    pieces.regions.emplace(number, nullptr);
    return region.error();
  }
  const fabric::RemoteRegion remote = (*region)->remote();
  pieces.regions.emplace(number, std::move(*region));
  return remote;
}

base::Task<void> RegionTable::provide_from(RegionKind kind, uint32_t first) {
  const Kind& pieces = of(kind);
  uint32_t provided = 0;
  for (uint32_t number = first; provided < kMostRegionsInReply; ++number) {
    if (!pieces.source.end || number >= pieces.source.end()) co_return;
    const bool is_new = !pieces.regions.contains(number) && !pieces.source.memory(number).empty();
    if (is_new) {
      co_await executor_.yield();  // other requests go first
      // Another task may have been faster.
      (void)provide(kind, number);
    }
    const auto region = pieces.regions.find(number);
    if (region != pieces.regions.end() && region->second != nullptr) ++provided;
  }
}

Result<size_t> RegionTable::answer(RegionKind kind, uint32_t first,
                                   std::span<std::byte> room) const {
  if (room.size() < sizeof(RegionsReply)) {
    return make_error(ErrorCode::kTooLarge, "no room for the reply");
  }
  const auto& regions = of(kind).regions;
  MessageWriter writer(room.subspan(sizeof(RegionsReply)));
  RegionsReply reply{};
  size_t bytes = sizeof(reply);
  for (auto at = regions.lower_bound(first); at != regions.end(); ++at) {
    if (at->second == nullptr) continue;
    if (reply.count == kMostRegionsInReply || room.size() - bytes < sizeof(NumberedRegion)) break;
    writer.put(NumberedRegion{at->first, 0, at->second->remote()});
    bytes += sizeof(NumberedRegion);
    ++reply.count;
  }
  std::memcpy(room.data(), &reply, sizeof(reply));
  return bytes;
}

}  // namespace pmstore::internal
