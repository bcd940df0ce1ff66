// check_namespace(): surveys, and repairs.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "fs/internal/findings_judge.h"
#include "fs/internal/namespace_survey.h"
#include "fs/internal/namespace_transaction.h"
#include "fs/namespace.h"

namespace pmstore::fs {
namespace {

using internal::Finding;
using internal::FindingsJudge;
using internal::Inode;
using internal::NamespaceSurvey;
using internal::NamespaceTables;
using internal::NamespaceTransaction;

constexpr std::string_view kLostAndFound = "lost+found";

void note(std::vector<std::string>& lines, std::string line) {
  if (lines.size() < NamespaceFindings::kMaxLines) lines.push_back(std::move(line));
}

// The directory for what has lost its name, made if need be.
Task<PosixResult<Ino>> open_lost_and_found(NamespaceTransaction& transaction) {
  PMSTORE_CO_TRY(const auto there, co_await transaction.entry(kRootIno, kLostAndFound));
  if (there && there->type == FileType::kDirectory) co_return there->ino;
  if (there) {
    co_return PosixError(EEXIST, "/lost+found is no directory; rename it");
  }
  PMSTORE_CO_TRY(auto super, co_await transaction.super());
  PMSTORE_CO_TRY(Inode root, co_await transaction.inode(kRootIno));
  Inode made;
  made.attributes = root.attributes;
  made.attributes.ino = Ino{super.next_ino++};
  made.attributes.mode = 0700;
  made.attributes.links = 2;
  made.attributes.size = 0;
  transaction.put(super);
  transaction.put(made);
  transaction.put_parent(made.attributes.ino, kRootIno);
  transaction.put_entry(kRootIno, kLostAndFound,
                        {made.attributes.ino, FileType::kDirectory, root.next_number++});
  ++root.attributes.size;
  ++root.attributes.links;
  transaction.put(root);
  co_return made.attributes.ino;
}

Task<PosixStatus> attach(NamespaceTransaction& transaction, Ino ino) {
  PMSTORE_CO_TRY(const Ino lost, co_await open_lost_and_found(transaction));
  PMSTORE_CO_TRY(Inode directory, co_await transaction.inode(lost));
  PMSTORE_CO_TRY(Inode inode, co_await transaction.inode(ino));
  const std::string name = fmt::format("#{}", raw(ino));
  transaction.put_entry(lost, name, {ino, inode.attributes.type, directory.next_number++});
  ++directory.attributes.size;
  if (inode.is_directory()) {
    ++directory.attributes.links;
    transaction.put_parent(ino, lost);
  } else {
    inode.attributes.links = 1;
  }
  transaction.put(inode);
  transaction.put(directory);
  co_return PosixStatus();
}

Task<PosixStatus> renumber(NamespaceTransaction& transaction, const Finding& finding) {
  PMSTORE_CO_TRY(Inode directory, co_await transaction.inode(finding.ino));
  PMSTORE_CO_TRY(auto entry, co_await transaction.entry(finding.ino, finding.name));
  if (!entry) co_return PosixStatus();
  entry->number = directory.next_number++;
  transaction.put_entry(finding.ino, finding.name, *entry);
  transaction.put(directory);
  co_return PosixStatus();
}

Task<PosixStatus> correct(NamespaceTransaction& transaction, const Finding& finding) {
  PMSTORE_CO_TRY(Inode inode, co_await transaction.inode(finding.ino));
  Attributes& a = inode.attributes;
  switch (finding.kind) {
    case Finding::Kind::kLinks:
    case Finding::Kind::kDirectoryLinks: a.links = static_cast<uint32_t>(finding.value); break;
    case Finding::Kind::kSize: a.size = finding.value; break;
    case Finding::Kind::kDataBytes: a.data_bytes = finding.value; break;
    default: inode.xattr_bytes = static_cast<uint32_t>(finding.value); break;
  }
  ++a.version;
  transaction.put(inode);
  co_return PosixStatus();
}

// A key that is wrong is a finding of its own: it holds up no other repair.
Task<PosixResult<uint64_t>> next_freed_id(NamespaceTransaction& transaction) {
  KeyRange range;
  while (true) {
    auto last = co_await transaction.transaction().last(transaction.tables().freed, range);
    if (!last && last.code() == ErrorCode::kNotFound) co_return uint64_t{1};
    if (!last) co_return transaction.failed(last.error());
    const auto id = internal::freed_id_of_key(last->key);
    if (id) co_return *id + 1;
    range.to = std::move(last->key);
  }
}

Task<PosixStatus> quarantine(NamespaceTransaction& transaction, const Finding& finding) {
  PMSTORE_CO_TRY(const uint64_t id, co_await next_freed_id(transaction));
  PMSTORE_CO_TRY(const AreaRange range, internal::decode_place(finding.name));
  transaction.erase_piece(finding.ino, finding.value);
  transaction.put_freed(id, range);
  co_return PosixStatus();
}

// The record of one of two owners goes; what only it had goes into quarantine.
Task<PosixStatus> cut_shared(NamespaceTransaction& transaction, const Finding& finding) {
  const std::string_view places = finding.name;
  PMSTORE_CO_TRY(const AreaRange lost, internal::decode_place(places.substr(0, places.size() / 2)));
  PMSTORE_CO_TRY(const AreaRange kept, internal::decode_place(places.substr(places.size() / 2)));
  PMSTORE_CO_TRY(uint64_t id, co_await next_freed_id(transaction));
  const uint64_t lost_end = lost.offset + lost.bytes, kept_end = kept.offset + kept.bytes;
  if (raw(finding.ino) == 0) {
    transaction.erase_freed(finding.value);
  } else {
    transaction.erase_piece(finding.ino, finding.value);
  }
  if (lost.offset < kept.offset) {
    transaction.put_freed(id++, {lost.server, lost.offset, kept.offset - lost.offset});
  }
  if (kept_end < lost_end) {
    transaction.put_freed(id, {lost.server, kept_end, lost_end - kept_end});
  }
  co_return PosixStatus();
}

Task<PosixStatus> erase_if_there(NamespaceTransaction& transaction, TableId table,
                                 std::string key) {
  const auto there = co_await transaction.transaction().get(table, key);
  if (there) transaction.transaction().erase(table, key);
  if (!there && there.code() != ErrorCode::kNotFound) co_return transaction.failed(there.error());
  co_return PosixStatus();
}

// Its number is another entry's if that has the same.
Task<PosixStatus> erase_entry(NamespaceTransaction& transaction, const Finding& finding) {
  const NamespaceTables& tables = transaction.tables();
  const std::string number = internal::number_key(finding.ino, finding.value);
  const auto there = co_await transaction.transaction().get(tables.numbers, number);
  if (!there && there.code() != ErrorCode::kNotFound) co_return transaction.failed(there.error());
  if (there) {
    const auto named = internal::decode_number(*there);
    if (named && named->name == finding.name) {
      transaction.transaction().erase(tables.numbers, number);
    }
  }
  co_return co_await erase_if_there(transaction, tables.entries,
                                    internal::entry_key(finding.ino, finding.name));
}

// What was done about it; empty: nothing can be.
Task<PosixResult<std::string>> repair_one(NamespaceTransaction& transaction,
                                          const Finding& finding) {
  using Kind = Finding::Kind;
  const NamespaceTables& tables = transaction.tables();
  switch (finding.kind) {
    case Kind::kOther: co_return std::string();
    case Kind::kLinks:
    case Kind::kDirectoryLinks:
    case Kind::kSize:
    case Kind::kDataBytes:
    case Kind::kXattrBytes: {
      PMSTORE_CO_TRY_STATUS(co_await correct(transaction, finding));
      co_return std::string("corrected; nothing was lost");
    }
    case Kind::kNoOrphan:
      transaction.put_orphan(finding.ino, internal::OrphanKind::kDeleted);
      co_return std::string("the next start deletes it");
    case Kind::kUnreachable: {
      PMSTORE_CO_TRY_STATUS(co_await attach(transaction, finding.ino));
      co_return fmt::format("it is /lost+found/#{}; its name was lost", raw(finding.ino));
    }
    case Kind::kNoInode: {
      PMSTORE_CO_TRY_STATUS(co_await erase_entry(transaction, finding));
      co_return std::string("the entry was removed; what it named is lost");
    }
    case Kind::kNumber: {
      PMSTORE_CO_TRY_STATUS(co_await renumber(transaction, finding));
      co_return std::string("the entry has a new number; nothing was lost");
    }
    case Kind::kStrayNumber: {
      PMSTORE_CO_TRY_STATUS(co_await erase_if_there(
          transaction, tables.numbers, internal::number_key(finding.ino, finding.value)));
      co_return std::string("the number was removed; nothing was lost");
    }
    case Kind::kParent:
      transaction.put_parent(finding.ino, Ino{finding.value});
      co_return std::string("corrected; nothing was lost");
    case Kind::kStrayPiece: {
      PMSTORE_CO_TRY_STATUS(co_await quarantine(transaction, finding));
      co_return std::string("it will be free; the data in it is lost");
    }
    case Kind::kSharedPlace: {
      PMSTORE_CO_TRY_STATUS(co_await cut_shared(transaction, finding));
      if (raw(finding.ino) == 0) co_return std::string("it is the file's; nothing was lost");
      co_return fmt::format("inode {} lost its extent at {}: it reads as zeros there",
                            raw(finding.ino), finding.value);
    }
    case Kind::kStrayRecord: {
      PMSTORE_CO_TRY_STATUS(co_await erase_if_there(transaction, finding.table, finding.name));
      co_return std::string("the record was removed");
    }
    case Kind::kWrongPlace: {
      PMSTORE_CO_TRY_STATUS(co_await erase_if_there(transaction, finding.table, finding.name));
      co_return std::string(raw(finding.ino) == 0
                                ? "the record was removed"
                                : "the file lost that extent: it reads as zeros there");
    }
  }
  co_return std::string();
}

Task<Status> repair_all(Client& client, const NamespaceTables& tables,
                        const std::vector<Finding>& findings, NamespaceFindings& result) {
  for (const Finding& finding : findings) {
    NamespaceTransaction transaction(client, tables);
    auto done = co_await repair_one(transaction, finding);
    if (done && done->empty()) continue;
    // Ended by a repair before it: what is left, the next round finds.
    if (!done) continue;
    const Status committed = co_await transaction.commit();
    if (committed) {
      ++result.repairs;
      note(result.repaired, fmt::format("{}: {}", finding.line, *done));
    }
    if (!committed && committed.code() != ErrorCode::kNotFound) co_return committed.error();
  }
  co_return Status{};
}

// Before the records go that may have named some of it: it is zero when it is free again.
Task<Status> quarantine_unnamed(Client& client, const NamespaceTables& tables,
                                const std::vector<AreaRange>& ranges) {
  constexpr size_t kAtOnce = 64;
  for (size_t done = 0; done < ranges.size();) {
    NamespaceTransaction transaction(client, tables);
    const auto first = co_await next_freed_id(transaction);
    if (!first) co_return make_error(ErrorCode::kDamaged, first.error().to_string());
    uint64_t id = *first;
    const size_t end = std::min(done + kAtOnce, ranges.size());
    while (done < end) transaction.put_freed(id++, ranges[done++]);
    PMSTORE_CO_TRY_STATUS(co_await transaction.commit());
  }
  co_return Status{};
}

bool has_wrong_places(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.kind == Finding::Kind::kWrongPlace;
  });
}

}  // namespace

