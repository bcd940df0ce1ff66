// How the catalog of an earlier version becomes one of the present version (pmstore/convert.h).
#include "base/check.h"
#include "pmstore/layout/frame_layout.h"
#include "pmstore/shard/table_catalog.h"

namespace pmstore::internal {

namespace {

// Records keep their slots: the only extent that they had becomes the first frames.
void raise(CatalogHeader& header, const persist::Pool& pool) {
  header.version = kCatalogVersion;
  header.frame_chunks = usual_frame_chunks(pool.info().bytes);
}

}  // namespace

Status TableCatalog::begin_conversion(persist::Persisted /*in_place*/, uint32_t rings,
                                      uint64_t log_bytes, uint32_t last_session) {
  PMSTORE_CHECK(header_.version < kFirstVersionWithLog && rings < header_.ring_count,
                "the log takes the room of rings");
  PMSTORE_TRY_STATUS(make_found_durable());
  CatalogHeader next = header_;
  raise(next, *pool_);
  next.features = kConverting;
  next.table_count = static_cast<uint32_t>(entries_.size());
  next.ring_count = rings;
  next.log_offset = header_.rings_offset + rings * header_.ring_bytes;
  next.log_bytes = log_bytes;
  next.sessions = last_session;
  return write_both_headers(next);
}

Status TableCatalog::raise_version(persist::Persisted /*in_place*/) {
  PMSTORE_CHECK(header_.version >= kFirstVersionWithLog && header_.version < kCatalogVersion,
                "a pool without a shard log gets one first");
  PMSTORE_TRY_STATUS(make_found_durable());
  CatalogHeader next = header_;
  raise(next, *pool_);
  return write_both_headers(next);
}

Status TableCatalog::end_conversion() {
  PMSTORE_CHECK((header_.features & kConverting) != 0, "a conversion ends once");
  CatalogHeader next = header_;
  next.features &= ~kConverting;
  return write_both_headers(next);
}

Status TableCatalog::write_both_headers(const CatalogHeader& next) {
  PMSTORE_TRY_STATUS(write_header(next));
  return write_header(header_);
}

}  // namespace pmstore::internal
