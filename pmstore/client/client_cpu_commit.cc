#include "pmstore/client/client_cpu_commit.h"

#include "base/check.h"
#include "pmstore/client/commit_message.h"

namespace pmstore::internal {
namespace {

constexpr auto kMethod = static_cast<uint16_t>(Method::kCommit);

WriteKind kind_of(const TxItem& item) {
  PMSTORE_CHECK(item.writes(), "only a write has a kind");
  if (item.leave == TxItem::Leave::kNothing) return WriteKind::kErase;
  return item.need == TxItem::Need::kAbsent ? WriteKind::kInsert : WriteKind::kPut;
}

void put_checks(MessageWriter& request, const ItemSet& items, bool with_writes,
                CommitRequest& counts) {
  for (const TxItem& item : items) {
    if (item.seen != TxItem::Seen::kFound) continue;
    if (with_writes && item.writes()) continue;  // the write carries the check itself
    request.put(ReadCheck{raw(item.slot), item.version});
    ++counts.reads;
  }
  for (const TxItem& item : items) {
    if (item.seen != TxItem::Seen::kAbsent) continue;
    request.put(AbsenceCheck{item.bucket, item.bucket_version});
    ++counts.absences;
  }
}

void put_writes(MessageWriter& request, const ItemSet& items, CommitRequest& counts) {
  for (const TxItem& item : items) {
    if (!item.writes()) continue;
    WriteOp op{};
    if (item.seen == TxItem::Seen::kFound) {
      op.expected_slot = raw(item.slot);
      op.expected_version = item.version;
    }
    op.table = raw(item.table);
    op.kind = kind_of(item);
    put_write(request, op, items.key(item), items.value(item));
    ++counts.writes;
  }
}

// Lays the request out in `scratch`. TooLarge when it does not fit.
Result<std::span<const std::byte>> build(uint64_t sequence, const ItemSet& items, bool with_writes,
                                         const ClientSession& session,
                                         std::span<std::byte> scratch) {
  constexpr size_t kBodyOffset = sizeof(RequestPrefix) + sizeof(CommitRequest);
  PMSTORE_CHECK(scratch.size() > kBodyOffset, "the scratch buffer takes the head of a request");
  CommitRequest counts{sequence, 0, 0, 0, 0};
  MessageWriter body(scratch.subspan(kBodyOffset));
  put_checks(body, items, with_writes, counts);
  if (with_writes) put_writes(body, items, counts);
  if (body.overflowed()) {
    return make_error(ErrorCode::kTooLarge, "a transaction may take " +
                                                std::to_string(scratch.size()) +
                                                " bytes as a message; split it");
  }
  MessageWriter head(scratch.first(kBodyOffset));
  head.put(session.prefix());
  head.put(counts);
  return std::span<const std::byte>(scratch.first(kBodyOffset + body.bytes()));
}

}  // namespace

base::Task<Status> commit_by_rpc(TxId id, const ItemSet& items, ClientSession& session,
                                 std::span<std::byte> scratch, TransactionNumbers& numbers) {
  const auto request = build(id.sequence, items, true, session, scratch);
  if (!request) co_return Error(request.error());
  TransactionNumbers::Running is_running(numbers, id.sequence);
  const auto answer = co_await session.rpc().call(kMethod, *request, sizeof(CommitReply));
  is_running.settled();
  co_return numbers.commit_status(id, session, answer);
}

base::Task<Status> validate_by_rpc(const ItemSet& items, ClientSession& session,
                                   std::span<std::byte> scratch) {
  const auto request = build(0, items, false, session, scratch);
  if (!request) co_return Error(request.error());
  const auto answer = co_await session.rpc().call(kMethod, *request, sizeof(CommitReply));
  if (!answer) co_return Error(answer.error());
  if (answer->bytes().size() != sizeof(CommitReply)) co_return session.malformed_reply("a commit");
  co_return Status{};
}

}  // namespace pmstore::internal
