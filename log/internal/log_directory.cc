#include "log/internal/log_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/checksum.h"
#include "base/random.h"
#include "base/size_text.h"
#include "log/ring_layout.h"
#include "persist/padding.h"

namespace pmstore::log::internal {
namespace {

constexpr uint64_t kBytesPerSlot = 128 * 1024;  // of the area: one log for so many
constexpr uint64_t kMinSlots = 8;
constexpr uint64_t kMaxSlots = 4096;
constexpr uint64_t kSlotStride = persist::TwoCopies<LogSlot>::kCopies * kLogSlotBytes;
constexpr unsigned kEpochIdBits = 32;

uint32_t header_crc(const LogAreaHeader& header) {
  constexpr size_t kCovered = offsetof(LogAreaHeader, version);
  return base::crc32c(std::as_bytes(std::span(&header, 1)).subspan(kCovered));
}

uint64_t regions_offset(uint64_t slots) {
  return persist::round_up(kLogSlotsOffset + slots * kSlotStride, persist::kXpLineBytes);
}

uint64_t slots_for(uint64_t log_bytes) {
  return std::clamp(log_bytes / kBytesPerSlot, kMinSlots, kMaxSlots);
}

// What logs of a pool may take together, when its first log decides how many there may be.
constexpr uint64_t kShareOfLogs = 8;
// Above no generation that an area has when it is opened, so no later epoch is the same.
constexpr uint64_t kEpochWithoutArea = 1;

}  // namespace

LogAreaHeader LogDirectory::header_of(uint64_t slots, uint64_t identity, uint64_t bytes) {
  LogAreaHeader header{};
  header.magic = kLogAreaMagic;
  header.version = kLogFormatVersion;
  header.slots = static_cast<uint32_t>(slots);
  header.area = identity != 0 ? identity : base::random_identity();
  header.regions_offset = regions_offset(slots);
  header.area_bytes = bytes;
  return header;
}

Status LogDirectory::format(persist::Pool& pool, uint64_t bytes, uint64_t identity) {
  const uint64_t asked_bytes = bytes;
  bytes = persist::round_down(bytes, persist::kXpLineBytes);
  const uint64_t slots = slots_for(bytes);
  if (bytes < regions_offset(slots) + kMinRingBytes) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("a log area of {} has no room for a log: use at least {}",
                                  base::size_text(asked_bytes),
                                  base::size_text(regions_offset(slots) + kMinRingBytes)));
  }
  PMSTORE_TRY(const auto extent, pool.allocate_extent(persist::ExtentKind::kLog, bytes));
  LogDirectory directory(pool, extent);
  directory.header_ = header_of(slots, identity, extent.bytes);
  PMSTORE_TRY_STATUS(directory.write_first_headers());
  return {};
}

Result<persist::Persisted> LogDirectory::write_first_headers() {
  PMSTORE_TRY(const persist::Persisted first, header_copies().write_first(header_, header_crc));
  return header_copies().write(first, header_, header_crc);
}

LogDirectory LogDirectory::none(persist::Pool& pool, uint64_t identity) {
  LogDirectory directory(pool, {});
  directory.header_ = header_of(slots_for(pool.info().bytes / kShareOfLogs), identity, 0);
  return directory;
}

uint64_t LogDirectory::new_area_bytes() const {
  const uint64_t least = header_.regions_offset + kMinRingBytes;
  return persist::round_up(std::max(least, pool_->least_extent()), persist::kXpLineBytes);
}

Result<bool> LogDirectory::zero_area_ahead(uint64_t most_bytes) {
  PMSTORE_CHECK(!exists(), "a pool has one log area");
  if (new_area_bytes() > free_for_logs()) return false;
  return pool_->zero_ahead(persist::ExtentKind::kLog, new_area_bytes(), most_bytes);
}

// The room behind the slots is for logs, like that of any other extent.
Status LogDirectory::make_area() {
  PMSTORE_CHECK(!exists() && durable_ && places_.empty(), "a pool has one log area");
  const uint64_t bytes = new_area_bytes();
  if (bytes > free_for_logs()) return no_room(kMinRingBytes);
  const LogAreaHeader before = header_;
  std::optional<persist::Persisted> written;
  const auto fill = [&](const persist::Extent& extent) -> Status {
    extent_ = extent;
    header_.area_bytes = extent.bytes;
    PMSTORE_TRY(written, write_first_headers());
    return {};
  };
  const auto made = pool_->allocate_filled(persist::ExtentKind::kLog, bytes, fill);
  if (!made) {
    extent_ = {};
    header_ = before;
    return made.error();
  }
  extent_ = *made;
  durable_ = written;
  return {};
}

