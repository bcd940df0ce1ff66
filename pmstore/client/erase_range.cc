// Transaction::erase_range(): see pmstore/client.h.

#include <algorithm>
#include <utility>

#include "pmstore/client/commit_room.h"
#include "pmstore/client/transaction_state.h"

namespace pmstore {

using internal::CommitRoom;
using internal::TxItem;

namespace {

// A page has the values, too, so it is not much larger than what is erased.
constexpr uint32_t kPageRecords = 256;

}  // namespace

CommitRoom Transaction::State::room_in_use() const {
  CommitRoom room(client.connector.info().discipline);
  for (const TxItem& item : items) {
    if (!item.writes()) {
      if (item.was_read()) room.add_read();
      continue;
    }
    if (item.was_read()) room.add_checks(sizeof(ReadCheck));
    const bool value = item.leave == TxItem::Leave::kValue;
    room.add_write(item.key_bytes, value ? item.value_bytes : 0, value);
  }
  room.add_checks(scanned.bytes());
  return room;
}

bool Transaction::State::has_room(const CommitRoom& room) const {
  return room.fits(client.connector.info().max_redo_bytes, client.connector.largest_commit_bytes());
}

Task<Result<ErasedRange>> Transaction::erase_range(TableId table, KeyRange range, uint32_t limit) {
  TransactionScan records = scan(table, range);
  return State::erase_range(state_->hold(), std::move(records), table, std::move(range), limit);
}

Task<Result<ErasedRange>> Transaction::State::erase_range(Ref self, TransactionScan scan,
                                                          TableId table, KeyRange range,
                                                          uint32_t limit) {
  State& state = *self;
  ErasedRange done;
  done.rest = std::move(range);
  while (done.erased < limit) {
    const auto most = static_cast<uint32_t>(std::min<uint64_t>(limit - done.erased, kPageRecords));
    PMSTORE_CO_TRY(const RecordPage page, co_await scan.next(most));
    if (page.empty()) {
      done.complete = true;
      co_return std::move(done);
    }
    CommitRoom room = state.room_in_use();
    for (const RecordRef record : page) {
      room.add_write(record.key.size(), 0, false);
      if (!state.has_room(room)) {
        if (done.erased > 0) co_return std::move(done);
        Error full = make_error(ErrorCode::kTooLarge,
                                "the transaction has no room for another erase; commit it first");
        state.fail(full);
        co_return full;
      }
      state.write(TxItem::Need::kPresent, TxItem::Leave::kNothing, table, record.key, {});
      ++done.erased;
      done.rest.from.assign(record.key).push_back('\0');
    }
  }
  co_return std::move(done);
}

}  // namespace pmstore
