#include "log/internal/log_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>

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

}  // namespace

Status LogDirectory::format(persist::Pool& pool, uint64_t bytes, uint64_t identity) {
  const uint64_t asked_bytes = bytes;
  bytes = persist::round_down(bytes, persist::kXpLineBytes);
  const uint64_t slots = std::clamp(bytes / kBytesPerSlot, kMinSlots, kMaxSlots);
  if (bytes < regions_offset(slots) + kMinRingBytes) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("a log area of {} has no room for a log: use at least {}",
                                  base::size_text(asked_bytes),
                                  base::size_text(regions_offset(slots) + kMinRingBytes)));
  }
  PMSTORE_TRY(const auto extent, pool.allocate_extent(persist::ExtentKind::kLog, bytes));
  LogDirectory directory(pool, extent);
  LogAreaHeader& header = directory.header_;
  header.magic = kLogAreaMagic;
  header.version = kLogFormatVersion;
  header.slots = static_cast<uint32_t>(slots);
  header.area = identity != 0 ? identity : base::random_identity();
  header.regions_offset = regions_offset(slots);
  header.area_bytes = extent.bytes;
  PMSTORE_TRY(const persist::Persisted first,
              directory.header_copies().write_first(header, header_crc));
  PMSTORE_TRY_STATUS(directory.header_copies().write(first, header, header_crc));
  return {};
}

Result<LogDirectory> LogDirectory::load(persist::Pool& pool) {
  const auto& extents = pool.info().extents;
  const auto extent = std::find_if(extents.begin(), extents.end(), [](const persist::Extent& e) {
    return e.kind == persist::ExtentKind::kLog;
  });
  if (extent == extents.end()) {
    return make_error(ErrorCode::kNotFound,
                      "this pool has no log area; create it with --log-bytes");
  }
  LogDirectory directory(pool, *extent);
  const auto is_valid = [&](const LogAreaHeader& header) -> Result<bool> {
    if (header.magic != kLogAreaMagic || header.crc != header_crc(header)) return false;
    if (header.version < kOldestLogFormatVersion || header.version > kLogFormatVersion) {
      return make_error(ErrorCode::kVersionMismatch,
                        fmt::format("the pool's log area has format version {}, this program "
                                    "reads {} to {}: use the program that wrote it",
                                    header.version, kOldestLogFormatVersion, kLogFormatVersion));
    }
    return header.slots > 0 && header.slots <= kMaxSlots &&
           header.regions_offset == regions_offset(header.slots) &&
           header.area_bytes == extent->bytes && header.regions_offset <= header.area_bytes;
  };
  std::optional<persist::TwoCopies<LogAreaHeader>::Found> found;
  if (extent->bytes > kLogSlotsOffset) {
    PMSTORE_TRY(found, directory.header_copies().read(is_valid));
  }
  if (!found) {
    return make_error(ErrorCode::kBadPool,
                      "the header of the pool's log area is damaged, both copies; restore the pool "
                      "from a backup, or create a new one");
  }
  directory.header_ = found->header;
  directory.read_places(pool);
  PMSTORE_TRY_STATUS(directory.check_ids());
  return directory;
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
  const size_t end = slot.identity != 0 ? sizeof slot : offsetof(LogSlot, identity);
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
  const bool region_inside =
      slot.region_offset % persist::kXpLineBytes == 0 &&
      slot.region_bytes % persist::kXpLineBytes == 0 && slot.region_bytes >= kMinRingBytes &&
      slot.region_offset >= header_.regions_offset && slot.region_offset <= header_.area_bytes &&
      slot.region_bytes <= header_.area_bytes - slot.region_offset;
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

// No other live log has any of the region.
void LogDirectory::check_region(size_t place, const LogSlot& slot) const {
  for (size_t other = 0; slot.state == LogState::kLive && other < places_.size(); ++other) {
    if (other == place || !places_[other].live()) continue;
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
  // What was found may be in the CPU's caches only.
  memory_->flush(memory_->at(extent_.offset), read_end_);
  PMSTORE_TRY(const persist::Persisted found, memory_->drain());
  for (size_t place = 0; place < places_.size(); ++place) {
    if (!places_[place].repair) continue;
    PMSTORE_TRY_STATUS(repair(found, place));
  }
  // Durable before the first slot that an earlier version could not read.
  header_.version = kLogFormatVersion;
  PMSTORE_TRY(durable_, header_copies().write_both(found, header_, header_crc));
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
    return places_[a].slot.region_offset < places_[b].slot.region_offset;
  });
  std::vector<bool> result(places_.size());
  for (size_t i = 0; i < live.size(); ++i) {
    const LogSlot& one = places_[live[i]].slot;
    for (size_t j = i + 1; j < live.size(); ++j) {
      const LogSlot& other = places_[live[j]].slot;
      if (other.region_offset >= one.region_offset + one.region_bytes) break;
      result[one.id < other.id ? live[i] : live[j]] = true;
    }
  }
  return result;
}

// ---- room ----

Result<size_t> LogDirectory::free_place() const {
  for (size_t place = 0; place < places_.size(); ++place) {
    if (!places_[place].damaged && !places_[place].live()) return place;
  }
  if (places_.size() < header_.slots) return places_.size();
  return make_error(
      ErrorCode::kFull,
      fmt::format("all {} places for logs of this pool are taken: delete a log", places_.size()));
}

std::vector<LogDirectory::Gap> LogDirectory::gaps() const {
  std::vector<Gap> taken;
  for (const Place& place : places_) {
    if (place.live()) taken.push_back({place.slot.region_offset, place.slot.region_bytes});
  }
  std::sort(taken.begin(), taken.end(),
            [](const Gap& a, const Gap& b) { return a.offset < b.offset; });
  std::vector<Gap> free;
  uint64_t at = header_.regions_offset;
  for (const Gap& region : taken) {
    if (region.offset > at) free.push_back({at, region.offset - at});
    at = std::max(at, region.offset + region.bytes);
  }
  const uint64_t end = persist::round_down(header_.area_bytes, persist::kXpLineBytes);
  if (end > at) free.push_back({at, end - at});
  return free;
}

uint64_t LogDirectory::largest_free_region() const {
  uint64_t largest = 0;
  for (const Gap& gap : gaps()) largest = std::max(largest, gap.bytes);
  return largest;
}

Result<uint64_t> LogDirectory::free_region(uint64_t bytes) const {
  const Gap* best = nullptr;
  const std::vector<Gap> free = gaps();
  for (const Gap& gap : free) {
    if (gap.bytes >= bytes && (best == nullptr || gap.bytes < best->bytes)) best = &gap;
  }
  if (best != nullptr) return best->offset;
  const uint64_t largest = largest_free_region();
  return make_error(
      ErrorCode::kFull,
      fmt::format("no room for a log of {}: the largest that fits has {}; delete a log, or "
                  "create the pool with more --log-bytes",
                  base::size_text(bytes - kRingHeaderBytes),
                  base::size_text(largest >= kMinRingBytes ? largest - kRingHeaderBytes : 0)));
}

}  // namespace pmstore::log::internal
