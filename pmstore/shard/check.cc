#include "pmstore/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "log/log_check.h"
#include "log/log_store.h"
#include "log/ring.h"
#include "persist/kept_space_rules.h"
#include "pmstore/layout/bucket_layout.h"
#include "pmstore/layout/record.h"
#include "pmstore/layout/shard_record.h"
#include "pmstore/shard/checkpoint.h"
#include "pmstore/shard/index_check.h"
#include "pmstore/shard/shard_log.h"
#include "pmstore/shard/slab_arena.h"
#include "pmstore/shard/slot_reader.h"
#include "pmstore/shard/table_catalog.h"

namespace pmstore {

namespace {

using internal::IndexCheck;
using internal::SlabArena;
using internal::SlotContent;
using internal::SlotReader;
using internal::SlotState;
using internal::TableCatalog;

class Checker {
 public:
  Checker(const TableCatalog& catalog, const SlabArena& arena, CheckReport& report)
      : catalog_(catalog), arena_(arena), slots_(arena, catalog), report_(report) {}

  // The names are borrowed.
  Status add_index(const IndexToCheck& names) {
    PMSTORE_TRY(const TableId base, find_table(names.base));
    PMSTORE_TRY(const TableId index, find_table(names.index));
    if (!is_ordered(index)) {
      return make_error(ErrorCode::kInvalidArgument,
                        "'" + names.index + "' cannot be an index: it is not an ordered table");
    }
    indexes_.emplace_back(names, base, index);
    return {};
  }

