#include "fs/striped_data_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/size_text.h"

namespace pmstore::fs {

using internal::RemoteArea;

namespace {

constexpr uint16_t kLocalServer = LocalDataSpace::kServer;

bool has_whole_units(const AreaRange& range) {
  return range.offset % kUnitBytes == 0 && range.bytes % kUnitBytes == 0;
}

}  // namespace

StripedDataSpace::StripedDataSpace(LocalDataSpace& local, QuarantineGate& gate)
    : local_(local), gate_(gate) {
  servers_.emplace(kLocalServer, Server{});
}

// ---- the servers ----

void StripedDataSpace::add(uint16_t index, std::unique_ptr<RemoteArea> area,
                           DataServerState state) {
  PMSTORE_CHECK(index != kLocalServer && area->bytes() > 0, "a server elsewhere has room");
  const bool is_new = servers_.emplace(index, Server{state, std::move(area)}).second;
  PMSTORE_CHECK(is_new, "an index is never used again");
  end_ = std::max<uint16_t>(end_, static_cast<uint16_t>(index + 1));
}

void StripedDataSpace::set_state(uint16_t index, DataServerState state) {
  servers_.at(index).state = state;
}

std::unique_ptr<RemoteArea> StripedDataSpace::remove(uint16_t index) {
  PMSTORE_CHECK(index != kLocalServer && used_bytes(index) == 0,
                "a server that goes holds nothing");
  const auto found = servers_.find(index);
  PMSTORE_CHECK(found != servers_.end(), "a server goes once");
  std::unique_ptr<RemoteArea> area = std::move(found->second.area);
  servers_.erase(found);
  return area;
}

RemoteArea* StripedDataSpace::remote(uint16_t index) const {
  const auto found = servers_.find(index);
  return found == servers_.end() ? nullptr : found->second.area.get();
}

DataServerState StripedDataSpace::state(uint16_t index) const {
  const auto found = servers_.find(index);
  return found == servers_.end() ? DataServerState::kGone : found->second.state;
}

uint64_t StripedDataSpace::used_bytes(uint16_t index) const {
  if (index == kLocalServer) return local_.total_bytes() - local_.free_bytes();
  const RemoteArea* const area = remote(index);
  return area == nullptr ? 0 : area->bytes() - area->free_bytes();
}

bool StripedDataSpace::takes(const Server& server) const {
  return server.state == DataServerState::kInUse &&
         (server.area == nullptr || server.area->is_connected());
}

uint16_t StripedDataSpace::takers() const {
  uint16_t count = 0;
  for (const auto& [index, server] : servers_) count += takes(server) ? 1 : 0;
  return count;
}

uint16_t StripedDataSpace::taker(uint64_t number) const {
  uint64_t skip = number % takers();
  for (const auto& [index, server] : servers_) {
    if (takes(server) && skip-- == 0) return index;
  }
  PMSTORE_CHECK(false, "one of the takers is found");
  return kLocalServer;
}

bool StripedDataSpace::takers_are_away() const {
  return std::any_of(servers_.begin(), servers_.end(), [](const auto& each) {
    const Server& server = each.second;
    return server.state == DataServerState::kInUse && server.area != nullptr &&
           !server.area->is_connected();
  });
}

bool StripedDataSpace::is_there(uint16_t server) const {
  const RemoteArea* const area = remote(server);
  return area == nullptr || area->is_connected();
}

bool StripedDataSpace::gives_away(uint16_t server) const {
  return state(server) == DataServerState::kDraining && is_there(server);
}

uint64_t StripedDataSpace::total_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [index, server] : servers_) {
    if (server.state != DataServerState::kInUse) continue;
    bytes += server.area == nullptr ? local_.total_bytes() : server.area->bytes();
  }
  return bytes;
}

uint64_t StripedDataSpace::free_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [index, server] : servers_) {
    if (!takes(server)) continue;
    bytes += server.area == nullptr ? local_.free_bytes() : server.area->free_bytes();
  }
  return bytes;
}

uint64_t StripedDataSpace::growable_bytes() const {
  return takes(servers_.at(kLocalServer)) ? local_.growable_bytes() : 0;
}

base::Task<Status> StripedDataSpace::make_room() {
  return takes(servers_.at(kLocalServer)) ? local_.make_room() : DataSpace::make_room();
}

void StripedDataSpace::end_client(const ClientId& client) {
  for (const auto& [index, server] : servers_) {
    if (server.area != nullptr) server.area->end_client(client);
  }
}

base::Task<void> StripedDataSpace::clients_ended(uint64_t until_ns) {
  constexpr uint64_t kMostPauseNs = 250'000'000;
  uint64_t pause_ns = 1'000'000;
  const auto is_ending = [this] {
    return std::any_of(servers_.begin(), servers_.end(), [](const auto& each) {
      return each.second.area != nullptr && each.second.area->has_ends();
    });
  };
  base::Executor& executor = local_.executor();
  while (is_ending() && executor.now_ns() < until_ns) {
    co_await executor.sleep_until(std::min(executor.now_ns() + pause_ns, until_ns));
    pause_ns = std::min(2 * pause_ns, kMostPauseNs);
  }
}

base::Task<void> StripedDataSpace::close() {
  std::vector<RemoteArea*> areas;
  for (const auto& [index, server] : servers_) {
    if (server.area != nullptr) areas.push_back(server.area.get());
  }
  for (RemoteArea* const area : areas) co_await area->close();
}

