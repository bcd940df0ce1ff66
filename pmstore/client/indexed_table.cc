#include "pmstore/indexed_table.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"

namespace pmstore {
namespace {

// How the entry of one index changes with a record.
struct Change {
  TableId table;
  bool unique;
  bool may_lack;  // the index is being built
  std::optional<IndexTableEntry> before;
  std::optional<IndexTableEntry> after;
};

using Value = std::optional<std::string_view>;  // nullopt: there is no record

Result<std::vector<Change>> changes_of(const std::vector<SecondaryIndex>& indexes,
                                       std::string_view key, Value before, Value after) {
  std::vector<Change> changes;
  for (const SecondaryIndex& index : indexes) {
    Change change{index.table,
                  index.definition.kind == IndexKind::kUnique,
                  index.state == IndexState::kBeingBuilt,
                  {},
                  {}};
    if (before) {
      PMSTORE_TRY(change.before, index_entry_of(index.definition, key, *before));
    }
    if (after) {
      PMSTORE_TRY(change.after, index_entry_of(index.definition, key, *after));
    }
    if (change.before != change.after) changes.push_back(std::move(change));
  }
  return changes;
}

// Of indexes that are being built: only an entry that is there, and this record's, will be erased.
// The commit validates what was read.
Task<Status> look_for_old_entries(Transaction& transaction, std::vector<Change>& changes) {
  for (Change& change : changes) {
    if (!change.may_lack || !change.before) continue;
    const auto there = co_await transaction.get(change.table, change.before->key);
    if (!there && there.code() != ErrorCode::kNotFound) co_return Error(there.error());
    if (!there || *there != change.before->value) change.before.reset();
  }
  co_return Status{};
}

void apply(Transaction& transaction, const Change& change) {
  if (change.before) transaction.erase(change.table, change.before->key);
  if (!change.after) return;
  // An entry of a unique index may be another record's.
  if (change.unique) {
    transaction.insert(change.table, change.after->key, change.after->value);
  } else {
    transaction.put(change.table, change.after->key, change.after->value);
  }
}

Value as_value(const Result<std::string>& got) { return got ? Value(*got) : std::nullopt; }

}  // namespace

IndexedTable::IndexedTable(TableId base, std::vector<SecondaryIndex> indexes)
    : base_(base), indexes_(std::move(indexes)) {
  for (const SecondaryIndex& index : indexes_) {
    PMSTORE_CHECK(is_ordered(index.table), "an index is an ordered table");
    PMSTORE_CHECK(index.definition.index_key != nullptr, "an index has a key function");
    is_being_built_ |= index.state == IndexState::kBeingBuilt;
  }
}

Task<Status> IndexedTable::write(Transaction& transaction, std::string_view key,
                                 std::string_view value, Write kind) const {
  if (Status sizes = check_sizes(key, value); !sizes) co_return std::move(sizes);
  const auto before = co_await transaction.get(base_, key);
  if (!before && before.code() != ErrorCode::kNotFound) co_return Error(before.error());
  PMSTORE_CO_TRY(std::vector<Change> changes, changes_of(indexes_, key, as_value(before), value));
  if (is_being_built_) {
    PMSTORE_CO_TRY_STATUS(co_await look_for_old_entries(transaction, changes));
  }
  if (kind == Write::kInsert) {
    // The commit fails if there is a record; then entries do not matter.
    transaction.insert(base_, key, value);
  } else {
    transaction.put(base_, key, value);
  }
  for (const Change& change : changes) apply(transaction, change);
  co_return Status{};
}

Task<Status> IndexedTable::put(Transaction& transaction, std::string_view key,
                               std::string_view value) const {
  return write(transaction, key, value, Write::kPut);
}

Task<Status> IndexedTable::insert(Transaction& transaction, std::string_view key,
                                  std::string_view value) const {
  return write(transaction, key, value, Write::kInsert);
}

Task<Status> IndexedTable::erase(Transaction& transaction, std::string_view key) const {
  const auto before = co_await transaction.get(base_, key);
  if (!before && before.code() != ErrorCode::kNotFound) co_return Error(before.error());
  PMSTORE_CO_TRY(std::vector<Change> changes,
                 changes_of(indexes_, key, as_value(before), std::nullopt));
  if (is_being_built_) {
    PMSTORE_CO_TRY_STATUS(co_await look_for_old_entries(transaction, changes));
  }
  transaction.erase(base_, key);
  for (const Change& change : changes) apply(transaction, change);
  co_return Status{};
}

Task<Status> IndexedTable::add_entry(Transaction& transaction, size_t index,
                                     std::string_view key) const {
  const SecondaryIndex& added = indexes_.at(index);
  const auto value = co_await transaction.get(base_, key);
  if (!value) co_return Error(value.error());
  const auto entry = index_entry_of(added.definition, key, *value);
  if (!entry) co_return Error(entry.error());
  if (!*entry) co_return Status{};
  const auto there = co_await transaction.get(added.table, (*entry)->key);
  if (!there && there.code() != ErrorCode::kNotFound) co_return Error(there.error());
  if (there && *there != (*entry)->value) {
    co_return make_error(ErrorCode::kAlreadyExists, "another record has this index key");
  }
  if (!there) transaction.insert(added.table, (*entry)->key, (*entry)->value);
  co_return Status{};
}

IndexScan IndexedTable::scan(Transaction& transaction, size_t index, KeyRange index_keys,
                             ScanDirection direction) const {
  const SecondaryIndex& scanned = indexes_.at(index);
  const KeyRange entries = index_entries(scanned.definition.kind, index_keys);
  return {transaction, base_, scanned, transaction.scan(scanned.table, entries, direction)};
}

Task<Result<std::vector<Record>>> IndexedTable::find(Transaction& transaction, size_t index,
                                                     std::string_view index_key,
                                                     uint32_t most) const {
  const SecondaryIndex& searched = indexes_.at(index);
  const KeyRange entries = index_entries_of(searched.definition.kind, index_key);
  // No entry can begin like this.
  if (entries.from.size() > kMaxKeyBytes) co_return std::vector<Record>{};
  IndexScan scan(transaction, base_, searched, transaction.scan(searched.table, entries));
  std::vector<Record> found;
  while (found.size() < most) {
    PMSTORE_CO_TRY(std::vector<IndexMatch> some,
                   co_await scan.next(most - static_cast<uint32_t>(found.size())));
    if (some.empty()) break;
    for (IndexMatch& match : some) found.push_back(std::move(match.record));
  }
  co_return std::move(found);
}

Task<Result<std::vector<IndexMatch>>> IndexScan::next(uint32_t most) {
  if (index_->state == IndexState::kBeingBuilt) {
    co_return make_error(
        ErrorCode::kInvalidArgument,
        "the index is being built and lacks entries; search it when it is complete");
  }
  const auto torn = [] {
    return make_error(ErrorCode::kConflict,
                      "an index and its table were read at different moments; run the transaction "
                      "again, and if that does not help, `pmstore pool check --index`");
  };
  PMSTORE_CO_TRY(const RecordPage entries, co_await entries_.next(most));
  std::vector<IndexMatch> matches;
  matches.reserve(entries.size());
  for (const RecordRef entry : entries) {
    auto names = read_index_entry(index_->definition.kind, entry.key, entry.value);
    if (!names) {
      co_return make_error(ErrorCode::kDamaged,
                           "the index table has a record that is no entry; `pmstore pool check "
                           "--index` lists such");
    }
    auto value = co_await transaction_->get(base_, names->key);
    if (!value && value.code() == ErrorCode::kNotFound) co_return torn();
    if (!value) co_return Error(value.error());
    if (index_->definition.index_key(names->key, *value) != names->index_key) co_return torn();
    matches.push_back({std::move(names->index_key), {std::move(names->key), std::move(*value)}});
  }
  co_return std::move(matches);
}

}  // namespace pmstore
