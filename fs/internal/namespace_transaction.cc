#include "fs/internal/namespace_transaction.h"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

namespace pmstore::fs::internal {

NamespaceTransaction::~NamespaceTransaction() {
  if (in_doubt_ && searched_ != nullptr) searched_->stop();
}

PosixError NamespaceTransaction::failed(Error error) {
  if (error.code == ErrorCode::kConflict) conflicted_ = true;
  return PosixError(std::move(error));
}

PosixResult<std::optional<std::string>> NamespaceTransaction::optional_of(
    Result<std::string> value) {
  if (value) return std::optional<std::string>(std::move(*value));
  if (value.code() == ErrorCode::kNotFound) return std::optional<std::string>();
  return failed(std::move(value.error()));
}

Task<PosixResult<SuperRecord>> NamespaceTransaction::super() {
  const std::string key = std::string(kSuperKey);
  auto got = co_await transaction_.get(tables_.super, key);
  PMSTORE_CO_TRY(const auto value, optional_of(std::move(got)));
  if (!value) co_return PosixError(EIO, "the store has no file system");
  PMSTORE_CO_TRY(const SuperRecord found, decode_super(*value));
  co_return found;
}

Task<PosixResult<Inode>> NamespaceTransaction::inode(Ino ino) {
  const std::string key = ino_key(ino);
  auto got = co_await transaction_.get(tables_.inodes, key);
  PMSTORE_CO_TRY(const auto value, optional_of(std::move(got)));
  if (!value) co_return PosixError(ESTALE);
  PMSTORE_CO_TRY(Inode inode, decode_inode(ino, *value));
  co_return std::move(inode);
}

Task<PosixResult<Inode>> NamespaceTransaction::directory(Ino ino) {
  PMSTORE_CO_TRY(Inode found, co_await inode(ino));
  if (!found.is_directory()) co_return PosixError(ENOTDIR);
  if (found.attributes.links == 0) co_return PosixError(ENOENT, "the directory was removed");
  co_return std::move(found);
}

Task<PosixResult<std::optional<Entry>>> NamespaceTransaction::entry(Ino parent,
                                                                    std::string_view name) {
  const std::string key = entry_key(parent, name);
  auto got = co_await transaction_.get(tables_.entries, key);
  PMSTORE_CO_TRY(const auto value, optional_of(std::move(got)));
  if (!value) co_return std::optional<Entry>();
  PMSTORE_CO_TRY(const Entry found, decode_entry(*value));
  co_return std::optional<Entry>(found);
}

Task<PosixResult<Ino>> NamespaceTransaction::parent(Ino directory) {
  const std::string key = ino_key(directory);
  auto got = co_await transaction_.get(tables_.parents, key);
  PMSTORE_CO_TRY(const auto value, optional_of(std::move(got)));
  if (!value) {
    co_return PosixError(
        EIO, fmt::format("directory {} has no parent; run `pmstore fs check`", raw(directory)));
  }
  PMSTORE_CO_TRY(const Ino found, decode_parent(*value));
  co_return found;
}

Task<PosixResult<std::vector<Piece>>> NamespaceTransaction::pieces(Ino ino, uint64_t from,
                                                                   uint64_t to, size_t most) {
  std::vector<Piece> found;
  if (from >= to || most == 0) co_return std::move(found);
  // The one that begins at `from` or before it.
  const KeyRange before = map_keys(ino, 0, from + 1);
  auto first = co_await transaction_.last(tables_.maps, before);
  if (!first && first.code() != ErrorCode::kNotFound) co_return failed(std::move(first.error()));
  if (first) {
    PMSTORE_CO_TRY(const Piece piece, decode_piece(first->key, first->value));
    if (piece.end() > from) found.push_back(piece);
  }
  if (from + 1 >= to) co_return std::move(found);
  const KeyRange behind = map_keys(ino, from + 1, to);
  TransactionScan scan = transaction_.scan(tables_.maps, behind);
  while (found.size() < most) {
    auto page = co_await scan.next(static_cast<uint32_t>(most - found.size()));
    if (!page) co_return failed(std::move(page.error()));
    if (page->empty()) break;
    for (const RecordRef record : *page) {
      PMSTORE_CO_TRY(const Piece piece, decode_piece(record.key, record.value));
      if (!found.empty() && found.back().end() > piece.file_offset) {
        co_return PosixError(
            EIO, fmt::format("extents of inode {} overlap; run `pmstore fs check`", raw(ino)));
      }
      found.push_back(piece);
    }
  }
  co_return std::move(found);
}

Task<PosixResult<std::optional<OrphanKind>>> NamespaceTransaction::orphan(Ino ino) {
  const std::string key = ino_key(ino);
  auto got = co_await transaction_.get(tables_.orphans, key);
  PMSTORE_CO_TRY(const auto value, optional_of(std::move(got)));
  if (!value) co_return std::optional<OrphanKind>();
  PMSTORE_CO_TRY(const OrphanKind kind, decode_orphan(*value));
  co_return std::optional<OrphanKind>(kind);
}

Task<PosixResult<std::optional<AreaRange>>> NamespaceTransaction::freed(uint64_t id) {
  const std::string key = freed_key(id);
  auto got = co_await transaction_.get(tables_.freed, key);
  PMSTORE_CO_TRY(const auto value, optional_of(std::move(got)));
  if (!value) co_return std::optional<AreaRange>();
  PMSTORE_CO_TRY(const AreaRange found, decode_place(*value));
  co_return std::optional<AreaRange>(found);
}

Task<PosixResult<std::optional<std::string>>> NamespaceTransaction::xattr(Ino ino,
                                                                          std::string_view name) {
  const std::string key = xattr_key(ino, name);
  auto got = co_await transaction_.get(tables_.xattrs, key);
  co_return optional_of(std::move(got));
}

void NamespaceTransaction::put(const Inode& inode) {
  if (searched_ != nullptr) searched_->written(inode.attributes);
  write(tables_.inodes, ino_key(inode.attributes.ino), encode(inode));
}

void NamespaceTransaction::put_entry(Ino parent, std::string_view name, const Entry& entry) {
  if (searched_ != nullptr) searched_->renamed(parent, name);
  write(tables_.entries, entry_key(parent, name), encode(entry));
  write(tables_.numbers, number_key(parent, entry.number),
        encode(NumberedName{entry.ino, entry.type, std::string(name)}));
}

void NamespaceTransaction::erase_entry(Ino parent, std::string_view name, const Entry& entry) {
  if (searched_ != nullptr) searched_->renamed(parent, name);
  erase(tables_.entries, entry_key(parent, name));
  erase(tables_.numbers, number_key(parent, entry.number));
}

}  // namespace pmstore::fs::internal
