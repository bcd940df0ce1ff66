#include "pmstore/shard/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "base/size_text.h"
#include "pmstore/shard/saved_versions.h"

namespace pmstore::internal {

namespace {

// A section has so many slabs.
constexpr size_t kSlabsPerPart = 64;
// A task loads so many sections: the slabs whose lock words share pages, if they lie side by side.
constexpr size_t kPartsPerTask = SavedVersions::kMost / kSlabsPerPart;
static_assert(kPartsPerTask * kSlabsPerPart == SavedVersions::kMost);

// Behind it: a bit for each slot that is free, and the versions, each less `least_version` and in
// `version_bytes` bytes.
struct SavedSlab {
  uint64_t first_slot;
  uint64_t base_version;
  uint64_t least_version;
  uint32_t slots;
  uint8_t size_class;
  uint8_t version_bytes;
  uint16_t zero;
};
static_assert(sizeof(SavedSlab) == 32);

using Bits = std::array<uint8_t, (slots_per_slab(0) + 7) / 8>;

uint8_t bytes_for(uint64_t number) {
  uint8_t bytes = 0;
  for (; number != 0; number >>= 8) ++bytes;
  return bytes;
}

Error damaged(const char* what) { return make_error(ErrorCode::kDamaged, what); }

}  // namespace

Checkpoint::Checkpoint(RecordStore& records) : records_(records) {
  records_.arena().for_each_slab([&](const SlabArena::Slab& slab) {
    PMSTORE_CHECK(slabs_.empty() || slabs_.back().first_chunk < slab.first_chunk,
                  "slabs are visited in the order of their slots");
    slabs_.push_back(slab);
  });
}

Checkpoint::Found Checkpoint::find(persist::Pool& pool, const CatalogHeader& catalog) {
  Found found;
  for (const persist::Extent& extent : pool.info().extents) {
    if (extent.kind != persist::ExtentKind::kCheckpoint) continue;
    found.extent_bytes += extent.bytes;
    if (catalog.clean == 0) {
      found.why_not = "the pool was not closed in order since";
      continue;
    }
    auto reader = CheckpointReader::open(pool, extent, catalog);
    if (reader) {
      found.reader.emplace(std::move(*reader));
    } else {
      found.why_not = reader.error().message;
    }
  }
  if (found.reader) found.why_not.clear();
  return found;
}

// ---- writing ----

Status Checkpoint::check_quiet() const {
  const auto conflict = [](const char* why) { return make_error(ErrorCode::kConflict, why); };
  if (!records_.pool().info().extents_come_back) {
    return make_error(ErrorCode::kUnsupported, "the pool is of a release that freed no extents");
  }
  if (records_.has_seen_damage()) return conflict("the next start looks for damaged records");
  if (records_.reservations().size() > 0) return conflict("slots are reserved for new records");
  const uint64_t known = records_.index().size() + records_.given_up().size();
  if (records_.arena().used_slots() != known) return conflict("slots are used by no record");
  return {};
}

Status Checkpoint::write(RecordStore& records, persist::Persisted /*in_place*/) {
  Checkpoint checkpoint(records);
  PMSTORE_TRY_STATUS(checkpoint.check_quiet());
  const auto add_free = [&](SlotOffset slot) { checkpoint.free_.push_back(slot); };
  records.arena().for_each_free_slot(add_free);
  std::sort(checkpoint.free_.begin(), checkpoint.free_.end());
  const CatalogHeader& catalog = records.catalog().header();
  const CheckpointWriter::Identity identity{catalog.pool, catalog.epoch, catalog.generation + 1};
  CheckpointWriter counted(identity);
  PMSTORE_TRY_STATUS(checkpoint.save(counted));
  PMSTORE_TRY_STATUS(counted.finish());
  persist::Pool& pool = records.pool();
  if (counted.bytes() > pool.largest_free_extent()) {
    return make_error(ErrorCode::kFull, fmt::format("it takes {}, and the pool has room for {}",
                                                    base::size_text(counted.bytes()),
                                                    base::size_text(pool.largest_free_extent())));
  }
  const auto fill = [&](const persist::Extent& extent) -> Status {
    CheckpointWriter writer(pool.memory(), extent.offset, identity);
    PMSTORE_TRY_STATUS(checkpoint.save(writer));
    PMSTORE_TRY_STATUS(writer.finish());
    PMSTORE_CHECK(writer.bytes() == counted.bytes(), "both runs saw the same store");
    return {};
  };
  PMSTORE_TRY_STATUS(pool.allocate_filled(persist::ExtentKind::kCheckpoint, counted.bytes(), fill));
  return {};
}

Status Checkpoint::save(CheckpointWriter& writer) const {
  writer.begin_section("counts");
  writer.put(Counts{records_.index().size(), records_.arena().used_slots(), slabs_.size(),
                    records_.given_up().size()});
  std::vector<uint64_t> given_up(records_.given_up().begin(), records_.given_up().end());
  std::sort(given_up.begin(), given_up.end());
  for (const uint64_t slot : given_up) writer.put(slot);
  records_.arena().save(writer);
  PMSTORE_TRY_STATUS(save_slabs(writer));
  return records_.index().save(writer);
}

Status Checkpoint::save_slabs(CheckpointWriter& writer) const {
  std::span<const SlotOffset> free = free_;
  for (size_t i = 0; i < slabs_.size(); ++i) {
    if (i % kSlabsPerPart == 0) {
      writer.begin_section("slabs", static_cast<uint32_t>(i / kSlabsPerPart));
    }
    const SlabArena::Slab& slab = slabs_[i];
    const SlotOffset last = records_.arena().slot_of(slab, slots_per_slab(slab.size_class) - 1);
    const auto behind = std::upper_bound(free.begin(), free.end(), last);
    const auto count = static_cast<size_t>(behind - free.begin());
    PMSTORE_TRY_STATUS(save_slab(writer, slab, free.first(count)));
    free = free.subspan(count);
  }
  PMSTORE_CHECK(free.empty(), "a free slot is in a slab");
  return {};
}

Status Checkpoint::save_slab(CheckpointWriter& writer, const SlabArena::Slab& slab,
                             std::span<const SlotOffset> free) const {
  const SlabArena& arena = records_.arena();
  const uint32_t slots = slots_per_slab(slab.size_class);
  SavedSlab saved{};
  saved.first_slot = raw(arena.slot_of(slab, 0));
  saved.base_version = slab.base_version;
  saved.least_version = UINT64_MAX;
  saved.slots = slots;
  saved.size_class = slab.size_class;
  uint64_t highest = 0;
  for (uint32_t i = 0; i < slots; ++i) {
    const LockWord word = records_.words().load(arena.slot_of(slab, i));
    if (word.is_locked()) return make_error(ErrorCode::kConflict, "a record is locked");
    saved.least_version = std::min(saved.least_version, word.version());
    highest = std::max(highest, word.version());
  }
  saved.version_bytes = bytes_for(highest - saved.least_version);
  writer.put(saved);
  Bits bits{};
  for (const SlotOffset slot : free) {
    const uint64_t index = (raw(slot) - saved.first_slot) / kSlotBytes[slab.size_class];
    PMSTORE_CHECK(index < slots, "a free slot is in a slab");
    bits[index / 8] = static_cast<uint8_t>(bits[index / 8] | 1u << index % 8);
  }
  writer.put(bits.data(), (slots + 7) / 8);
  for (uint32_t i = 0; saved.version_bytes > 0 && i < slots; ++i) {
    const LockWord word = records_.words().load(arena.slot_of(slab, i));
    const uint64_t above = word.version() - saved.least_version;
    writer.put(&above, saved.version_bytes);  // little endian
  }
  return {};
}

// ---- loading ----

Status Checkpoint::load(const CheckpointReader& reader, RecordStore& records,
                        base::Workers& workers, CheckpointLoad::Task beside) {
  PMSTORE_CHECK(records.given_up().empty() && records.index().size() == 0,
                "a checkpoint is loaded into empty parts");
  Checkpoint checkpoint(records);
  Counts counts{};
  auto section = reader.section("counts");
  if (!section || !section->read(counts) || counts.slabs != checkpoint.slabs_.size() ||
      section->left() / sizeof(uint64_t) != counts.given_up) {
    return damaged("it is of other slabs");
  }
  std::vector<uint64_t> given_up(counts.given_up);
  if (!section->read(given_up.data(), given_up.size() * sizeof(uint64_t))) {
    return damaged("its content is damaged");
  }
  CheckpointLoad load(reader);
  load.add(std::move(beside));
  // Its tasks are the longer ones: they begin first, so that all workers end at the same time.
  PMSTORE_TRY_STATUS(records.index().load(load));
  PMSTORE_TRY_STATUS(checkpoint.add_slabs(load));
  if (!load.run(workers)) return damaged("its content is damaged");
  for (const uint64_t slot : given_up) {
    if (!records.arena().slab_at(SlotOffset{slot})) return damaged("it is of other slabs");
    records.give_up_again(SlotOffset{slot});
  }
  if (records.index().size() != counts.live_records ||
      records.arena().used_slots() != counts.used_slots ||
      counts.used_slots != counts.live_records + counts.given_up) {
    return damaged("its counts differ from its content");
  }
  return {};
}

Status Checkpoint::add_slabs(CheckpointLoad& load) {
  const size_t parts = (slabs_.size() + kSlabsPerPart - 1) / kSlabsPerPart;
  if (load.reader().parts("slabs") != parts) return damaged("it is of other slabs");
  const size_t tasks = (parts + kPartsPerTask - 1) / kPartsPerTask;
  auto free = std::make_shared<std::vector<std::vector<SlotOffset>>>(tasks);
  for (uint32_t i = 0; i < tasks; ++i) {
    load.add([this, &load, free, i] {
      return load_slabs(load.reader(), i * kPartsPerTask, (*free)[i]);
    });
  }
  load.add_step([this, free] {
    for (const auto& part : *free) {
      for (const SlotOffset slot : part) records_.arena().free_slot(slot);
    }
    return true;
  });
  return {};
}

// Of the sections from `part` on, as many as a task has.
bool Checkpoint::load_slabs(const CheckpointReader& reader, uint32_t part,
                            std::vector<SlotOffset>& free) {
  SavedVersions versions(records_);
  const size_t first = part * kSlabsPerPart;
  const size_t behind = std::min(first + kPartsPerTask * kSlabsPerPart, slabs_.size());
  std::optional<CheckpointReader::Section> section;
  for (size_t i = first; i < behind; ++i) {
    if (i % kSlabsPerPart == 0) {
      if (section && !section->ended_well()) return false;
      section = reader.section("slabs", static_cast<uint32_t>(i / kSlabsPerPart));
    }
    if (!section || (!versions.has_room_for(slabs_[i]) && !versions.store())) return false;
    if (!load_slab(*section, slabs_[i], free, versions)) return false;
  }
  return section && section->ended_well() && versions.store();
}

bool Checkpoint::load_slab(CheckpointReader::Section& section, const SlabArena::Slab& slab,
                           std::vector<SlotOffset>& free, SavedVersions& versions) {
  const SlabArena& arena = records_.arena();
  const uint32_t slots = slots_per_slab(slab.size_class);
  SavedSlab saved;
  Bits bits{};
  if (!section.read(saved) || !section.read(bits.data(), (slots + 7) / 8)) return false;
  if (saved.first_slot != raw(arena.slot_of(slab, 0)) || saved.base_version != slab.base_version ||
      saved.size_class != slab.size_class || saved.slots != slots ||
      saved.version_bytes > sizeof(uint64_t)) {
    return false;
  }
  // As the slots are found by a start that reads them: the lowest free one is handed out first.
  for (uint32_t byte = (slots + 7) / 8; byte > 0; --byte) {
    for (unsigned left = bits[byte - 1]; left != 0;) {
      const auto bit = static_cast<uint32_t>(std::bit_width(left)) - 1;
      const uint32_t index = (byte - 1) * 8 + bit;
      if (index < slots) free.push_back(arena.slot_of(slab, index));
      left &= ~(1u << bit);
    }
  }
  return versions.add(section, slab, saved.least_version, saved.version_bytes);
}

Status Checkpoint::free_all(persist::Pool& pool, persist::Persisted /*not_clean*/) {
  const std::vector<persist::Extent> extents = pool.info().extents;
  for (const persist::Extent& extent : extents) {
    if (extent.kind != persist::ExtentKind::kCheckpoint) continue;
    PMSTORE_TRY_STATUS(pool.free_extent(extent));
  }
  return {};
}

}  // namespace pmstore::internal