  void check_rings() {
    const auto places = catalog_.ring_places();
    if (!places) return problem(places.error().message);
    for (uint32_t i = 0; i < places->size(); ++i) {
      auto ring = catalog_.open_ring((*places)[i]);
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

  void check_log() {
    auto log = catalog_.open_log();
    if (!log) return problem(fmt::format("shard log: {}", log.error().message));
    internal::SharedFates fates;
    const auto look = [&](const log::EntryView& entry, const ShardRecordReader& record) {
      fates.see(entry, record);
    };
    const auto entries = internal::walk_shard_log(*log, catalog_, look);
    if (!entries) return problem(entries.error().message);
    report_.log_entries += *entries;
    log->for_each_entry([&](const log::EntryView& entry) {
      auto record = ShardRecordReader::open(entry.payload, catalog_.header().epoch);
      if (!record || record->kind() != ShardRecordKind::kRedo) return;
      if (fates.is_committed(entry, *record)) check_writes(*record);
    });
  }

  // After check_slabs().
  void check_indexes() {
    for (const IndexCheck& index : indexes_) {
      report_.index_entries.push_back(
          index.finish([this](std::string what) { problem(std::move(what)); }));
    }
  }

  // After check_rings() and check_log(): what a redo record repairs is not damaged.
  void check_slabs() {
    arena_.for_each_slab([&](const SlabArena::Slab&) { ++report_.slabs; });
    slots_.for_each_slot(
        [&](const SlabArena::Slab& slab, SlotOffset slot) { check_slot(slab, slot); });
    report_.free_chunks = arena_.free_chunks();
  }

 private:
  struct Newer {
    uint64_t version;
    bool live;
    // Of a record that matters to an index.
    TableId table{};
    std::string key;
    std::string value;
  };

  Result<TableId> find_table(const std::string& name) const {
    if (const auto table = catalog_.find(name)) return *table;
    return make_error(ErrorCode::kUnknownTable, "no table '" + name + "' in this pool");
  }

  void see(TableId table, SlotOffset slot, std::string_view key, std::string_view value) {
    for (IndexCheck& index : indexes_) {
      index.see(table, arena_.pool_offset(slot), key, value,
                [this](std::string what) { problem(std::move(what)); });
    }
  }

  void problem(std::string what) {
    if (report_.problems.size() < kMaxProblems) report_.problems.push_back(std::move(what));
  }

  void check_entry(uint32_t ring, const log::EntryView& entry) {
    auto redo = ShardRecordReader::open(entry.payload, catalog_.header().epoch);
    if (!redo || redo->kind() != ShardRecordKind::kRedo) {
      return problem(fmt::format("ring {} lsn {}: not a redo record", ring, entry.lsn));
    }
    check_writes(*redo);
    if (redo->malformed()) {
      problem(fmt::format("ring {} lsn {}: a malformed redo record", ring, entry.lsn));
    }
  }

  void check_writes(ShardRecordReader& redo) {
    while (const auto write = redo.next()) {
      if (!slots_.must_apply(*write)) continue;
      Newer& newer = newer_[raw(write->slot)];
      if (newer.version < write->record.version()) {
        const auto table = static_cast<TableId>(write->record.header->table);
        newer = {write->record.version(),
                 write->record.live() && !catalog_.was_dropped(table),
                 table,
                 {},
                 {}};
        const bool indexed = std::any_of(indexes_.begin(), indexes_.end(),
                                         [&](const auto& index) { return index.concerns(table); });
        if (!newer.live || !indexed) continue;
        newer.key = write->record.key;
        newer.value = write->record.value;
      }
    }
    report_.to_replay = newer_.size();
  }

  void check_slot(const SlabArena::Slab& slab, SlotOffset slot) {
    if (const auto newer = newer_.find(raw(slot)); newer != newer_.end()) {
      const Newer& record = newer->second;
      ++(record.live ? report_.live_records : report_.tombstones);
      if (record.live && !record.key.empty()) see(record.table, slot, record.key, record.value);
      return;
    }
    const SlotContent content = slots_.read(slab, slot);
    const uint64_t offset = arena_.pool_offset(slot);
    switch (content.state) {
      case SlotState::kNeverWritten: return;
      case SlotState::kDamaged:
        return problem(fmt::format(
            "record at offset {}: its checksum is wrong and no redo record repairs it", offset));
      case SlotState::kTombstone:
      case SlotState::kDropped: ++report_.tombstones; return;
      case SlotState::kLost:
        problem(fmt::format("record at offset {}: of table {}, which there is not", offset,
                            content.record->header->table));
        break;
      case SlotState::kLive: break;
    }
    check_live(slot, *content.record);
  }

  void check_live(SlotOffset slot, const RecordView& record) {
    ++report_.live_records;
    const auto table = static_cast<TableId>(record.header->table);
    // Two live records with one key: the 64-bit hash of table and key stands for both.
    const auto [other, fresh] = keys_.emplace(hash_key(table, record.key).value, raw(slot));
    if (!fresh) {
      problem(fmt::format("records at offsets {} and {}: both live, with the same key",
                          arena_.pool_offset(SlotOffset{other->second}), arena_.pool_offset(slot)));
    }
    see(table, slot, record.key, record.value);
  }

  const TableCatalog& catalog_;
  const SlabArena& arena_;
  SlotReader slots_;
  CheckReport& report_;
  std::unordered_map<uint64_t, Newer> newer_;  // by slot: what log and rings will put there
  std::unordered_map<uint64_t, uint64_t> keys_;
  std::vector<IndexCheck> indexes_;
};

Status check_rings(const TableCatalog& catalog) {
  PMSTORE_TRY(const auto places, catalog.ring_places());
  for (const TableCatalog::RingPlace& place : places) {
    PMSTORE_TRY(auto ring, catalog.open_ring(place));
    PMSTORE_TRY_STATUS(ring.walk([](const log::EntryView&) {}));
  }
  return {};
}

Status check_shard_log(const TableCatalog& catalog) {
  PMSTORE_TRY(auto log, catalog.open_log());
  PMSTORE_TRY_STATUS(internal::walk_shard_log(log, catalog));
  return {};
}

Status check_record_tables(const TableCatalog& catalog, const SlabArena& arena,
                           const std::string& path) {
  const auto lost = SlotReader(arena, catalog).lost_table();
  return lost ? Status(internal::table_is_lost(path, *lost)) : Status();
}

// As a start does it: where the checkpoint counts no header of a slab is read.
Result<SlabArena> open_arena(persist::Pool& pool, const internal::CatalogHeader& header) {
  const auto found = internal::Checkpoint::find(pool, header);
  if (found.reader) {
    auto restored = SlabArena::restore(pool, header, *found.reader);
    if (restored || restored.code() != ErrorCode::kDamaged) return restored;
  }
  return SlabArena::open(pool, header);
}

}  // namespace

Result<std::string> checkpoint_state(persist::Pool& pool) {
  PMSTORE_TRY(const TableCatalog catalog, TableCatalog::load(pool));
  const auto found = internal::Checkpoint::find(pool, catalog.header());
  if (found.reader) return std::string("current");
  return found.why_not.empty() ? std::string("none") : "not used: " + found.why_not;
}

Status check_startable(persist::Pool& pool) {
  PMSTORE_TRY(const TableCatalog catalog, TableCatalog::load(pool));
  PMSTORE_TRY(const SlabArena arena, open_arena(pool, catalog.header()));
  PMSTORE_TRY_STATUS(check_rings(catalog));
  PMSTORE_TRY_STATUS(check_shard_log(catalog));
  if (!catalog.counts_all_tables()) {
    PMSTORE_TRY_STATUS(check_record_tables(catalog, arena, pool.info().path));
  }
  return log::LogStore::is_in(pool) ? log::check_log_area(pool) : Status();
}

Result<CheckReport> check_store(persist::Pool& pool, std::span<const IndexToCheck> indexes) {
  PMSTORE_TRY(const TableCatalog catalog, TableCatalog::load(pool));
  CheckReport report;
  report.epoch = catalog.header().epoch;
  report.clean = catalog.header().clean != 0;
  PMSTORE_TRY(report.checkpoint, checkpoint_state(pool));
  const auto found = internal::Checkpoint::find(pool, catalog.header());
  if (found.reader) {
    const Status whole = found.reader->verify();
    if (!whole) report.checkpoint = "not used: " + whole.error().message;
  }
  if (const auto rules = load_space_rules(pool); !rules) {
    report.problems.push_back(rules.error().message);
  }
  report.tables = static_cast<uint32_t>(catalog.tables().size());
  auto arena = SlabArena::open(pool, catalog.header());
  if (!arena) {
    report.problems.push_back(arena.error().message);
    return report;
  }
  Checker checker(catalog, *arena, report);
  for (const IndexToCheck& index : indexes) {
    PMSTORE_TRY_STATUS(checker.add_index(index));
  }
  checker.check_rings();
  checker.check_log();
  checker.check_slabs();
  checker.check_indexes();
  return report;
}

}  // namespace pmstore
