// Makes the store's part of a new pool (pmstore/shard/table_catalog.h).
#include <algorithm>
#include <bit>
#include <string>

#include "base/check.h"
#include "base/random.h"
#include "base/size_text.h"
#include "log/log_store.h"
#include "log/ring.h"
#include "persist/padding.h"
#include "pmstore/layout/frame_layout.h"
#include "pmstore/shard/table_catalog.h"

namespace pmstore {

namespace internal {

namespace {

uint64_t bytes_of_ring(const persist::Pool& pool, uint64_t wanted) {
  if (wanted != 0) return persist::round_up(wanted, persist::kXpLineBytes);
  // From 256 MiB on, a transaction may hold the largest value (it takes a little under half a
  // ring).
  constexpr uint64_t kHoldsLargestValue = 2304 << 10;
  const uint64_t pool_bytes = pool.info().bytes;
  const uint64_t least = pool_bytes >= (240u << 20) ? kHoldsLargestValue : 64 << 10;
  const uint64_t bytes = std::clamp<uint64_t>(pool_bytes / 128, least, 4 << 20);
  return persist::round_up(bytes, persist::kXpLineBytes);
}

// What a new pool gives to the shard log.
uint64_t shard_log_bytes(const persist::Pool& pool, uint64_t wanted) {
  if (wanted != 0) return persist::round_up(wanted, persist::kXpLineBytes);
  // From 256 MiB on it holds a transaction with the largest value.
  constexpr uint64_t kShare = 32;
  constexpr uint64_t kLeast = 64 << 10;
  constexpr uint64_t kMost = 16 << 20;
  const uint64_t bytes = std::clamp(pool.info().bytes / kShare, kLeast, kMost);
  return persist::round_up(bytes, persist::kXpLineBytes);
}

// The log area is one extent, which lies in one zone of libpmemobj.
Status make_log_area(persist::Pool& pool, const FormatOptions& options) {
  constexpr uint64_t kOneZone = uint64_t{16} << 30;
  const uint64_t bytes = options.log_bytes;
  if (bytes == 0) return {};
  const uint64_t most = pool.largest_free_extent();
  if (bytes <= most) return log::LogStore::format(pool, bytes, options.identity);
  if (bytes >= kOneZone) {
    return make_error(ErrorCode::kFull, "a log area of " + base::size_text(bytes) +
                                            " is too large: it is one extent, so at most 16 GiB "
                                            "(in this pool " +
                                            base::size_text(most) + ")");
  }
  return make_error(ErrorCode::kFull,
                    "the pool has no room for a log area of " + base::size_text(bytes) +
                        ": at most " + base::size_text(most) + " are left beside the client rings");
}

// Room that file data gets, zero and not yet formatted.
Status make_file_room(persist::Pool& pool, uint64_t wanted) {
  if (wanted == 0) return {};
  const uint64_t bytes = persist::round_up(wanted, persist::kXpLineBytes);
  if (bytes > pool.largest_free_extent()) {
    return make_error(ErrorCode::kFull, "the pool has no room for " + base::size_text(bytes) +
                                            " of file data at once: at most " +
                                            base::size_text(pool.largest_free_extent()) +
                                            " are free together beside client rings and logs; "
                                            "files take more by need when they are served");
  }
  PMSTORE_TRY_STATUS(pool.allocate_extent(persist::ExtentKind::kFileData, bytes));
  return {};
}

}  // namespace

Status TableCatalog::format(persist::Pool& pool, const FormatOptions& options) {
  PMSTORE_TRY_STATUS(check_format(options));
  TableCatalog catalog(pool);
  CatalogHeader& header = catalog.header_;
  header.magic = kCatalogMagic;
  header.version = kCatalogVersion;
  header.pool = options.identity != 0 ? options.identity : base::random_identity();
  header.ring_count = options.rings;
  header.ring_bytes = bytes_of_ring(pool, options.ring_bytes);
  header.log_bytes = shard_log_bytes(pool, options.shard_log_bytes);
  header.clean = 1;
  PMSTORE_TRY(const auto ring_room, catalog.make_redo_room());
  PMSTORE_TRY_STATUS(make_log_area(pool, options));
  PMSTORE_TRY_STATUS(make_file_room(pool, options.file_bytes));
  PMSTORE_TRY_STATUS(catalog.make_first_records(options));
  // Rings can get this room, and later records, whatever comes first.
  for (const persist::Extent& extent : ring_room) {
    PMSTORE_TRY_STATUS(pool.free_extent(extent));
  }
  PMSTORE_TRY_STATUS(catalog.format_log(0));
  // The header comes last: a pool whose formatting was interrupted has no catalog.
  PMSTORE_TRY_STATUS(catalog.write_first_header());
  for (const std::string& name : options.tables) {
    if (catalog.find(name)) continue;
    if (auto made = catalog.create_table(name); !made) return made.error();
  }
  return {};
}

// The first frame, so that a pool can always hold something. More comes when it is needed.
Status TableCatalog::make_first_records(const FormatOptions& options) {
  header_.frame_chunks = options.frame_bytes != 0
                             ? static_cast<uint32_t>(options.frame_bytes / kChunkBytes)
                             : usual_frame_chunks(pool_->info().bytes);
  const uint64_t room = persist::round_down(pool_->largest_free_extent(), kChunkBytes);
  const uint64_t log_room = has_log_extent() ? 0 : header_.log_bytes;
  if (room < log_room + 4 * kChunkBytes) {
    return make_error(ErrorCode::kFull,
                      "the pool has no room for records beside " + std::to_string(options.rings) +
                          " client rings of " + base::size_text(header_.ring_bytes) +
                          ", a shard log of " + base::size_text(header_.log_bytes) + ", " +
                          base::size_text(options.log_bytes) + " for logs and " +
                          base::size_text(options.file_bytes) +
                          " for file data: use fewer or smaller rings, or a larger pool");
  }
  // An extent of their own would take 2.5 MiB of a pool file. So lies a small shard log there.
  const bool more_tables =
      pool_->info().bytes >= persist::kMinPoolBytes && room >= log_room + 8 * kChunkBytes;
  if (more_tables) header_.tables_bytes = kMoreTablesBytes;
  const uint64_t beside = header_.tables_bytes + log_room;
  const uint64_t frame_bytes = uint64_t{header_.frame_chunks} * kChunkBytes;
  const uint64_t most_frames = frames_of(pool_->info().bytes, frame_bytes);
  const uint64_t possible = persist::round_down(
      std::min(room - std::min(room, beside), most_frames * frame_bytes - kChunkBytes),
      kChunkBytes);
  if (possible < options.record_bytes) {
    return make_error(ErrorCode::kFull,
                      "the pool has no room for " + base::size_text(options.record_bytes) +
                          " of records at once: at most " + base::size_text(possible) +
                          " are free together beside client rings, logs and files; records take "
                          "more by need");
  }
  // Whole frames, and the last chunk of the last one stays without memory.
  const uint64_t frames = (options.record_bytes + kChunkBytes + frame_bytes - 1) / frame_bytes;
  const uint64_t most = std::max<uint64_t>(frames, 1) * frame_bytes - kChunkBytes;
  PMSTORE_TRY(
      const auto records,
      pool_->allocate_extent(persist::ExtentKind::kRecords,
                             std::min(room, persist::round_up(most + beside, kChunkBytes))));
  if (more_tables) header_.tables_offset = records.offset + records.bytes - kMoreTablesBytes;
  header_.records_offset = records.offset;
  header_.records_bytes = std::min(most, persist::round_down(records.bytes - beside, kChunkBytes));
  if (log_room > 0) header_.log_offset = records.offset + header_.records_bytes;
  return {};
}

}  // namespace internal

Status check_format(const FormatOptions& options) {
  if (options.rings > internal::kMostRings) {
    return make_error(ErrorCode::kInvalidArgument, "a pool has at most 4096 client rings");
  }
  if (options.shard_log_bytes != 0 && options.shard_log_bytes < log::kMinRingBytes) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a shard log of " + base::size_text(options.shard_log_bytes) +
                          " is too small: use at least " + base::size_text(log::kMinRingBytes));
  }
  if (options.ring_bytes != 0 && options.ring_bytes < log::kMinRingBytes) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a client ring of " + base::size_text(options.ring_bytes) +
                          " is too small: use at least " + base::size_text(log::kMinRingBytes));
  }
  if (options.file_bytes != 0 && options.file_bytes < FormatOptions::kLeastFileBytes) {
    return make_error(ErrorCode::kInvalidArgument,
                      base::size_text(options.file_bytes) +
                          " is too little for file data: use at least " +
                          base::size_text(FormatOptions::kLeastFileBytes));
  }
  if (options.frame_bytes != 0 && (!std::has_single_bit(options.frame_bytes) ||
                                   options.frame_bytes < 2 * internal::kChunkBytes ||
                                   options.frame_bytes > internal::kMostFrameBytes)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "records take space in pieces of a power of two, from " +
                          base::size_text(2 * internal::kChunkBytes) + " to " +
                          base::size_text(internal::kMostFrameBytes));
  }
  for (const std::string& name : options.tables) {
    PMSTORE_TRY_STATUS(check_table_name(name));
  }
  return {};
}

Status format_store(persist::Pool& pool, const FormatOptions& options) {
  return internal::TableCatalog::format(pool, options);
}

}  // namespace pmstore