RemoteArea& StripedDataSpace::area_of(const AreaRange& range) const {
  RemoteArea* const area = remote(range.server);
  PMSTORE_CHECK(area != nullptr && area->is_inside(range.offset, range.bytes),
                "a range lies in the area of a server that is known");
  return *area;
}

// ---- which units are free ----

Status StripedDataSpace::claim(const AreaRange& range) {
  if (range.server == kLocalServer) return local_.claim(range);
  RemoteArea* const area = remote(range.server);
  if (area != nullptr && has_whole_units(range) && area->claim(range.offset, range.bytes))
    return {};
  return make_error(
      ErrorCode::kDamaged,
      area == nullptr
          ? fmt::format("a file has data at server {}, which is not among the data servers: run "
                        "pmstore fs check",
                        range.server)
          : fmt::format("{} at {} of the area of data server {} are named twice or lie outside: "
                        "run pmstore fs check",
                        base::size_text(range.bytes), range.offset, range.server));
}

Result<AreaRange> StripedDataSpace::allocate(uint16_t server, uint64_t least, uint64_t most) {
  PMSTORE_CHECK(takes(servers_.at(server)), "new data goes to servers that take some");
  if (server == kLocalServer) {
    Result<AreaRange> place = local_.allocate(server, least, most);
    const bool is_full = !place && place.code() == ErrorCode::kFull;
    // The others have room meanwhile.
    if (is_full && takers() > 1 && local_.grow_beside) local_.grow_beside();
    return place;
  }
  RemoteArea& area = *remote(server);
  const auto run = area.allocate(least / kUnitBytes, most / kUnitBytes);
  if (run) return AreaRange{server, run->first * kUnitBytes, run->units * kUnitBytes};
  return make_error(ErrorCode::kFull,
                    fmt::format("no {} together are free for file data at data server {}: remove "
                                "files, or add a data server",
                                base::size_text(least), server));
}

// Also of one that is away: it is cleaned when it is back.
std::optional<AreaRange> StripedDataSpace::take_unclean(uint16_t server) {
  if (server == kLocalServer) return local_.take_unclean(server);
  RemoteArea* const area = remote(server);
  if (area == nullptr) return std::nullopt;
  const auto run = area->allocate(1, kMostUncleanBytes / kUnitBytes);
  if (!run) return std::nullopt;
  return AreaRange{server, run->first * kUnitBytes, run->units * kUnitBytes};
}

void StripedDataSpace::release(const AreaRange& range) {
  if (range.server == kLocalServer) return local_.release(range);
  PMSTORE_CHECK(has_whole_units(range), "extents are whole units");
  area_of(range).release(range.offset, range.bytes);
}

// ---- generation words ----

uint64_t StripedDataSpace::generation(const AreaRange& range) const {
  if (range.server == kLocalServer) return local_.generation(range);
  return area_of(range).word(range.offset);
}

base::Task<Status> StripedDataSpace::change_generations(std::vector<AreaRange> ranges) {
  std::map<uint16_t, std::vector<uint64_t>> elsewhere;
  std::vector<AreaRange> here;
  for (const AreaRange& range : ranges) {
    if (range.server == kLocalServer) {
      here.push_back(range);
    } else {
      elsewhere[range.server].push_back(range.offset);
    }
  }
  if (!here.empty()) {
    PMSTORE_CO_TRY_STATUS(co_await local_.change_generations(std::move(here)));
  }
  for (auto& [server, offsets] : elsewhere) {
    PMSTORE_CO_TRY_STATUS(co_await remote(server)->change_words(std::move(offsets)));
  }
  co_return Status{};
}

// ---- bytes ----

base::Task<Status> StripedDataSpace::write(AreaRange range, std::span<const std::byte> bytes) {
  PMSTORE_CHECK(bytes.size() == range.bytes, "a range is written as a whole");
  if (range.server == kLocalServer) return local_.write(range, bytes);
  return area_of(range).write(range.offset, bytes);
}

base::Task<Status> StripedDataSpace::zero(AreaRange range) {
  if (range.server == kLocalServer) return local_.zero(range);
  return area_of(range).zero(range.offset, range.bytes);
}

base::Task<Status> StripedDataSpace::read(AreaRange range, std::span<std::byte> into) {
  PMSTORE_CHECK(into.size() == range.bytes, "a range is read as a whole");
  if (range.server == kLocalServer) return local_.read(range, into);
  return area_of(range).read(range.offset, into);
}

void StripedDataSpace::retire(const AreaRange& range) {
  if (range.server == kLocalServer) return local_.retire(range);
  gate_.retired(range);
}

base::Task<Status> StripedDataSpace::clean(AreaRange range) {
  if (range.server == kLocalServer) co_return co_await local_.clean(range);
  PMSTORE_CHECK(has_whole_units(range), "whole units are cleaned");
  RemoteArea& area = area_of(range);
  PMSTORE_CO_TRY_STATUS(co_await gate_.closed(range));
  // The gate lets a client go that is forgotten; what it has posted ends there only.
  PMSTORE_CO_TRY_STATUS(co_await area.clients_ended());
  // Nor has the namespace's own session with it anything under way.
  PMSTORE_CO_TRY_STATUS(co_await area.landed());
  co_return co_await area.zero(range.offset, range.bytes);
}

}  // namespace pmstore::fs
