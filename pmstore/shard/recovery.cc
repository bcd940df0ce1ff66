#include "pmstore/shard/recovery.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/check.h"
#include "pmstore/layout/shard_record.h"
#include "pmstore/shard/checkpoint.h"
#include "pmstore/shard/shard_log.h"

namespace pmstore::internal {
namespace {

// The first 8 bytes of a key, in the order of keys.
uint64_t begin_of(std::string_view key) {
  uint64_t begin = 0;
  for (size_t i = 0; i < sizeof(begin); ++i) {
    begin = begin << 8 | (i < key.size() ? static_cast<unsigned char>(key[i]) : 0u);
  }
  return begin;
}

}  // namespace

Status Recovery::replay_rings(ClientRings& rings) {
  const TableCatalog& catalog = records_.catalog();
  PMSTORE_TRY(const auto places, catalog.ring_places());
  for (const TableCatalog::RingPlace& place : places) {
    PMSTORE_TRY(auto ring, catalog.open_ring(place));
    uint64_t entries = 0;
    PMSTORE_TRY_STATUS(ring.walk([&](const log::EntryView&) { ++entries; }));
    // An entry may be in the CPU's caches only. Before anything of it goes in place it is durable:
    // else a power cut could take it back and leave half of what it has written.
    PMSTORE_TRY_STATUS(ring.make_walked_durable());
    ring.for_each_entry([&](const log::EntryView& entry) { replay_entry(entry); });
    report_.rings_replayed += entries > 0 ? 1 : 0;
    report_.entries_read += entries;
    rings.add(place, std::move(ring));
  }
  rings_replayed_ = true;
  return {};
}

Result<log::Ring> Recovery::replay_log() {
  PMSTORE_TRY(auto log, records_.catalog().open_log());
  SharedFates fates;
  PMSTORE_TRY(const uint64_t entries,
              walk_shard_log(log, records_.catalog(),
                             [&](const log::EntryView& entry, const ShardRecordReader& record) {
                               fates.see(entry, record);
                             }));
  PMSTORE_TRY_STATUS(log.make_walked_durable());  // as above
  log.for_each_entry([&](const log::EntryView& entry) {
    auto record = ShardRecordReader::open(entry.payload, records_.catalog().header().epoch);
    PMSTORE_CHECK(record.has_value(), "the walk has checked it");
    if (record->kind() != ShardRecordKind::kRedo) return;
    if (fates.is_committed(entry, *record)) return replay(*record);
    if (!fates.undecided().contains({record->client(), entry.sequence})) return;
    while (const auto write = record->next()) held_.insert(raw(write->slot));
  });
  report_.entries_read += entries;
  return log;
}

void Recovery::replay_entry(const log::EntryView& entry) {
  // A client that writes its own ring can write an entry with a right checksum that is no redo
  // record: it is not a transaction.
  auto redo = open_whole_redo(entry.payload, records_.catalog().header().epoch);
  if (!redo) {
    ++report_.foreign_entries;
    return;
  }
  replay(*redo);
}

void Recovery::replay(ShardRecordReader& redo) {
  const uint64_t applied_before = report_.records_applied;
  while (const auto write = redo.next()) {
    if (!slots_.must_apply(*write)) continue;
    records_.write_in_place(write->slot, write->image);
    ++report_.records_applied;
  }
  report_.transactions_replayed += report_.records_applied > applied_before ? 1 : 0;
}

void Recovery::free_slot(SlotOffset slot) {
  if (!held_.contains(raw(slot))) records_.arena().free_slot(slot);
}

// Runs in several threads at the same time. Each slot has a word of its own.
void Recovery::read_slot(const SlabArena::Slab& slab, SlotOffset slot, Found& found) {
  const SlotContent content = slots_.read(slab, slot);
  if (content.state == SlotState::kNeverWritten) {
    found.free.push_back(slot);
    return;
  }
  if (content.state == SlotState::kDamaged) {
    found.damaged.push_back(slot);
    return;
  }
  const uint64_t version = content.record->version();
  found.highest_version = std::max(found.highest_version, version);
  const bool dropped = content.state == SlotState::kDropped;
  // A client that has seen a record of a dropped table may still know its slot: the word must not
  // show the version that the client has seen.
  records_.words().store(slot, LockWord::unlocked(version + (dropped ? 1 : 0)));
  const auto table = static_cast<TableId>(content.record->header->table);
  const std::string_view key = content.record->key;
  switch (content.state) {
    case SlotState::kLost: found.lost_table = raw(table); return;
    case SlotState::kLive:
      if (is_ordered(table)) {
        found.ordered.push_back({begin_of(key), slot, table, slab.size_class});
      } else {
        found.hashed.push_back({hash_key(table, key), slot, table, slab.size_class});
      }
      return;
    default:
      ++found.tombstones;
      found.free.push_back(slot);
      return;
  }
}

void Recovery::read_slabs(std::span<const SlabArena::Slab> slabs, Found& found) {
  for (const SlabArena::Slab& slab : slabs) {
    const uint32_t slots = slots_per_slab(slab.size_class);
    found.slots += slots;
    // Backwards, so that the lowest free slot is handed out first.
    for (uint32_t i = slots; i > 0; --i) {
      read_slot(slab, records_.arena().slot_of(slab, i - 1), found);
    }
  }
}

void Recovery::take(const Found& found) {
  for (const SlotOffset slot : found.free) free_slot(slot);
  damaged_.insert(damaged_.end(), found.damaged.begin(), found.damaged.end());
  ordered_.insert(ordered_.end(), found.ordered.begin(), found.ordered.end());
  index_hashed(found.hashed);
  report_.tombstones += found.tombstones;
  highest_version_ = std::max(highest_version_, found.highest_version);
  if (found.lost_table != 0) lost_table_ = found.lost_table;
}

// Buckets are all over the memory: each is asked for some records before its turn.
void Recovery::index_hashed(std::span<const HashedRecord> records) {
  constexpr size_t kAhead = 16;
  KeyIndex& index = records_.index();
  const auto key_of = [&](size_t i) {
    return IndexKey{records[i].table, {}, records[i].hash};  // the key itself lies in the slot
  };
  for (size_t i = 0; i < std::min(kAhead, records.size()); ++i) index.prefetch(key_of(i));
  for (size_t i = 0; i < records.size(); ++i) {
    if (i + kAhead < records.size()) index.prefetch(key_of(i + kAhead));
    const Status inserted = index.insert_alone(key_of(i), records[i].size_class, records[i].slot);
    if (inserted) ++report_.live_records;
    if (!inserted) indexed_ = inserted;
  }
}

// Of a slot whose record was found whole.
std::string_view Recovery::key_in(SlotOffset slot) const {
  const std::byte* const at = records_.arena().at(slot);
  const auto* const header = reinterpret_cast<const RecordHeader*>(at);
  return {reinterpret_cast<const char*>(at + sizeof(RecordHeader)), header->key_bytes()};
}

void Recovery::index_record(TableKey found, uint8_t size_class, SlotOffset slot) {
  KeyIndex& index = records_.index();
  const IndexKey key = IndexKey::of(found.table, found.key);
  if (is_ordered(found.table)) {
    // Two live records of a key are damage of the medium. The newer one counts.
    const auto other = index.find(key, [](IndexEntry) { return true; });
    if (other) {
      const bool newer =
          records_.words().load(slot).version() > records_.words().load(other->slot).version();
      damaged_.push_back(newer ? other->slot : slot);
      if (!newer) return;
      index.remove_alone(key, other->slot);
      --report_.live_records;
    }
  }
  const Status inserted = index.insert_alone(key, size_class, slot);
  if (inserted) ++report_.live_records;
  if (!inserted) indexed_ = inserted;
}

// Keys in ascending order leave full leaves behind. So the index of a table needs no more memory
// than before, in whichever order its keys came then.
void Recovery::index_ordered() {
  std::sort(ordered_.begin(), ordered_.end(), [&](const auto& a, const auto& b) {
    if (a.table != b.table) return raw(a.table) < raw(b.table);
    if (a.key_begin != b.key_begin) return a.key_begin < b.key_begin;
    return key_in(a.slot) < key_in(b.slot);
  });
  for (const OrderedRecord& record : ordered_) {
    index_record({record.table, key_in(record.slot)}, record.size_class, record.slot);
  }
  ordered_ = {};
}

Status Recovery::rebuild_index(const std::function<void(uint64_t, uint64_t)>& progress) {
  PMSTORE_CHECK(rings_replayed_,
                "rings come before slots: what a crash has torn must be whole when it is read");
  // As large as it will be; but keys of ordered tables are not in the hash index, and no count says
  // how many they are.
  const auto& tables = records_.catalog().tables();
  const bool all_hash = std::none_of(tables.begin(), tables.end(),
                                     [](const TableInfo& table) { return is_ordered(table.id); });
  if (all_hash) records_.index().hash().expect(records_.arena().used_slots());
  constexpr size_t kSlabsPerTask = 8;
  constexpr size_t kTasksPerBatch = 64;  // bounds the memory for what was found
  std::vector<SlabArena::Slab> slabs;
  uint64_t slots = 0;
  records_.arena().for_each_slab([&](const SlabArena::Slab& slab) {
    slabs.push_back(slab);
    slots += slots_per_slab(slab.size_class);
  });
  uint64_t slots_read = 0;
  for (std::span<const SlabArena::Slab> left = slabs; !left.empty();) {
    const auto batch = left.first(std::min(left.size(), kSlabsPerTask * kTasksPerBatch));
    std::vector<Found> found((batch.size() + kSlabsPerTask - 1) / kSlabsPerTask);
    std::atomic<size_t> next{0};
    workers_.run([&](size_t) {
      for (size_t i = next++; i < found.size(); i = next++) {
        const auto task = batch.subspan(i * kSlabsPerTask);
        read_slabs(task.first(std::min(task.size(), kSlabsPerTask)), found[i]);
      }
    });
    for (const Found& each : found) {
      take(each);
      slots_read += each.slots;
    }
    left = left.subspan(batch.size());
    if (progress) progress(slots_read, slots);
  }
  index_ordered();
  PMSTORE_TRY_STATUS(indexed_);
  records_.index().hash().expect_no_more();
  // The next table would get the lost one's id, and its records.
  if (lost_table_ != 0) return table_is_lost(records_.pool().info().path, lost_table_);
  PMSTORE_CHECK(records_.index().size() == report_.live_records,
                "each live record is in the index once");
  // Damaged media: it is not known what was there, so the slot stays unused, above every version.
  report_.damaged_records = damaged_.size();
  for (const SlotOffset slot : damaged_) records_.give_up(slot, highest_version_ + 1);
  return {};
}

Status Recovery::restore(const CheckpointReader& checkpoint,
                         const std::function<Status()>& replay) {
  Status replayed;
  const auto beside = [&] {
    replayed = replay();
    // The pool was closed in order: there was nothing to do, or the checkpoint is of something
    // else.
    return replayed && report_.records_applied == 0 && held_.empty();
  };
  const Status loaded = Checkpoint::load(checkpoint, records_, workers_, beside);
  PMSTORE_TRY_STATUS(replayed);
  if (report_.records_applied > 0 || !held_.empty()) {
    return make_error(ErrorCode::kDamaged, "the pool holds changes that it does not have");
  }
  PMSTORE_TRY_STATUS(loaded);
  PMSTORE_CHECK(rings_replayed_, "what they hold must be in the slots, as the checkpoint has it");
  report_.live_records = records_.index().size();
  report_.damaged_records = records_.given_up().size();
  report_.from_checkpoint = true;
  return {};
}

}  // namespace pmstore::internal
