#include "pmstore/client/read_validation.h"

#include <algorithm>

#include "pmstore/layout/lock_word.h"

namespace pmstore::internal {

namespace {

bool is_in_bucket(const TxItem& item) {
  return item.seen == TxItem::Seen::kAbsent && !is_ordered(item.table);
}

}  // namespace

bool knows_buckets_of(const ItemSet& items, const ClientSession& session) {
  return std::all_of(items.begin(), items.end(), [&](const TxItem& item) {
    return !is_in_bucket(item) || session.knows_bucket(item.bucket);
  });
}

base::Task<Status> learn_buckets_of(const ItemSet& items, ClientSession& session) {
  for (const TxItem& item : items) {
    if (!is_in_bucket(item) || session.knows_bucket(item.bucket)) continue;
    PMSTORE_CO_TRY_STATUS(
        co_await fetch_regions(session, RegionKind::kBuckets, item.bucket / kBucketsPerPiece));
  }
  co_return Status{};
}

base::Task<Status> validate_one_sided(const ItemSet& items, ClientSession& session,
                                      OpBuffer& buffer) {
  size_t next = 0;
  while (next < items.size()) {
    // As many as the buffer has words for, in doorbells of a batch each, and one wait: the last
    // completion says that all before it are there.
    const size_t first = next;
    const size_t end = std::min(items.size(), first + OpBuffer::kWords);
    Status read;
    buffer.batch.clear();
    for (; next < end && read; ++next) {
      const TxItem& item = items[next];
      if (!item.was_read()) continue;
      if (buffer.batch.full()) {
        read = co_await session.post(buffer, false);
        buffer.batch.clear();
      }
      const fabric::RemoteAddress source = item.seen == TxItem::Seen::kAbsent
                                               ? session.bucket_at(item.bucket)
                                               : session.word_at(item.read_slot());
      buffer.batch.read(buffer.word_at(next - first), source);
    }
    if (!read) co_return std::move(read);
    if (buffer.batch.empty()) continue;
    read = co_await session.execute(buffer);
    if (!read) read = co_await session.execute_after(std::move(read), buffer);
    if (!read) co_return std::move(read);
    for (size_t i = first; i < end; ++i) {
      const TxItem& item = items[i];
      if (!item.was_read()) continue;
      const bool absent = item.seen == TxItem::Seen::kAbsent;
      const uint64_t expected =
          absent ? item.bucket_version : LockWord::unlocked(item.read_version()).bits;
      // A bucket that is in change all the time does not tell of further changes.
      const bool in_change = absent && item.bucket_version % 2 == 1;
      if (buffer.word(i - first) != expected || in_change) {
        co_return make_error(ErrorCode::kConflict, "what was read has changed");
      }
    }
  }
  co_return Status{};
}

}  // namespace pmstore::internal