Status LogDirectory::drop_area() {
  PMSTORE_CHECK(exists() && durable_ && places_.empty(), "logs would go with their area");
  if (!rooms_come_back()) return {};
  PMSTORE_TRY_STATUS(pool_->free_extent(persist::Extent(extent_)));
  extent_ = {};
  header_ = header_of(header_.slots, header_.area, 0);
  PMSTORE_CHECK(!exists() && extents().empty(), "a later log makes the area anew");
  return {};
}

Result<LogDirectory> LogDirectory::load(persist::Pool& pool) {
  LogDirectory directory(pool, {});
  PMSTORE_TRY_STATUS(directory.find_header());
  directory.epoch_ = directory.header_.generation;
  directory.read_places(pool);
  PMSTORE_TRY_STATUS(directory.check_ids());
  return directory;
}

// The area is the extent that has a header; rooms have none.
Status LogDirectory::find_header() {
  const auto is_valid = [&](const LogAreaHeader& header) -> Result<bool> {
    if (header.magic != kLogAreaMagic || header.crc != header_crc(header)) return false;
    if (header.version < kOldestLogFormatVersion || header.version > kLogVersionWithRooms) {
      return make_error(ErrorCode::kVersionMismatch,
                        fmt::format("the pool's log area has format version {}, this program "
                                    "reads {} to {}: use the program that wrote it",
                                    header.version, kOldestLogFormatVersion, kLogVersionWithRooms));
    }
    return header.slots > 0 && header.slots <= kMaxSlots &&
           header.regions_offset == regions_offset(header.slots) &&
           header.area_bytes == extent_.bytes && header.regions_offset <= header.area_bytes;
  };
  bool any = false;
  for (const persist::Extent& extent : pool_->info().extents) {
    if (extent.kind != persist::ExtentKind::kLog) continue;
    any = true;
    if (extent.bytes <= kLogSlotsOffset) continue;
    extent_ = extent;
    PMSTORE_TRY(const auto found, header_copies().read(is_valid));
    if (!found) continue;
    header_ = found->header;
    return {};
  }
  if (!any) return make_error(ErrorCode::kNotFound, "this pool has no log area: it had no log yet");
  return make_error(ErrorCode::kBadPool,
                    "the header of the pool's log area is damaged, both copies; restore the pool "
                    "from a backup, or create a new one");
}

// A log is named by its id, which also gives the salt of its entries.
Status LogDirectory::check_ids() const {
  std::unordered_map<uint64_t, size_t> place_of;
  for (size_t place = 0; place < places_.size(); ++place) {
    if (!places_[place].live()) continue;
    const uint64_t id = places_[place].slot.id;
    const auto [other, fresh] = place_of.emplace(id, place);
    if (fresh) continue;
    return make_error(ErrorCode::kBadPool,
                      fmt::format("places {} and {} of the pool's log directory have logs with the "
                                  "same id {}; restore the pool from a backup, or create a new one",
                                  other->second, place, id));
  }
  return {};
}

// ---- slots ----

uint32_t LogDirectory::slot_crc(const LogSlot& slot) const {
  constexpr size_t kCovered = offsetof(LogSlot, generation);
  const size_t in_area =
      slot.identity != 0 ? offsetof(LogSlot, extent) : offsetof(LogSlot, identity);
  const size_t end = slot.extent != 0 ? sizeof slot : in_area;
  return base::crc32c(std::as_bytes(std::span(&slot, 1)).subspan(kCovered, end - kCovered),
                      static_cast<uint32_t>(base::mix64(header_.area)));
}

persist::TwoCopies<LogAreaHeader> LogDirectory::header_copies() const {
  return {*memory_, extent_.offset, kLogAreaCopyStride};
}

persist::TwoCopies<LogSlot> LogDirectory::slot_copies(size_t place) const {
  return {*memory_, extent_.offset + kLogSlotsOffset + place * kSlotStride, kLogSlotBytes};
}

