#include "pmstore/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "log/log_check.h"
#include "log/log_store.h"
#include "log/ring.h"
#include "pmstore/layout/bucket_layout.h"
#include "pmstore/layout/record.h"
#include "pmstore/layout/redo.h"
#include "pmstore/shard/slab_arena.h"
#include "pmstore/shard/table_catalog.h"

namespace pmstore {

namespace {

using internal::SlabArena;
using internal::TableCatalog;

class Checker {
 public:
  Checker(persist::Pool& pool, const TableCatalog& catalog, const SlabArena& arena,
          CheckReport& report)
      : pool_(pool), catalog_(catalog), arena_(arena), report_(report) {}

  void check_rings() {
    const auto& header = catalog_.header();
    for (uint32_t i = 0; i < header.ring_count; ++i) {
      auto ring = log::Ring::open(pool_.memory(), catalog_.ring_offset(i), header.ring_bytes,
                                  catalog_.ring_salt(i));
      if (!ring) {
        problem(fmt::format("ring {}: {}", i, ring.error().message));
        continue;
      }
      uint64_t entries = 0;
      const Status walked = ring->walk([&](const log::EntryView& entry) {
        ++entries;
        check_entry(i, entry);
      });
      if (!walked) problem(fmt::format("ring {}: {}", i, walked.error().message));
      report_.log_entries += entries;
      if (entries > 0 || ring->owner() != 0) ++report_.rings_in_use;
    }
  }

  // After check_rings(): what a redo record repairs is not damaged.
  void check_slabs() {
    arena_.for_each_slab([&](const SlabArena::Slab& slab) {
      ++report_.slabs;
      for (uint32_t i = 0; i < internal::slots_per_slab(slab.size_class); ++i) {
        check_slot(slab, arena_.slot_of(slab, i));
      }
    });
    report_.free_chunks = arena_.free_chunks();
  }

 private:
  struct Newer {
    uint64_t version;
    bool live;
  };

  void problem(std::string what) {
    if (report_.problems.size() < kMaxProblems) report_.problems.push_back(std::move(what));
  }

  bool of_dropped(const RecordView& record) const {
    return catalog_.was_dropped(static_cast<TableId>(record.header->table));
  }

  std::span<const std::byte> place(SlotOffset slot, uint8_t size_class) const {
    return {arena_.at(slot), kSlotBytes[size_class]};
  }

  void check_entry(uint32_t ring, const log::EntryView& entry) {
    auto redo = RedoReader::open(entry.payload, catalog_.header().pool);
    if (!redo) return problem(fmt::format("ring {} lsn {}: not a redo record", ring, entry.lsn));
    while (const auto write = redo->next()) {
      const auto slab = arena_.slab_at(write->slot);
      if (!slab || write->record.version() <= slab->base_version) continue;
      const auto present = check_record(place(write->slot, slab->size_class), write->slot);
      if (present && present->version() >= write->record.version()) continue;
      Newer& newer = newer_[raw(write->slot)];
      if (newer.version < write->record.version()) {
        newer = {write->record.version(), write->record.live() && !of_dropped(write->record)};
      }
    }
    if (redo->malformed()) {
      problem(fmt::format("ring {} lsn {}: a malformed redo record", ring, entry.lsn));
    }
    report_.to_replay = newer_.size();
  }

  void check_slot(const SlabArena::Slab& slab, SlotOffset slot) {
    const auto bytes = place(slot, slab.size_class);
    if (const auto newer = newer_.find(raw(slot)); newer != newer_.end()) {
      ++(newer->second.live ? report_.live_records : report_.tombstones);
      return;
    }
    if (never_written(bytes)) return;
    const auto record = check_record(bytes, slot);
    if (!record || record->version() <= slab.base_version) {
      return problem(
          fmt::format("record at offset {}: its checksum is wrong and no redo record "
                      "repairs it",
                      arena_.offset() + raw(slot)));
    }
    if (!record->live() || of_dropped(*record)) {
      ++report_.tombstones;
      return;
    }
    ++report_.live_records;
    const auto table = static_cast<TableId>(record->header->table);
    if (!catalog_.exists(table)) {
      problem(fmt::format("record at offset {}: of table {}, which there is not",
                          arena_.offset() + raw(slot), raw(table)));
    }
    // Two live records with one key: the 64-bit hash of table and key stands for both.
    const auto [other, fresh] = keys_.emplace(hash_key(table, record->key).value, raw(slot));
    if (!fresh) {
      problem(fmt::format("records at offsets {} and {}: both live, with the same key",
                          arena_.offset() + other->second, arena_.offset() + raw(slot)));
    }
  }

  persist::Pool& pool_;
  const TableCatalog& catalog_;
  const SlabArena& arena_;
  CheckReport& report_;
  std::unordered_map<uint64_t, Newer> newer_;  // by slot: what the rings will put there
  std::unordered_map<uint64_t, uint64_t> keys_;
};

Status check_rings(persist::Pool& pool, const TableCatalog& catalog) {
  const auto& header = catalog.header();
  for (uint32_t i = 0; i < header.ring_count; ++i) {
    PMSTORE_TRY(auto ring, log::Ring::open(pool.memory(), catalog.ring_offset(i), header.ring_bytes,
                                           catalog.ring_salt(i)));
    PMSTORE_TRY_STATUS(ring.walk([](const log::EntryView&) {}));
  }
  return {};
}

Status check_record_tables(const TableCatalog& catalog, const SlabArena& arena,
                           const std::string& path) {
  uint16_t lost_table = 0;
  arena.for_each_slab([&](const SlabArena::Slab& slab) {
    for (uint32_t i = 0; i < internal::slots_per_slab(slab.size_class); ++i) {
      const SlotOffset slot = arena.slot_of(slab, i);
      const std::span<const std::byte> place(arena.at(slot), kSlotBytes[slab.size_class]);
      const auto record = check_record(place, slot);
      if (!record || !record->live() || record->version() <= slab.base_version) continue;
      const auto table = static_cast<TableId>(record->header->table);
      if (!catalog.exists(table) && !catalog.was_dropped(table)) lost_table = raw(table);
    }
  });
  return lost_table == 0 ? Status() : internal::table_is_lost(path, lost_table);
}

}  // namespace

Status check_startable(persist::Pool& pool) {
  PMSTORE_TRY(const TableCatalog catalog, TableCatalog::load(pool));
  PMSTORE_TRY(const SlabArena arena, SlabArena::open(pool.memory(), catalog.header().records_offset,
                                                     catalog.header().records_bytes));
  PMSTORE_TRY_STATUS(check_rings(pool, catalog));
  if (!catalog.counts_all_tables()) {
    PMSTORE_TRY_STATUS(check_record_tables(catalog, arena, pool.info().path));
  }
  return log::LogStore::is_in(pool) ? log::check_log_area(pool) : Status();
}

Result<CheckReport> check_store(persist::Pool& pool) {
  PMSTORE_TRY(const TableCatalog catalog, TableCatalog::load(pool));
  CheckReport report;
  report.epoch = catalog.header().epoch;
  report.clean = catalog.header().clean != 0;
  report.tables = static_cast<uint32_t>(catalog.tables().size());
  auto arena = SlabArena::open(pool.memory(), catalog.header().records_offset,
                               catalog.header().records_bytes);
  if (!arena) {
    report.problems.push_back(arena.error().message);
    return report;
  }
  Checker checker(pool, catalog, *arena, report);
  checker.check_rings();
  checker.check_slabs();
  return report;
}

}  // namespace pmstore
