// Commit under lock discipline cpu: one RPC. The server locks, validates, logs and applies.
#include "pmstore/client/commit_message.h"
#include "pmstore/client/transaction_state.h"

namespace pmstore {

using internal::TxItem;

namespace {

WriteKind kind_of(const TxItem& item) {
  if (item.leave == TxItem::Leave::kNothing) return WriteKind::kErase;
  return item.need == TxItem::Need::kAbsent ? WriteKind::kInsert : WriteKind::kPut;
}

void put_checks(MessageWriter& request, const std::vector<TxItem>& items, bool with_writes,
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

}  // namespace

Status Client::State::commit_failure(TxId tx, internal::ClientSession& of,
                                     const Result<fabric::RpcReply>& answer) {
  // It was answered, so it was done, whatever the answer was meant to be.
  if (answer) return in_doubt(tx, of, of.malformed_reply("a commit"));
  const ErrorCode code = answer.code();
  const bool open = code == ErrorCode::kDisconnected || code == ErrorCode::kTimeout ||
                    code == ErrorCode::kCommitUnknown;
  if (open) return in_doubt(tx, of, answer.error());
  return Error(answer.error());
}

Task<Status> Transaction::State::commit_cpu(bool with_writes) {
  if (with_writes) id = client.next_id();
  CommitRequest counts{id.sequence, 0, 0, 0, 0};
  const std::span<std::byte> scratch(client.scratch.get(), client.scratch_bytes);
  constexpr size_t kBodyAt = sizeof(RequestPrefix) + sizeof(CommitRequest);
  MessageWriter body(scratch.subspan(kBodyAt));
  put_checks(body, items, with_writes, counts);
  for (const Item& item : items) {
    if (!with_writes || !item.writes()) continue;
    WriteOp op{};
    if (item.seen == Item::Seen::kFound) {
      op.expected_slot = raw(item.slot);
      op.expected_version = item.version;
    }
    op.table = raw(item.table);
    op.kind = kind_of(item);
    internal::put_write(body, op, key(item), value(item));
    ++counts.writes;
  }
  if (body.overflowed()) {
    co_return make_error(ErrorCode::kTooLarge, "a transaction may take " +
                                                   std::to_string(scratch.size()) +
                                                   " bytes as a message; split it");
  }
  MessageWriter head(scratch.first(kBodyAt));
  head.put(session->prefix());
  head.put(counts);

  constexpr auto kMethod = static_cast<uint16_t>(Method::kCommit);
  const auto request = scratch.first(kBodyAt + body.bytes());
  if (!with_writes) {
    // Nothing can be in doubt.
    const auto answer = co_await session->rpc().call(kMethod, request, sizeof(CommitReply));
    if (!answer) co_return Error(answer.error());
    if (answer->bytes().size() != sizeof(CommitReply)) {
      co_return session->malformed_reply("a commit");
    }
    co_return Status{};
  }
  Client::State::Running is_running(client, id.sequence);
  const auto answer = co_await session->rpc().call(kMethod, request, sizeof(CommitReply));
  is_running.settled();
  co_return client.commit_status(id, *session, answer);
}

}  // namespace pmstore