// What follows must hold for whatever bytes have got a right checksum.
bool LogDirectory::is_valid(const LogSlot& slot) const {
  if (slot.magic != kLogSlotMagic || slot.crc != slot_crc(slot)) return false;
  return content_is_valid(slot);
}

bool LogDirectory::content_is_valid(const LogSlot& slot) const {
  // A room may be gone: has_region().
  const bool in_room = slot.extent != 0;
  const uint64_t first = in_room ? kRoomReservedBytes : header_.regions_offset;
  const uint64_t end = in_room ? kMaxLsn : header_.area_bytes;
  const bool region_inside = slot.region_offset % persist::kXpLineBytes == 0 &&
                             slot.region_bytes % persist::kXpLineBytes == 0 &&
                             slot.region_bytes >= kMinRingBytes && slot.region_offset >= first &&
                             slot.region_offset <= end &&
                             slot.region_bytes <= end - slot.region_offset;
  const bool policy =
      slot.when_full == FullPolicy::kBackPressure || slot.when_full == FullPolicy::kTrimOldest;
  const bool state = slot.state == LogState::kFree || slot.state == LogState::kLive;
  return slot.id > 0 && region_inside && policy && state && slot.name_bytes <= kMaxLogNameBytes &&
         check_log_name({slot.name, slot.name_bytes}) && slot.replicas <= kMaxReplicas &&
         (slot.replicas == 0 ? slot.self == 0 : slot.self < slot.replicas);
}

// To read a place in a hole of the file would make pages of the hole, and the place was never used.
// All are looked at before the first one is read, because a place that is read may end in a hole,
// in which the next place begins.
void LogDirectory::read_places(const persist::Pool& pool) {
  std::vector<size_t> with_data;
  uint64_t data = 0;  // what lies before it, from the last place on, is zero
  for (size_t place = 0; place < header_.slots; ++place) {
    const uint64_t at = extent_.offset + kLogSlotsOffset + place * kSlotStride;
    if (data < at) data = pool.next_data(at).value_or(UINT64_MAX);
    if (data < at + kSlotStride) with_data.push_back(place);
  }
  read_end_ = kLogSlotsOffset;
  for (const size_t place : with_data) {
    read_end_ = kLogSlotsOffset + (place + 1) * kSlotStride;
    const Place found = read_place(place);
    if (!found.damaged && found.slot.generation == 0) continue;
    places_.resize(place);
    places_.push_back(found);
  }
}

LogDirectory::Place LogDirectory::read_place(size_t place) const {
  const persist::TwoCopies<LogSlot> copies = slot_copies(place);
  const auto found = *copies.read([this](const LogSlot& slot) { return is_valid(slot); });
  Place result;
  if (found) {
    result.slot = found->header;
    result.repair = !found->copies_agree;
  } else {
    // The first write goes to copy 1; torn, it leaves the other one zero: never used.
    result.damaged = !copies.is_blank(0);
  }
  return result;
}

Status LogDirectory::write(persist::Persisted region, size_t place, LogSlot slot) {
  PMSTORE_CHECK(place <= places_.size() && place < header_.slots, "places are used in order");
  if (place == places_.size()) places_.emplace_back();
  slot.magic = kLogSlotMagic;
  slot.generation = places_[place].slot.generation;
  PMSTORE_CHECK(durable_ && !places_[place].damaged,
                "a slot is written in an epoch of its own, and never over damage");
  PMSTORE_CHECK(content_is_valid(slot), "load() would call this slot damaged");
  check_region(place, slot);
  if (slot.extent != 0 && header_.version < kLogVersionWithRooms) {
    // Durable before the first slot that an earlier version could not read.
    header_.version = kLogVersionWithRooms;
    PMSTORE_TRY(durable_, header_copies().write_both(*durable_, header_, header_crc));
  }
  const auto checksum = [this](const LogSlot& next) { return slot_crc(next); };
  PMSTORE_TRY_STATUS(slot_copies(place).write_both(region, slot, checksum));
  places_[place].slot = slot;
  places_[place].repair = false;
  return {};
}

persist::Persisted LogDirectory::durable() const {
  PMSTORE_CHECK(durable_, "what load() has found may be in the CPU's caches only");
  return *durable_;
}