// What is only a change under way is gone at another look, or its inode has changed between two.
Task<Result<NamespaceFindings>> check_namespace(Client& client, std::vector<AreaRange> sections,
                                                bool repair) {
  PMSTORE_CO_TRY(const NamespaceTables tables, co_await internal::open_tables(client, false));
  auto survey = std::make_unique<NamespaceSurvey>(client, tables, sections);
  PMSTORE_CO_TRY_STATUS(co_await survey->run());
  NamespaceFindings result;
  result.inodes = survey->inodes();
  result.directories = survey->directories();
  result.extents = survey->extents();
  FindingsJudge judge(client, tables);
  constexpr int kLooks = 4;
  for (int look = 0; look < kLooks && !survey->findings().empty(); ++look) {
    auto next = std::make_unique<NamespaceSurvey>(client, tables, sections);
    PMSTORE_CO_TRY_STATUS(co_await next->run());
    PMSTORE_CO_TRY_STATUS(co_await judge.compare(*survey, *next));
    survey = std::move(next);
    if (judge.open() == 0) break;
  }
  std::vector<Finding> findings = judge.confirmed();
  result.not_judged = judge.open();
  // One repair may show what the next one has to mend, so a few rounds may find as much as before.
  constexpr int kMostRoundsInVain = 4;
  size_t fewest = findings.size();
  for (int in_vain = 0; repair && !findings.empty() && in_vain < kMostRoundsInVain; ++in_vain) {
    const uint64_t before = result.repairs;
    if (has_wrong_places(findings)) {
      const std::vector<AreaRange> unnamed = survey->unnamed();
      PMSTORE_CO_TRY_STATUS(co_await quarantine_unnamed(client, tables, unnamed));
    }
    PMSTORE_CO_TRY_STATUS(co_await repair_all(client, tables, findings, result));
    if (result.repairs == before) break;
    survey = std::make_unique<NamespaceSurvey>(client, tables, sections);
    PMSTORE_CO_TRY_STATUS(co_await survey->run());
    findings = survey->findings();
    if (findings.size() < fewest) in_vain = -1;
    fewest = std::min(fewest, findings.size());
  }
  result.found = findings.size();
  for (Finding& finding : findings) note(result.damage, std::move(finding.line));
  std::sort(result.damage.begin(), result.damage.end());
  co_return std::move(result);
}

}  // namespace pmstore::fs
