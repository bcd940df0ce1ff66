// Checkpoint: what a store has in DRAM of its records, in an extent of the pool, so that a start
// after an orderly stop reads no slot. docs/checkpoint.md describes it.
//
// It has the index, the version of each slot and which slots are free. It belongs to the one clean
// state of the catalog that it names, and counts while the catalog says so: a start raises the
// catalog's generation before anything changes, so a checkpoint is used at most once.
// Invariants: the checkpoint is durable before the catalog is marked clean; its extent is freed
// after the catalog is not clean any more.
// Threads: one, and the workers of load(). Everything is borrowed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/workers.h"
#include "persist/persisted.h"
#include "persist/pool.h"
#include "pmstore/shard/checkpoint_load.h"
#include "pmstore/shard/checkpoint_reader.h"
#include "pmstore/shard/checkpoint_writer.h"
#include "pmstore/shard/record_store.h"

namespace pmstore::internal {

class SavedVersions;

class Checkpoint {
 public:
  // What a start finds.
  struct Found {
    uint64_t extent_bytes = 0;               // 0: there is none
    std::optional<CheckpointReader> reader;  // of the one that counts
    std::string why_not;                     // if there is one that does not count
  };
  static Found find(persist::Pool& pool, const CatalogHeader& catalog);

  // Writes the checkpoint of the catalog header that TableCatalog::mark_clean() will write next.
  // `in_place` proves that the records are durable in their slots. Durable on return. Full: the
  // pool has no room for it. Unsupported: the pool frees no extents. Conflict: something is under
  // way of which only a start that reads all slots can make an end. Io.
  static Status write(RecordStore& records, persist::Persisted in_place);

  // Into the empty parts of `records`, in which every slot counts as used. `beside` is run, by
  // one of the workers, while others load: it uses no lock word and no index, and changes no slab.
  // What loads stores to no persistent memory, so `beside` alone flushes and drains.
  // Damaged: the checkpoint is, or `beside` gave false; then the parts are half loaded, and must be
  // discarded.
  static Status load(const CheckpointReader& reader, RecordStore& records, base::Workers& workers,
                     CheckpointLoad::Task beside);

  // Frees the extents of all checkpoints. `not_clean` proves that the catalog counts none of them
  // any more. Durable on return. Io.
  static Status free_all(persist::Pool& pool, persist::Persisted not_clean);

 private:
  // A record is complete: what load() compares with at its end.
  struct Counts {
    uint64_t live_records;
    uint64_t used_slots;
    uint64_t slabs;
    uint64_t given_up;  // so many slots; their offsets follow
  };
  explicit Checkpoint(RecordStore& records);
  Status check_quiet() const;
  Status save(CheckpointWriter& writer) const;
  Status save_slabs(CheckpointWriter& writer) const;
  Status save_slab(CheckpointWriter& writer, const SlabArena::Slab& slab,
                   std::span<const SlotOffset> free) const;
  Status add_slabs(CheckpointLoad& load);
  bool load_slabs(const CheckpointReader& reader, uint32_t part, std::vector<SlotOffset>& free);
  bool load_slab(CheckpointReader::Section& section, const SlabArena::Slab& slab,
                 std::vector<SlotOffset>& free, SavedVersions& versions);

  RecordStore& records_;
  std::vector<SlabArena::Slab> slabs_;
  std::vector<SlotOffset> free_;  // in ascending order; of save() only
};

}  // namespace pmstore::internal