// The pool has the region, and no other live log has any of it.
void LogDirectory::check_region(size_t place, const LogSlot& slot) const {
  // A log that damage has brought back may be without a region; its slot is written to delete it.
  PMSTORE_CHECK(slot.state == LogState::kFree || has_region(slot),
                "a log would lie in memory that is not the logs'");
  for (size_t other = 0; slot.state == LogState::kLive && other < places_.size(); ++other) {
    if (other == place || !places_[other].live()) continue;
    if (places_[other].slot.extent != slot.extent) continue;
    const LogSlot& taken = places_[other].slot;
    // A log whose slot damage has brought back may share its region; it is never written again.
    PMSTORE_CHECK(places_[place].live() ||
                      slot.region_offset >= taken.region_offset + taken.region_bytes ||
                      taken.region_offset >= slot.region_offset + slot.region_bytes,
                  "two logs would overwrite each other's entries");
  }
}

Status LogDirectory::begin_epoch() {
  PMSTORE_CHECK(!durable_, "an open directory begins one epoch");
  if (!exists()) {
    PMSTORE_TRY(durable_, memory_->drain());
    epoch_ = kEpochWithoutArea;
    return {};
  }
  // What was found may be in the CPU's caches only.
  memory_->flush(memory_->at(extent_.offset), read_end_);
  PMSTORE_TRY(const persist::Persisted found, memory_->drain());
  for (size_t place = 0; place < places_.size(); ++place) {
    if (!places_[place].repair) continue;
    PMSTORE_TRY_STATUS(repair(found, place));
  }
  // Durable before the first slot that an earlier version could not read.
  header_.version = std::max(header_.version, kLogFormatVersion);
  PMSTORE_TRY(durable_, header_copies().write_both(found, header_, header_crc));
  epoch_ = header_.generation;
  return {};
}

// The copy that is not overwritten has the same content.
Status LogDirectory::repair(persist::Persisted found, size_t place) {
  LogSlot& slot = places_[place].slot;
  const auto checksum = [this](const LogSlot& next) { return slot_crc(next); };
  PMSTORE_TRY_STATUS(slot_copies(place).write(found, slot, checksum));
  places_[place].repair = false;
  return {};
}

// Above all that a place remembers. A damaged place may have forgotten the highest one; no earlier
// epoch has given numbers as high as this one's then.
uint64_t LogDirectory::next_id() const {
  uint64_t highest = 0;
  bool forgotten = false;
  for (const Place& place : places_) {
    highest = std::max(highest, place.slot.id);
    forgotten = forgotten || place.damaged;
  }
  if (forgotten && header_.generation >> kEpochIdBits != 0) return 0;
  if (forgotten) highest = std::max(highest, header_.generation << kEpochIdBits);
  return highest + 1;
}

uint32_t LogDirectory::salt(uint64_t id) const {
  return static_cast<uint32_t>(base::mix64(header_.area + id));
}

size_t LogDirectory::damaged_places() const {
  return static_cast<size_t>(std::count_if(places_.begin(), places_.end(),
                                           [](const Place& place) { return place.damaged; }));
}

std::vector<bool> LogDirectory::overlapped() const {
  std::vector<size_t> live;
  for (size_t place = 0; place < places_.size(); ++place) {
    if (places_[place].live()) live.push_back(place);
  }
  std::sort(live.begin(), live.end(), [&](size_t a, size_t b) {
    const LogSlot& one = places_[a].slot;
    const LogSlot& other = places_[b].slot;
    return std::pair(one.extent, one.region_offset) < std::pair(other.extent, other.region_offset);
  });
  std::vector<bool> result(places_.size());
  for (const size_t place : live) result[place] = !has_region(places_[place].slot);
  for (size_t i = 0; i < live.size(); ++i) {
    const LogSlot& one = places_[live[i]].slot;
    for (size_t j = i + 1; j < live.size(); ++j) {
      const LogSlot& other = places_[live[j]].slot;
      if (other.extent != one.extent) break;
      if (other.region_offset >= one.region_offset + one.region_bytes) break;
      result[one.id < other.id ? live[i] : live[j]] = true;
    }
  }
  return result;
}

}  // namespace pmstore::log::internal
