// Directories: unlink() and remove_directory(), and what becomes of an inode without a name.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "fs/internal/directories_parts.h"
#include "fs/internal/permissions.h"

namespace pmstore::fs::internal {

Directories::Removal Directories::drop_link(NamespaceTransaction& transaction, Inode inode) const {
  const Ino ino = inode.attributes.ino;
  if (inode.is_directory()) {
    PMSTORE_CHECK(inode.attributes.size == 0, "a directory that is removed is empty");
    inode.attributes.links = 0;
    transaction.erase_parent(ino);
  } else {
    PMSTORE_CHECK(inode.attributes.links > 0, "an inode that has a name counts it");
    --inode.attributes.links;
  }
  if (inode.attributes.links > 0) {
    transaction.put(inode);
    return {ino, Removal::Fate::kLives};
  }
  const bool has_more = inode.attributes.data_bytes > 0 || inode.xattr_bytes > 0;
  const bool may_be_open = core_.in_grace || core_.opens.is_open(ino);
  if (!has_more && !may_be_open) {
    transaction.erase_inode(ino);
    return {ino, Removal::Fate::kErased};
  }
  transaction.put(inode);
  transaction.put_orphan(ino, OrphanKind::kDeleted);
  return {ino, Removal::Fate::kOrphan};
}

void Directories::removed(const Removal& removal) {
  if (removal.fate == Removal::Fate::kErased) {
    PMSTORE_CHECK(core_.inodes > 0, "an inode that is erased was counted");
    --core_.inodes;
    core_.map_has_changed(removal.ino);
  } else if (removal.fate == Removal::Fate::kOrphan) {
    core_.delete_unless_open(removal.ino);
  }
}

Task<PosixResult<Directories::Removal>> Directories::remove_in(NamespaceTransaction& transaction,
                                                               const NameCall& call,
                                                               bool is_rmdir) {
  PMSTORE_CO_TRY(Inode directory, co_await transaction.directory(call.parent));
  PMSTORE_CO_TRY_STATUS(check_access(call.caller, directory.attributes, X_OK));
  PMSTORE_CO_TRY(const auto entry, co_await transaction.entry(call.parent, call.name));
  if (!entry) co_return PosixError(ENOENT);
  PMSTORE_CO_TRY_STATUS(check_access(call.caller, directory.attributes, W_OK));
  PMSTORE_CO_TRY(Inode inode, co_await transaction.inode(entry->ino));
  PMSTORE_CO_TRY_STATUS(check_sticky(call.caller, directory.attributes, inode.attributes));
  if (is_rmdir && !inode.is_directory()) co_return PosixError(ENOTDIR);
  if (!is_rmdir && inode.is_directory()) co_return PosixError(EISDIR);
  if (is_rmdir && inode.attributes.size > 0) co_return PosixError(ENOTEMPTY);
  const uint64_t now_ns = core_.now_ns();
  transaction.erase_entry(call.parent, call.name, *entry);
  --directory.attributes.size;
  if (is_rmdir) --directory.attributes.links;
  entries_changed(directory, now_ns);
  transaction.put(directory);
  changed(inode, now_ns);
  co_return drop_link(transaction, std::move(inode));
}

Task<PosixResult<Directories::Locks>> Directories::lock_for_removal(Ino parent, std::string name,
                                                                    Ino other) {
  constexpr unsigned kAttempts = 1000;
  for (unsigned attempt = 0; attempt < kAttempts; ++attempt) {
    Locks locks;
    const SearchedDirectories::Moment since = core_.searched.now();
    PMSTORE_CO_TRY(const auto before, co_await core_.entry(parent, name));
    if (before) {
      locks.data = co_await core_.data_locks.exclusive(before->ino);
      PMSTORE_CO_TRY_STATUS(core_.check_settled(before->ino));
    }
    locks.entries = co_await core_.directory_locks.exclusive(std::min(parent, other));
    if (parent != other) {
      locks.other_entries = co_await core_.directory_locks.exclusive(std::max(parent, other));
    }
    if (core_.searched.is_unchanged_since(since)) co_return std::move(locks);
    PMSTORE_CO_TRY(const auto now, co_await core_.entry(parent, name));
    const bool is_same = before ? now && now->ino == before->ino : !now;
    if (is_same) co_return std::move(locks);
    // Others have changed the entry meanwhile.
  }
  co_return PosixError(EAGAIN, "the name has changed 1000 times meanwhile; run it again");
}

Task<PosixStatus> Directories::remove(NameCall call, bool is_rmdir) {
  PMSTORE_CO_TRY(const Locks locks, co_await lock_for_removal(call.parent, call.name, call.parent));
  const auto body = [&](NamespaceTransaction& transaction) {
    return remove_in(transaction, call, is_rmdir);
  };
  PMSTORE_CO_TRY(const Removal removal, co_await core_.take_away<Removal>(body));
  removed(removal);
  co_return PosixStatus();
}

Task<PosixStatus> Directories::unlink(NameCall call) {
  if (PosixStatus name = check_name(call.name); !name) co_return std::move(name);
  if (is_dots(call.name)) co_return PosixError(EISDIR);
  co_return co_await remove(std::move(call), false);
}

Task<PosixStatus> Directories::remove_directory(NameCall call) {
  if (PosixStatus name = check_name(call.name); !name) co_return std::move(name);
  if (call.name == ".") co_return PosixError(EINVAL);
  if (call.name == "..") co_return PosixError(ENOTEMPTY);
  co_return co_await remove(std::move(call), true);
}

}  // namespace pmstore::fs::internal
