// Pools as earlier releases have left them: the first ones without a shard log, every transaction
// in a client's ring; all with redo records in rings that are not those of the shard log. Made of a
// pool of the present format.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/checksum.h"
#include "base/random.h"
#include "log/ring.h"
#include "persist/pool.h"
#include "pmstore/layout/catalog_layout.h"
#include "pmstore/layout/earlier_redo.h"
#include "pmstore/layout/record.h"
#include "pmstore/shard/session_numbers.h"

namespace pmstore::internal {

inline CatalogHeader catalog_copy(persist::Pool& pool, uint64_t copy) {
  CatalogHeader header;
  std::memcpy(&header, pool.root().data() + copy * kCatalogCopyBytes, sizeof header);
  return header;
}

// With right checksums.
inline void store_catalog_copy(persist::Pool& pool, uint64_t copy, CatalogHeader header) {
  if (header.version < kFirstVersionWithFrames) {
    header.frame_chunks = 0;
    header.freed_version = 0;
  }
  header.more_crc = 0;
  const auto bytes = std::as_bytes(std::span(&header, 1));
  const auto first = bytes.first(kCatalogCrcBytes);
  header.crc = base::crc32c(first.subspan(offsetof(CatalogHeader, version)), 0);
  if (header.version >= kFirstVersionWithFrames) {
    header.more_crc = base::crc32c(bytes.subspan(kCatalogCrcBytes), header.crc);
  }
  std::byte* const at = pool.root().data() + copy * kCatalogCopyBytes;
  pool.memory().store(at, &header, sizeof header);
  pool.memory().flush(at, sizeof header);
}

inline log::Ring open_earlier_ring(persist::Pool& pool, uint32_t index) {
  const CatalogHeader header = catalog_copy(pool, 0);
  auto ring =
      log::Ring::open(pool.memory(), header.rings_offset + index * header.ring_bytes,
                      header.ring_bytes, static_cast<uint32_t>(base::mix64(header.pool + index)));
  PMSTORE_CHECK(ring.has_value() && ring->walk([](const log::EntryView&) {}).has_value(),
                "the ring is sound");
  return std::move(*ring);
}

// Rings and shard log move into one extent, as earlier releases made it.
inline void move_redo_together(persist::Pool& pool, CatalogHeader& header) {
  const persist::Memory& memory = pool.memory();
  const std::vector<std::byte> log(memory.at(header.log_offset),
                                   memory.at(header.log_offset) + header.log_bytes);
  const std::vector<persist::Extent> extents = pool.info().extents;
  for (const persist::Extent& extent : extents) {
    const bool redo = extent.kind == persist::ExtentKind::kRings ||
                      extent.kind == persist::ExtentKind::kShardLog ||
                      extent.kind == persist::ExtentKind::kCheckpoint;  // there were none
    if (redo) PMSTORE_CHECK(pool.free_extent(extent).has_value(), "memory can always be drained");
  }
  header.rings_offset = pool.allocate_extent(persist::ExtentKind::kRings,
                                             header.ring_count * header.ring_bytes + log.size())
                            .value()
                            .offset;
  header.log_offset = header.rings_offset + header.ring_count * header.ring_bytes;
  pool.memory().write(pool.memory().at(header.log_offset), log.data(), log.size());
}

// The pool's store was closed, and its log is as large as some rings: these take its place, where
// the version had no log.
inline void make_earlier(persist::Pool& pool, uint32_t version) {
  CatalogHeader newest = catalog_copy(pool, 0);
  if (catalog_copy(pool, 1).generation > newest.generation) newest = catalog_copy(pool, 1);
  PMSTORE_CHECK(newest.log_bytes % newest.ring_bytes == 0, "rings take the place of the log");
  move_redo_together(pool, newest);
  const bool without_log = version < kFirstVersionWithLog;
  const auto more = without_log ? static_cast<uint32_t>(newest.log_bytes / newest.ring_bytes) : 0;
  for (uint32_t i = 0; i < newest.ring_count + more; ++i) {
    const auto salt = static_cast<uint32_t>(base::mix64(newest.pool + i));
    PMSTORE_CHECK(log::Ring::format(pool.memory(), newest.rings_offset + i * newest.ring_bytes,
                                    newest.ring_bytes, salt)
                      .has_value(),
                  "memory can always be drained");
  }
  for (uint64_t copy = 0; copy < 2; ++copy) {
    CatalogHeader header = catalog_copy(pool, copy);
    header.version = version;
    header.rings_offset = newest.rings_offset;
    header.log_offset = newest.log_offset;
    header.ring_count = newest.ring_count + more;
    header.sessions = SessionNumbers::kBlock;  // a server counts them in advance
    if (without_log) {
      header.log_offset = header.log_bytes = 0;
      header.features = header.sessions = 0;
    }
    if (version < kFirstVersionWithDrops) header.highest_table = header.tables_dropped = 0;
    store_catalog_copy(pool, copy, header);
  }
  PMSTORE_CHECK(pool.memory().drain().has_value(), "memory can always be drained");
}

struct EarlierUpdate {
  SlotOffset slot;
  TableId table;
  uint64_t version;  // of the record
  std::string key;
  std::string value;
};

inline std::vector<std::byte> earlier_redo(uint64_t pool, uint64_t client,
                                           const EarlierUpdate& update) {
  const uint64_t image_bytes = record_bytes(update.key.size(), update.value.size());
  std::vector<std::byte> redo(kEarlierRedoHeaderBytes + earlier_redo_write_bytes(image_bytes));
  const EarlierRedoHeader header{client, 1, 1};
  const EarlierRedoWrite write{raw(update.slot), static_cast<uint32_t>(image_bytes), 0};
  std::memcpy(redo.data(), &header, sizeof header);
  std::memcpy(redo.data() + sizeof header, &pool, sizeof pool);
  std::memcpy(redo.data() + kEarlierRedoHeaderBytes, &write, sizeof write);
  build_record(std::span(redo).subspan(kEarlierRedoHeaderBytes + sizeof write), update.slot,
               update.table, update.version, RecordState::kLive, update.key, update.value);
  return redo;
}

// A transaction of `client` is in its ring, durable, and not in place.
inline TxId log_in_ring(persist::Pool& pool, uint32_t index, uint64_t client,
                        const EarlierUpdate& update) {
  log::Ring ring = open_earlier_ring(pool, index);
  uint32_t session = ring.position().incarnation + index + 1;
  // Odd ones are those of the shard log.
  if (catalog_copy(pool, 0).version >= kFirstVersionWithLog) session += session % 2;
  PMSTORE_CHECK(ring.take_over(client, session).has_value(), "memory can always be drained");
  const TxId id{client, (uint64_t{session} << 32) + 7};
  const auto redo = earlier_redo(catalog_copy(pool, 0).pool, client, update);
  PMSTORE_CHECK(ring.append(id.sequence, redo).has_value(), "the ring has room");
  PMSTORE_CHECK(pool.memory().drain().has_value(), "memory can always be drained");
  return id;
}

}  // namespace pmstore::internal
