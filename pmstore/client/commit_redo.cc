#include "pmstore/client/commit_redo.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"
#include "persist/padding.h"
#include "pmstore/client/rnic_background.h"
#include "pmstore/layout/lock_word.h"
#include "pmstore/layout/record.h"
#include "pmstore/layout/shard_record.h"

namespace pmstore::internal {

Status CommitRedo::check_limits() const {
  uint64_t redo_bytes = sizeof(ShardRecordHeader);
  size_t words = 0;
  for (const TxItem& item : items_) {
    words += item.writes() || item.seen != TxItem::Seen::kNo;
    if (!item.writes()) continue;
    redo_bytes += shard_write_bytes(item.record_size());
    redo_bytes += shard_write_bytes(record_bytes(item.key_bytes, 0));  // if it moves: the tombstone
  }
  if (words > OpBuffer::kWords) {
    return make_error(ErrorCode::kTooLarge, "a transaction under lock discipline rnic may touch " +
                                                std::to_string(OpBuffer::kWords) +
                                                " records; split it");
  }
  const uint64_t limit = session_.ring().max_payload_bytes();
  if (redo_bytes > limit) {
    return make_error(ErrorCode::kTooLarge,
                      "the transaction's redo record of " + std::to_string(redo_bytes) +
                          " bytes is over half of the ring (" + std::to_string(limit) +
                          " bytes); split it or format with larger rings");
  }
  return {};
}

// The server would not take a redo record with a higher version for one, after it was logged.
Status CommitRedo::check_versions() const {
  for (const TxItem& item : items_) {
    const bool used_up =
        item.version >= kMaxRecordVersion || (item.moved && item.old_version >= kMaxRecordVersion);
    if (!item.writes() || !used_up) continue;
    return make_error(ErrorCode::kFull,
                      "a record that the transaction writes has used up its versions, which only a "
                      "client that breaks the protocol can do; copy the records into a new pool");
  }
  return {};
}

bool CommitRedo::changes_index() const {
  return std::any_of(items_.begin(), items_.end(), [](const TxItem& item) {
    return item.reserved || item.leave == TxItem::Leave::kNothing;
  });
}

void CommitRedo::build(OpBuffer& buffer) {
  uint64_t bytes = sizeof(ShardRecordHeader);
  for (const TxItem& item : items_) {
    if (!item.writes()) continue;
    bytes += shard_write_bytes(item.record_size());
    if (item.moved) bytes += shard_write_bytes(record_bytes(item.key_bytes, 0));
  }
  storage_.resize(bytes);
  ShardRedoBuilder builder(storage_, id_.client, session_.prefix().epoch);
  in_place_ = session_.one_sided_commit() && !changes_index();
  if (in_place_) buffer.batch.clear();
  uint32_t image_offset = 0;
  for (const TxItem& item : items_) {
    if (!item.writes()) continue;
    const bool live = item.leave == TxItem::Leave::kValue;
    const auto image =
        builder.add(item.slot, item.table, item.version + 1,
                    live ? RecordState::kLive : RecordState::kTombstone, items_.key(item),
                    live ? items_.value(item) : std::string_view{});
    if (item.moved) {
      builder.add(item.old_slot, item.table, item.old_version + 1, RecordState::kTombstone,
                  items_.key(item), {});
    }
    in_place_ = in_place_ && plan_write(buffer, item, image, image_offset);
  }
  payload_ = builder.finish();
  if (!in_place_) return;
  plan_unlocks(buffer);
}

// The commit phase is one doorbell or it is the server's: images that do not fit one, or whose
// slots are in no memory that this client knows, go by RPC.
bool CommitRedo::plan_write(OpBuffer& buffer, const TxItem& item, std::span<const std::byte> image,
                            uint32_t& image_offset) {
  const auto padded =
      static_cast<uint32_t>(persist::padded_bytes(image.size(), true, session_.hello().padding()));
  if (buffer.batch.size() >= fabric::Batch::kMaxWorkRequests / 2) return false;
  if (!session_.in_records(item.slot, padded)) return false;
  if (padded > OpBuffer::kWordsOffset - image_offset) return false;
  const fabric::LocalBuffer local = buffer.at(image_offset, padded);
  std::memcpy(local.data, image.data(), image.size());
  std::memset(local.data + image.size(), 0, padded - image.size());
  buffer.batch.write(local, session_.record_at(item.slot));
  image_offset += padded;
  return true;
}

// Behind the records on the same queue pair: a reader that sees a word unlocked sees its record.
void CommitRedo::plan_unlocks(OpBuffer& buffer) {
  size_t word = 0;
  const uint16_t owner = session_.hello().owner;
  for (const TxItem& item : items_) {
    if (!item.writes()) continue;
    PMSTORE_CHECK(!item.reserved && !item.moved, "only the server unlocks a reserved slot");
    buffer.batch.compare_swap(buffer.word_at(word++), session_.word_at(item.slot),
                              LockWord::locked(item.version, owner).bits,
                              LockWord::unlocked(item.version + 1).bits);
  }
}

base::Task<Result<RedoRing::Appended>> CommitRedo::append() {
  PMSTORE_CHECK(!payload_.empty(), "the redo record is built before it is logged");
  RedoRing& ring = session_.ring();
  const uint64_t deadline = session_.executor().now_ns() + session_.call_timeout_ns();
  constexpr uint64_t kPauseNs = 20'000;
  while (true) {
    auto appended = co_await ring.append(id_.sequence, payload_);
    if (appended) co_return std::move(appended);
    const ErrorCode code = appended.code();
    if (code == ErrorCode::kTooLarge) co_return std::move(appended.error());
    if (code != ErrorCode::kBackPressure) {
      co_return numbers_.in_doubt(id_, session_, appended.error());
    }
    if (session_.executor().now_ns() >= deadline || !session_.usable()) {
      co_return make_error(ErrorCode::kTimeout, "the redo ring stayed full; nothing happened");
    }
    co_await truncate_ring(SessionRef(&session_));
    // The commit phases of others may have to be acknowledged first.
    co_await session_.executor().sleep_for(kPauseNs);
  }
}

base::Task<Status> CommitRedo::post_in_place(persist::Persisted /*logged*/, OpBuffer& buffer) {
  PMSTORE_CHECK(in_place_ && !buffer.batch.empty(), "the commit phase was planned in the buffer");
  return session_.post(buffer, true);
}

}  // namespace pmstore::internal
