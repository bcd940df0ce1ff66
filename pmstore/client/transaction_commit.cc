// Committing a transaction: what all ways have in common, and transactions that only read.
#include <algorithm>

#include "pmstore/client/transaction_state.h"
#include "pmstore/layout/lock_word.h"

namespace pmstore {

using internal::OpBuffer;
using internal::TxItem;

Task<Status> Transaction::State::commit(Ref self) { co_return co_await self->commit_held(); }

Task<Status> Transaction::State::commit_held() {
  if (over) {
    co_return make_error(ErrorCode::kInvalidArgument,
                         "the transaction is over; begin() another one");
  }
  over = true;
  if (failure) co_return std::move(*failure);
  if (items.empty()) co_return Status{};
  auto bound = co_await bind();
  if (!bound) co_return std::move(bound.error());
  if (Status read = co_await read_what_writes_need(); !read) co_return std::move(read);

  // What was read may already say that a write cannot be; but only if it still is so.
  for (const Item& item : items) {
    ErrorCode impossible;
    if (item.need == Item::Need::kAbsent && item.seen == Item::Seen::kFound) {
      impossible = ErrorCode::kAlreadyExists;
    } else if (item.need == Item::Need::kPresent && item.seen == Item::Seen::kAbsent) {
      impossible = ErrorCode::kNotFound;
    } else {
      continue;
    }
    Status unchanged = co_await validate();
    if (unchanged) unchanged = make_error(impossible);
    co_return std::move(unchanged);
  }
  if (!has_writes()) co_return co_await validate();
  if (!client.has_sequence()) co_return stale_error();  // the next one gets a new connection
  if (session->discipline() == LockDiscipline::kRnic) co_return co_await commit_rnic();
  co_return co_await commit_cpu(true);
}

namespace {

// Does one WriteOp say it all? Otherwise commit() must know whether the record is there.
bool is_one_write(const TxItem& item) {
  using Need = TxItem::Need;
  if (item.leave == TxItem::Leave::kValue) return item.need != Need::kPresent;
  return item.need == Need::kPresent;
}

}  // namespace

Task<Status> Transaction::State::read_what_writes_need() {
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].writes() || items[i].seen != Item::Seen::kNo || is_one_write(items[i])) continue;
    const std::string with_key(key(items[i]));
    auto located = co_await client.locate(session, items[i].table, with_key, nullptr);
    if (!located) co_return std::move(located.error());
    Status first = remember(items[i].table, with_key, items[i].hash, *located);
    if (!first) co_return std::move(first);
  }
  for (Item& item : items) {
    // Nothing is there and nothing shall be there: only that must stay so.
    const bool nothing = item.leave == Item::Leave::kNothing && item.seen == Item::Seen::kAbsent &&
                         item.need != Item::Need::kPresent;
    if (nothing) item.leave = Item::Leave::kAsItIs;
  }
  co_return Status{};
}

Task<Status> Transaction::State::validate() {
  size_t reads = 0;
  for (const Item& item : items) reads += item.was_read();
  // A single read was valid at one moment; that moment is when the transaction happened.
  if (reads <= 1) co_return Status{};
  if (session->one_sided_reads() || session->discipline() == LockDiscipline::kRnic) {
    co_return co_await validate_one_sided();
  }
  co_return co_await commit_cpu(false);
}

Task<Status> Transaction::State::validate_one_sided() {
  auto buffer = session->buffers().try_take();
  if (!buffer) buffer = co_await session->buffers().take();
  size_t next = 0;
  while (next < items.size()) {
    // As many as the buffer has words for, in doorbells of a batch each, and one wait: the last
    // completion says that all before it are there.
    const size_t first = next;
    const size_t end = std::min(items.size(), first + OpBuffer::kWords);
    Status read;
    buffer->batch.clear();
    for (; next < end && read; ++next) {
      const Item& item = items[next];
      if (!item.was_read()) continue;
      if (buffer->batch.full()) {
        read = co_await session->post(*buffer, false);
        buffer->batch.clear();
      }
      const fabric::RemoteAddress from = item.seen == Item::Seen::kAbsent
                                             ? session->bucket_at(item.bucket)
                                             : session->word_at(item.read_slot());
      buffer->batch.read(buffer->word_at(next - first), from);
    }
    if (!read) co_return std::move(read);
    if (buffer->batch.empty()) continue;
    read = co_await session->execute(*buffer);
    if (!read) read = co_await session->execute_after(std::move(read), *buffer);
    if (!read) co_return std::move(read);
    for (size_t i = first; i < end; ++i) {
      const Item& item = items[i];
      if (!item.was_read()) continue;
      const uint64_t expected = item.seen == Item::Seen::kAbsent
                                    ? item.bucket_version
                                    : LockWord::unlocked(item.read_version()).bits;
      if (buffer->word(i - first) != expected) {
        co_return make_error(ErrorCode::kConflict, "what was read has changed");
      }
    }
  }
  co_return Status{};
}

}  // namespace pmstore
