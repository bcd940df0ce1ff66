// Of LogStore: how a log comes into being, and the space that it gets.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/size_text.h"
#include "log/internal/log_store_state.h"
#include "log/log_store.h"
#include "log/ring_room.h"

namespace pmstore::log {

using internal::LogDirectory;
using internal::LogRing;
using Log = internal::StoredLog;

namespace {

uint64_t region_bytes_of(const LogOptions& options) {
  return kRingHeaderBytes + persist::round_up(options.bytes, persist::kXpLineBytes);
}

Status check_options(const LogOptions& options, const ReplicaPlace& replica, uint64_t pool_bytes) {
  constexpr uint64_t kLeastBytes = kMinRingBytes - kRingHeaderBytes;
  if (options.bytes < kLeastBytes || options.bytes > pool_bytes) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("a log of {} is too {}: use {} to {}, what the pool has",
                    base::size_text(options.bytes), options.bytes < kLeastBytes ? "small" : "large",
                    base::size_text(kLeastBytes), base::size_text(pool_bytes)));
  }
  if (options.when_full != FullPolicy::kBackPressure &&
      options.when_full != FullPolicy::kTrimOldest) {
    return make_error(ErrorCode::kInvalidArgument, "a log's policy is one of FullPolicy");
  }
  if (!is_boundary(replica.begin_lsn, region_bytes_of(options) - kRingHeaderBytes) ||
      !internal::is_possible_index(replica.begin_lsn, replica.begin_index)) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("a log of {} bytes cannot begin at lsn {} with index {}",
                                  options.bytes, replica.begin_lsn, replica.begin_index));
  }
  return {};
}

}  // namespace

Status internal::check_replicas(const ReplicaPlace& place) {
  const auto& replicas = place.replicas;
  const bool fit = std::all_of(replicas.begin(), replicas.end(), [](const std::string& uri) {
    return !uri.empty() && uri.size() <= kMaxReplicaUriBytes && uri.find('\0') == uri.npos;
  });
  const bool self = place.self < replicas.size() || (replicas.empty() && place.self == 0);
  const bool once =
      std::set<std::string>(replicas.begin(), replicas.end()).size() == replicas.size();
  if (fit && self && once && replicas.size() <= kMaxReplicas && place.membership > 0) return {};
  return make_error(
      ErrorCode::kInvalidArgument,
      fmt::format("a log has at most {} replicas, with different URIs of 1 to {} bytes",
                  kMaxReplicas, kMaxReplicaUriBytes));
}

void internal::set_replicas(LogSlot& slot, const ReplicaPlace& place) {
  slot.membership = place.membership;
  slot.replicas = static_cast<uint8_t>(place.replicas.size());
  slot.self = static_cast<uint8_t>(place.self);
  std::memset(slot.replica_uri, 0, sizeof slot.replica_uri);
  for (size_t i = 0; i < place.replicas.size(); ++i) {
    std::memcpy(slot.replica_uri[i], place.replicas[i].data(), place.replicas[i].size());
  }
}

Log* LogStore::State::named(std::string_view name) {
  const auto& places = directory.places();
  for (size_t place = 0; place < places.size(); ++place) {
    const LogSlot& at = places[place].slot;
    if (places[place].live() && std::string_view(at.name, at.name_bytes) == name) {
      return &logs[place];
    }
  }
  return nullptr;
}

Status LogStore::State::check_create(std::string_view name, const LogOptions& options,
                                     const ReplicaPlace& replica) {
  PMSTORE_TRY_STATUS(check_log_name(name));
  PMSTORE_TRY_STATUS(internal::check_replicas(replica));
  if (failed) return *failed;
  if (named(name) != nullptr) {
    return make_error(ErrorCode::kAlreadyExists, fmt::format("there is a log '{}' already", name));
  }
  PMSTORE_TRY_STATUS(check_options(options, replica, pool.info().bytes));
  PMSTORE_TRY_STATUS(directory.free_place());
  if (directory.next_id() != 0) return {};
  return make_error(
      ErrorCode::kFull,
      "the highest id that there is was given to a log of this pool, so no further log can be "
      "made: its log directory is damaged; run `pmstore pool check`");
}

// ---- space ----

Status LogStore::State::make_area() {
  PMSTORE_TRY_STATUS(fail_unless(directory.make_area()));
  area_is_new = true;
  return {};
}

// What is refused takes nothing. No device has a right to the area: extents() has not shown it.
Status LogStore::State::drop_new_area() {
  if (!std::exchange(area_is_new, false)) return {};
  prepared.reset();  // its region may lie in the area
  return fail_unless(directory.drop_area());
}

