#include "pmstore/shard/saved_versions.h"

#include <cstring>

#include "base/check.h"

namespace pmstore::internal {

bool SavedVersions::has_room_for(const SlabArena::Slab& slab) const {
  return slabs_.empty() || (slabs_.size() < kMost && slab.size_class == size_class_);
}

bool SavedVersions::add(CheckpointReader::Section& section, const SlabArena::Slab& slab,
                        uint64_t least, uint8_t version_bytes) {
  PMSTORE_CHECK(has_room_for(slab), "versions of slabs of one size class are stored together");
  PMSTORE_CHECK(version_bytes <= sizeof(uint64_t), "a version is a word");
  const uint64_t mask = version_bytes == 0 ? 0 : UINT64_MAX >> (64 - 8 * version_bytes);
  const size_t begin = packed_.size();
  const size_t bytes = size_t{slots_per_slab(slab.size_class)} * version_bytes;
  const uint64_t first_slot = raw(records_.arena().slot_of(slab, 0));
  slabs_.push_back({first_slot, least, mask, begin, version_bytes});
  size_class_ = slab.size_class;
  packed_.resize(begin + bytes);
  return section.read(packed_.data() + begin, bytes);
}

uint64_t SavedVersions::version(const OfSlab& of, uint32_t slot) const {
  uint64_t above;
  std::memcpy(&above, packed_.data() + of.begin + size_t{slot} * of.bytes, sizeof(above));
  return of.least + (above & of.mask);
}

bool SavedVersions::store() {
  if (slabs_.empty()) return true;
  packed_.resize(packed_.size() + sizeof(uint64_t));  // each is read as a whole word
  LockTable& words = records_.words();
  const uint32_t slots = slots_per_slab(size_class_);
  const uint64_t slot_bytes = kSlotBytes[size_class_];
  uint64_t all = 0;
  for (uint32_t i = 0; i < slots; ++i) {
    for (const OfSlab& of : slabs_) {
      const uint64_t found = version(of, i);
      all |= found;
      // A word of zero needs no page.
      if (found != 0) {
        words.store(SlotOffset{of.first_slot + i * slot_bytes}, LockWord::unlocked(found));
      }
    }
  }
  slabs_.clear();
  packed_.clear();
  return all <= LockWord::kVersionMask;
}

}  // namespace pmstore::internal
