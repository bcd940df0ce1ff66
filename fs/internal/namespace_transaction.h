// NamespaceTransaction: a transaction of the store whose records are those of a file system.
//
// Reads give what is there, absent records as nullopt or as the errno that says so. Damaged records
// and errors of the store are EIO, but for what PosixError maps otherwise. A read that lost against
// another transaction gives EAGAIN, and conflicted() is true from then on: the call is repeated.
// Threads: one executor's. Lifetimes: client, tables and `searched` outlive it; keys and names are
// borrowed until the task ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/task.h"
#include "fs/internal/namespace_tables.h"
#include "fs/internal/searched_directories.h"
#include "fs/layout/fs_layout.h"
#include "fs/posix_error.h"
#include "pmstore/client.h"

namespace pmstore::fs::internal {

class NamespaceTransaction {
 public:
  // `searched`: of the namespace in use; nullptr: there is none.
  NamespaceTransaction(Client& client, const NamespaceTables& tables,
                       SearchedDirectories* searched = nullptr)
      : tables_(tables), searched_(searched), transaction_(client.begin()) {}
  NamespaceTransaction(const NamespaceTransaction&) = delete;
  NamespaceTransaction& operator=(const NamespaceTransaction&) = delete;
  // Its commit may take effect at any time from now on, when it was not seen to end.
  ~NamespaceTransaction();

  base::Task<PosixResult<SuperRecord>> super();
  // ESTALE: there is none.
  base::Task<PosixResult<Inode>> inode(Ino ino);
  // As inode(); ENOTDIR: it is no directory. ENOENT: it was removed.
  base::Task<PosixResult<Inode>> directory(Ino ino);
  base::Task<PosixResult<std::optional<Entry>>> entry(Ino parent, std::string_view name);
  // EIO: it has none.
  base::Task<PosixResult<Ino>> parent(Ino directory);
  // The extents that touch [from, to), in order, and none behind the first `most`.
  base::Task<PosixResult<std::vector<Piece>>> pieces(Ino ino, uint64_t from, uint64_t to,
                                                     size_t most);
  base::Task<PosixResult<std::optional<OrphanKind>>> orphan(Ino ino);
  base::Task<PosixResult<std::optional<AreaRange>>> freed(uint64_t id);
  base::Task<PosixResult<std::optional<std::string>>> xattr(Ino ino, std::string_view name);

  void put(const SuperRecord& super) {
    write(tables_.super, std::string(kSuperKey), encode(super));
  }
  void put(const Inode& inode);
  void erase_inode(Ino ino) { erase(tables_.inodes, ino_key(ino)); }
  // Entry and number of one name.
  void put_entry(Ino parent, std::string_view name, const Entry& entry);
  void erase_entry(Ino parent, std::string_view name, const Entry& entry);
  void put_parent(Ino ino, Ino parent) {
    write(tables_.parents, ino_key(ino), encode_parent(parent));
  }
  void erase_parent(Ino ino) { erase(tables_.parents, ino_key(ino)); }
  void put_piece(Ino ino, const Piece& piece) {
    write(tables_.maps, map_key(ino, piece.file_offset), encode(piece.place));
  }
  void erase_piece(Ino ino, uint64_t file_offset) {
    erase(tables_.maps, map_key(ino, file_offset));
  }
  void put_freed(uint64_t id, const AreaRange& range) {
    write(tables_.freed, freed_key(id), encode(range));
  }
  void erase_freed(uint64_t id) { erase(tables_.freed, freed_key(id)); }
  void put_orphan(Ino ino, OrphanKind kind) { write(tables_.orphans, ino_key(ino), encode(kind)); }
  void erase_orphan(Ino ino) { erase(tables_.orphans, ino_key(ino)); }
  void put_xattr(Ino ino, std::string_view name, std::string_view value) {
    write(tables_.xattrs, xattr_key(ino, name), value);
  }
  void erase_xattr(Ino ino, std::string_view name) { erase(tables_.xattrs, xattr_key(ino, name)); }

  // It is in doubt from here until it is settle()d.
  base::Task<Status> commit() {
    in_doubt_ = writes_;
    return transaction_.commit();
  }
  void settle() { in_doubt_ = false; }
  TxId id() const { return transaction_.id(); }
  // A read has met another transaction: what was read may not fit together.
  bool conflicted() const { return conflicted_; }
  bool writes() const { return writes_; }
  Transaction& transaction() { return transaction_; }
  const NamespaceTables& tables() const { return tables_; }
  // Of an error of the store.
  PosixError failed(Error error);

 private:
  // nullopt: there is none.
  PosixResult<std::optional<std::string>> optional_of(Result<std::string> value);
  void begin_change() {
    if (!writes_ && searched_ != nullptr) change_.emplace(*searched_);
    writes_ = true;
  }
  void write(TableId table, const std::string& key, std::string_view value) {
    begin_change();
    transaction_.put(table, key, value);
  }
  void erase(TableId table, const std::string& key) {
    begin_change();
    transaction_.erase(table, key);
  }

  const NamespaceTables& tables_;
  SearchedDirectories* const searched_;
  std::optional<SearchedDirectories::Change> change_;  // from the first write on
  Transaction transaction_;
  bool conflicted_ = false;
  bool writes_ = false;
  bool in_doubt_ = false;
};

}  // namespace pmstore::fs::internal
