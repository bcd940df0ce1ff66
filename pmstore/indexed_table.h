// IndexedTable: a table whose records are found by secondary indexes, too. Each write of a record
// writes the entries of its indexes in the same transaction.
//
//   IndexedTable people(table, {{by_city, {IndexKind::kMany, key_of_field({0, 16})}}});
//   co_await people.put(tx, "alice", value);
//   auto there = co_await people.find(tx, 0, city, 100);     // Result<std::vector<Record>>
//   co_await tx.commit();
//
// All programs that write records of the table must use the same definitions, and no other way to
// write: then an index has exactly the entries of the records. `pmstore pool check --index` and
// check_store() verify it. docs/secondary-indexes.md
// Threads: as its client's. Lifetimes: outlives its tasks, and the scans that it gives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pmstore/client.h"
#include "pmstore/index_key.h"

namespace pmstore {

enum class IndexState : uint8_t {
  kComplete,    // each record has its entry
  kBeingBuilt,  // records that are older than the index may lack theirs: it cannot be searched
};

struct SecondaryIndex {
  TableId table;  // ordered
  IndexDefinition definition;
  IndexState state = IndexState::kComplete;
};

struct IndexMatch {
  std::string index_key;
  Record record;  // of the base table
};

class IndexedTable;

// A scan of the records of an index, in the order of their index keys, and of their own keys where
// these are equal. Move-only; as TransactionScan.
class IndexScan {
 public:
  // The next records, at most `most` (at least 1); none: the range has ended. One round trip for
  // the entries, and one for each record. Errors as TransactionScan::next() and Transaction::get();
  // Conflict also when entry and record do not fit: they were read at different moments.
  // InvalidArgument: the index is being built.
  base::Task<Result<std::vector<IndexMatch>>> next(uint32_t most = UINT32_MAX);

 private:
  friend class IndexedTable;
  IndexScan(Transaction& transaction, TableId base, const SecondaryIndex& index,
            TransactionScan entries)
      : transaction_(&transaction), base_(base), index_(&index), entries_(std::move(entries)) {}

  Transaction* transaction_;
  TableId base_;
  const SecondaryIndex* index_;
  TransactionScan entries_;
};

class IndexedTable {
 public:
  // CHECK: the tables of the indexes are ordered.
  IndexedTable(TableId base, std::vector<SecondaryIndex> indexes);

  TableId base() const { return base_; }

  // As the functions of Transaction with these names, for the record and its entries. Each reads
  // the present record, which the commit validates. Errors: those of Transaction::get() and
  // index_entry_of(); then nothing was written. commit() is AlreadyExists, too, when another record
  // has the index key in a unique index: a record must give it up before another one takes it,
  // also within one transaction. commit() is NotFound, too, when an index lacks an entry, unless it
  // is being built: then the present entry is read as well. `key` and `value` are borrowed until
  // the task ends.
  base::Task<Status> put(Transaction& transaction, std::string_view key,
                         std::string_view value) const;
  base::Task<Status> insert(Transaction& transaction, std::string_view key,
                            std::string_view value) const;
  base::Task<Status> erase(Transaction& transaction, std::string_view key) const;
  // Writes the entry of a record that is older than an index, numbered as in the constructor:
  // called for each record, it makes the index of a table that has records. All writers know the
  // index meanwhile, as one that is being built. NotFound: no such record. AlreadyExists: another
  // record has the index key.
  base::Task<Status> add_entry(Transaction& transaction, size_t index, std::string_view key) const;

  // Records by index key. The transaction outlives the scan.
  base::Task<Result<std::vector<Record>>> find(Transaction& transaction, size_t index,
                                               std::string_view index_key,
                                               uint32_t most = UINT32_MAX) const;
  IndexScan scan(Transaction& transaction, size_t index, KeyRange index_keys,
                 ScanDirection direction = ScanDirection::kForward) const;

 private:
  enum class Write : uint8_t { kPut, kInsert };
  base::Task<Status> write(Transaction& transaction, std::string_view key, std::string_view value,
                           Write kind) const;

  const TableId base_;
  const std::vector<SecondaryIndex> indexes_;
  bool is_being_built_ = false;  // one of them
};

}  // namespace pmstore
