#include "pmstore/client/slot_reservations.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/check.h"
#include "pmstore/layout/size_class.h"

namespace pmstore::internal {
namespace {

// The error to return after the server has refused a reservation for `item`.
Error refusal(const TxItem& item, const Error& why) {
  // A transaction that saw no record, and now finds one, has lost a race.
  const bool raced = why.code == ErrorCode::kAlreadyExists &&
                     (item.need != TxItem::Need::kAbsent || item.seen == TxItem::Seen::kAbsent);
  // A move whose record is gone has lost one, too.
  if (raced || (why.code == ErrorCode::kNotFound && item.moved)) {
    return make_error(ErrorCode::kConflict, "another transaction changed the same key");
  }
  return why;
}

}  // namespace

bool SlotReservations::any() const {
  return std::any_of(items_.begin(), items_.end(),
                     [](const TxItem& item) { return item.reserved; });
}

base::Task<Status> SlotReservations::reserve() {
  for (TxItem& item : items_) {
    if (!item.writes() || item.leave != TxItem::Leave::kValue) continue;
    const bool has_slot = item.seen == TxItem::Seen::kFound || item.seen == TxItem::Seen::kLocated;
    if (has_slot && item.record_size() <= kSlotBytes[item.size_class]) continue;
    if (has_slot) {
      item.moved = true;
      item.old_slot = item.slot;
      item.old_version = item.version;
    }
    Status reserved = co_await reserve_one(item);
    if (!reserved) co_return std::move(reserved);
  }
  co_return Status{};
}

base::Task<Status> SlotReservations::reserve_one(TxItem& item) {
  PMSTORE_CHECK(!item.reserved, "a write needs one slot");
  std::array<std::byte, sizeof(RequestPrefix) + sizeof(ReserveRequest) + kMaxKeyBytes> room;
  MessageWriter request(room);
  request.put(session_.prefix());
  // Two that scan and insert in the same leaf would both lose; so the later one does at once.
  const bool scanned = scanned_.covers(item.table, items_.key(item));
  request.put(ReserveRequest{
      id_.sequence, item.value_bytes, raw(item.table), item.key_bytes, item.moved, scanned, {}});
  request.put_bytes(items_.key(item));
  auto answer = co_await session_.rpc().call(static_cast<uint16_t>(Method::kReserve),
                                             request.message(), sizeof(ReserveReply));
  if (!answer) co_return refusal(item, answer.error());
  MessageReader reader(answer->bytes());
  const auto reply = reader.get<ReserveReply>();
  if (!reader.complete() || reply.size_class >= kSizeClasses ||
      kSlotBytes[reply.size_class] < item.record_size() ||
      !session_.in_slot_space(SlotOffset{reply.slot}, kSlotBytes[reply.size_class])) {
    co_return session_.malformed_reply("a reservation");
  }
  item.reserved = true;
  item.slot = SlotOffset{reply.slot};
  item.version = reply.version;
  item.size_class = reply.size_class;
  for (TxItem& other : items_) {
    // This commit has changed the bucket itself: that does not invalidate the absence of another
    // key in the same bucket.
    if (other.seen == TxItem::Seen::kAbsent && other.bucket == reply.bucket &&
        other.bucket_version == reply.bucket_version_before) {
      other.bucket_version = reply.bucket_version_after;
    }
  }
  co_return Status{};
}

base::Task<void> SlotReservations::release() {
  PMSTORE_CHECK(any(), "a commit releases only slots that it has reserved");
  std::array<std::byte, sizeof(RequestPrefix) + OpBuffer::kWords * sizeof(uint64_t)> room;
  MessageWriter request(room);
  request.put(session_.prefix());
  for (const TxItem& item : items_) {
    if (item.reserved) request.put(raw(item.slot));
  }
  const auto answer =
      co_await session_.rpc().call(static_cast<uint16_t>(Method::kRelease), request.message(), 0);
  if (!answer) session_.drop();
}

}  // namespace pmstore::internal