Result<LogDirectory::Region> LogStore::State::make_region(uint64_t bytes) {
  if (!directory.exists()) {
    PMSTORE_TRY_STATUS(make_area());
  }
  if (const auto region = directory.free_region(bytes)) return *region;
  auto taken = directory.take_room(bytes);
  if (taken) return *taken;
  if (taken.code() == ErrorCode::kFull) {
    PMSTORE_TRY_STATUS(drop_new_area());
  }
  return latch(taken.error());
}

Result<RingRoom> LogStore::State::make_room_of(LogSlot& slot) {
  const uint32_t salt = directory.salt(slot.id);
  const auto ahead = std::exchange(prepared, std::nullopt);
  PMSTORE_TRY(const LogDirectory::Region region, make_region(slot.region_bytes));
  slot.extent = region.extent;
  slot.region_offset = region.offset;
  const uint64_t offset = directory.region_offset(slot);
  if (region.zeroed) return RingRoom::zeroed(memory, offset, slot.region_bytes, salt);
  const bool is_ahead =
      ahead && ahead->region == region && ahead->bytes == slot.region_bytes && ahead->salt == salt;
  PMSTORE_TRY(RingRoom room, is_ahead ? Result<RingRoom>(ahead->room)
                                      : RingRoom::at(memory, offset, slot.region_bytes, salt));
  PMSTORE_TRY_STATUS(room.erase_some(UINT64_MAX));
  return room;
}

Result<bool> LogStore::State::erase_ahead(const LogDirectory::Region& region, uint64_t bytes,
                                          uint64_t most_bytes) {
  const uint32_t salt = directory.salt(directory.next_id());
  const bool goes_on =
      prepared && prepared->region == region && prepared->bytes == bytes && prepared->salt == salt;
  if (!goes_on) {
    LogSlot at{};
    at.extent = region.extent;
    at.region_offset = region.offset;
    at.region_bytes = bytes;
    PMSTORE_TRY(RingRoom room, RingRoom::at(memory, directory.region_offset(at), bytes, salt));
    prepared = Prepared{region, bytes, salt, std::move(room)};
  }
  if (prepared->room.is_erased()) return false;
  return prepared->room.erase_some(most_bytes);
}

Result<bool> LogStore::prepare(std::string_view name, const LogOptions& options,
                               const ReplicaPlace& replica, uint64_t most_bytes) {
  State& s = *state_;
  PMSTORE_TRY_STATUS(s.check_create(name, options, replica));
  const uint64_t bytes = region_bytes_of(options);
  if (!s.directory.exists()) {
    const auto more = s.directory.zero_area_ahead(most_bytes);
    if (!more) return s.latch(more.error());
    if (*more) return true;
    PMSTORE_TRY_STATUS(s.make_area());
  }
  const auto region = s.directory.free_region(bytes);
  if (!region) s.prepared.reset();
  const auto more = region ? s.erase_ahead(*region, bytes, most_bytes)
                           : s.directory.zero_room_ahead(bytes, most_bytes);
  if (!more) return s.latch(more.error());
  return *more;
}

Status LogStore::end_preparing() {
  State& s = *state_;
  if (s.failed) return *s.failed;
  return s.drop_new_area();
}

// ---- the log ----

Result<LogInfo> LogStore::create(std::string_view name, const LogOptions& options,
                                 const ReplicaPlace& replica) {
  State& s = *state_;
  PMSTORE_TRY_STATUS(s.check_create(name, options, replica));
  PMSTORE_TRY(const size_t place, s.directory.free_place());
  LogSlot slot{};
  slot.id = s.directory.next_id();
  slot.region_bytes = region_bytes_of(options);
  auto room = s.make_room_of(slot);
  if (!room) return s.latch(room.error());
  internal::set_replicas(slot, replica);
  slot.sealed_lsn = replica.begin_lsn;
  slot.state = LogState::kLive;
  slot.when_full = options.when_full;
  slot.identity = options.identity;
  slot.name_bytes = static_cast<uint8_t>(name.size());
  std::memcpy(slot.name, name.data(), name.size());
  auto ring = LogRing::format(std::move(*room), replica.begin_lsn, replica.begin_index);
  if (!ring) return s.latch(ring.error());
  const persist::Persisted formatted = ring->durable();
  PMSTORE_TRY_STATUS(s.fail_unless(s.directory.write(formatted, place, slot)));
  s.area_is_new = false;
  Log& log = s.log_at(place);
  PMSTORE_CHECK(!log.ring && !log.exclusive, "the region is still another log's");
  ring->set_padding(s.padding_of(log));
  log.ring.emplace(std::move(*ring));
  log.exclusive = false;
  s.by_id[slot.id] = &log;
  s.show(formatted, log);
  return s.info(log);
}

}  // namespace pmstore::log
