#include "pmstore/client/client_cpu_commit.h"

#include "base/check.h"

namespace pmstore::internal {
namespace {

WriteKind kind_of(const TxItem& item) {
  PMSTORE_CHECK(item.writes(), "only a write has a kind");
  if (item.leave == TxItem::Leave::kNothing) return WriteKind::kErase;
  return item.need == TxItem::Need::kAbsent ? WriteKind::kInsert : WriteKind::kPut;
}

void add_checks(const ItemSet& items, const ScanReads& scanned, bool with_writes,
                CommitParts& parts) {
  parts.reads.clear();
  parts.absences.clear();
  for (const TxItem& item : items) {
    if (item.seen != TxItem::Seen::kFound) continue;
    if (with_writes && item.writes()) continue;  // the write carries the check itself
    parts.reads.push_back({raw(item.read_slot()), item.read_version()});
  }
  parts.reads.insert(parts.reads.end(), scanned.records().begin(), scanned.records().end());
  for (const TxItem& item : items) {
    if (item.seen != TxItem::Seen::kAbsent) continue;
    parts.absences.push_back({item.bucket, item.bucket_version});
  }
  for (const LeafSeen& leaf : scanned.leaves()) parts.absences.push_back({leaf.unit, leaf.version});
}

void add_writes(const ItemSet& items, CommitParts& parts) {
  for (const TxItem& item : items) {
    if (!item.writes()) continue;
    CommitWrite& write = parts.writes.emplace_back();
    if (item.seen == TxItem::Seen::kFound) {
      write.expected_slot = raw(item.slot);
      write.expected_version = item.version;
    }
    write.table = item.table;
    write.kind = kind_of(item);
    write.key = items.key(item);
    write.value = items.value(item);
  }
}

}  // namespace

CommitView view_of(TxId id, const ItemSet& items, const ScanReads& scanned, bool with_writes,
                   CommitParts& parts) {
  add_checks(items, scanned, with_writes, parts);
  parts.writes.clear();
  if (with_writes) add_writes(items, parts);
  return {id.client,
          id.sequence,
          std::as_bytes(std::span(parts.reads)),
          std::as_bytes(std::span(parts.absences)),
          CommitWrites(std::span<const CommitWrite>(parts.writes)),
          static_cast<uint32_t>(parts.writes.size())};
}

base::Task<Status> commit_by_call(TxId id, const ItemSet& items, const ScanReads& scanned,
                                  ClientSession& session, CommitParts& parts,
                                  TransactionNumbers& numbers) {
  TransactionNumbers::Running is_running(numbers, id.sequence);
  const CommitView request = view_of(id, items, scanned, true, parts);
  Status committed = co_await session.calls().commit(request);
  is_running.settled();
  co_return numbers.commit_status(id, session, std::move(committed));
}

base::Task<Status> validate_by_call(TxId id, const ItemSet& items, const ScanReads& scanned,
                                    ClientSession& session, CommitParts& parts) {
  const CommitView request = view_of(id, items, scanned, false, parts);
  co_return co_await session.calls().commit(request);
}

}  // namespace pmstore::internal
