#include "fs/internal/findings_judge.h"

#include <cerrno>
#include <set>
#include <string_view>
#include <utility>

namespace pmstore::fs::internal {
namespace {

using Kind = Finding::Kind;

// Of one inode, and of what its number leads to: one transaction can see all of that.
bool is_count(Kind kind) {
  return kind == Kind::kSize || kind == Kind::kDirectoryLinks || kind == Kind::kDataBytes ||
         kind == Kind::kXattrBytes;
}

TableId table_of(const NamespaceTables& tables, Kind kind) {
  if (kind == Kind::kDataBytes) return tables.maps;
  return kind == Kind::kXattrBytes ? tables.xattrs : tables.entries;
}

// What a record of that table adds to the count; 0 of one that does not decode, which is damage of
// its own.
uint64_t worth(Kind kind, const RecordRef& record) {
  if (kind == Kind::kXattrBytes) return record.key.size() - 8 + 1;
  if (kind == Kind::kDataBytes) {
    const auto piece = decode_piece(record.key, record.value);
    return piece ? piece->place.bytes : 0;
  }
  const auto entry = decode_entry(record.value);
  if (!entry) return 0;
  return kind == Kind::kSize || entry->type == FileType::kDirectory ? 1 : 0;
}

std::optional<Finding> compared(Kind kind, const Inode& inode, uint64_t has) {
  const Attributes& a = inode.attributes;
  std::optional<Finding> wrong;
  switch (kind) {
    case Kind::kSize:
      if (a.size != has) wrong = wrong_size(a.ino, a.size, has);
      break;
    case Kind::kDirectoryLinks:
      if (a.links > 0 && a.links != 2 + has) wrong = wrong_links_of_directory(a.ino, a.links, has);
      break;
    case Kind::kDataBytes:
      if (a.data_bytes != has) wrong = wrong_data_bytes(a.ino, a.data_bytes, has);
      break;
    default:
      if (inode.xattr_bytes != has) wrong = wrong_xattr_bytes(a.ino, inode.xattr_bytes, has);
      break;
  }
  return wrong;
}

}  // namespace

void FindingsJudge::confirm(const Finding& finding) {
  const bool is_new = is_count(finding.kind) ? counts_[finding.kind].insert(raw(finding.ino)).second
                                             : lines_.insert(finding.line).second;
  if (is_new) confirmed_.push_back(finding);
}

Task<PosixResult<FindingsJudge::Judged>> FindingsJudge::look(NamespaceTransaction& transaction,
                                                             const Finding& finding) {
  PMSTORE_CO_TRY(const Inode inode, co_await transaction.inode(finding.ino));
  const KeyRange range = keys_of(finding.ino);
  const TableId table = table_of(tables_, finding.kind);
  TransactionScan scan = transaction.transaction().scan(table, range);
  uint64_t has = 0;
  while (true) {
    auto page = co_await scan.next();
    if (!page) co_return transaction.failed(std::move(page.error()));
    if (page->empty()) break;
    for (const RecordRef record : *page) has += worth(finding.kind, record);
  }
  co_return compared(finding.kind, inode, has);
}

Task<Status> FindingsJudge::judge_count(const Finding& finding) {
  constexpr unsigned kAttempts = 100;
  constexpr uint64_t kMostPauseNs = 1'000'000;
  for (unsigned attempt = 0; attempt < kAttempts; ++attempt) {
    NamespaceTransaction transaction(client_, tables_);
    const PosixResult<Judged> judged = co_await look(transaction, finding);
    if (!judged && judged.number() == ESTALE) co_return Status{};
    if (!judged && !transaction.conflicted()) break;
    const Status same = judged ? co_await transaction.commit() : Status{};
    if (judged && same) {
      if (*judged) confirm(**judged);
      co_return Status{};
    }
    if (!same && same.code() != ErrorCode::kConflict) co_return same.error();
    co_await client_.executor().sleep_for(client_.executor().random().below(kMostPauseNs));
  }
  ++open_;
  co_return Status{};
}

Task<Status> FindingsJudge::compare(const NamespaceSurvey& before, const NamespaceSurvey& now) {
  std::set<std::pair<std::string_view, uint64_t>> lines;
  std::set<std::pair<Kind, uint64_t>> counts;
  for (const Finding& finding : before.findings()) {
    lines.emplace(finding.line, finding.value);
    counts.emplace(finding.kind, raw(finding.ino));
  }
  open_ = 0;
  for (const Finding& finding : now.findings()) {
    const bool is_settled = before.fingerprint(finding.ino) == now.fingerprint(finding.ino);
    const bool was_there = is_count(finding.kind) && !is_settled
                               ? counts.contains({finding.kind, raw(finding.ino)})
                               : lines.contains({finding.line, finding.value});
    if (!was_there) continue;
    if (is_settled) {
      confirm(finding);
    } else if (is_count(finding.kind)) {
      PMSTORE_CO_TRY_STATUS(co_await judge_count(finding));
    } else {
      ++open_;
    }
  }
  co_return Status{};
}

}  // namespace pmstore::fs::internal
