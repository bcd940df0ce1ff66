#include "fs/internal/xattrs.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "fs/internal/permissions.h"

namespace pmstore::fs::internal {
namespace {

// Of all names of one inode, each with a byte more: what listxattr(2) can give.
constexpr uint32_t kMaxNamesBytes = 64 * 1024;

// Of all values of one inode.
constexpr size_t kMaxValuesBytes = 64 * 1024;

enum class Access : uint8_t { kRead, kWrite };

PosixStatus check(const Caller& caller, const Inode& inode, std::string_view name, Access access) {
  const bool writes = access == Access::kWrite;
  if (name.starts_with("user.")) {
    if (!inode.is_regular() && !inode.is_directory()) {
      if (writes) return PosixError(EPERM, "only files and directories have user attributes");
      return PosixError(ENODATA);
    }
    const bool is_sticky = inode.is_directory() && (inode.attributes.mode & kSticky) != 0;
    if (writes && is_sticky && caller.uid != 0 && caller.uid != inode.attributes.uid) {
      return PosixError(EPERM);
    }
    return check_access(caller, inode.attributes, writes ? W_OK : R_OK);
  }
  if (name.starts_with("trusted.")) {
    if (caller.uid == 0) return {};
    return PosixError(writes ? EPERM : ENODATA);
  }
  if (name.starts_with("security.")) {
    if (writes && caller.uid != 0) return PosixError(EPERM);
    return {};
  }
  return PosixError(EOPNOTSUPP, "attributes are of the classes user, trusted and security");
}

PosixStatus check_xattr_name(std::string_view name) {
  if (name.size() > kMaxXattrNameBytes) return PosixError(ERANGE);
  const size_t dot = name.find('.');
  if (dot == name.npos || dot + 1 == name.size() || name.find('\0') != name.npos) {
    return PosixError(EINVAL, "an attribute is named CLASS.NAME");
  }
  return {};
}

}  // namespace

Task<PosixResult<std::vector<std::byte>>> Xattrs::get(Caller caller, Ino ino, std::string name) {
  PMSTORE_CO_TRY_STATUS(check_xattr_name(name));
  using Value = std::optional<std::string>;
  const auto body = [&](NamespaceTransaction& transaction) -> Task<PosixResult<Value>> {
    PMSTORE_CO_TRY(const Inode inode, co_await transaction.inode(ino));
    PMSTORE_CO_TRY_STATUS(check(caller, inode, name, Access::kRead));
    if (inode.xattr_bytes == 0) co_return Value();
    co_return co_await transaction.xattr(ino, name);
  };
  PMSTORE_CO_TRY(const Value value, co_await core_.look<Value>(body));
  if (!value) co_return PosixError(ENODATA);
  std::vector<std::byte> bytes(value->size());
  if (!bytes.empty()) std::memcpy(bytes.data(), value->data(), bytes.size());
  co_return std::move(bytes);
}

namespace {

Task<PosixResult<size_t>> bytes_of_others(NamespaceTransaction& transaction, Ino ino,
                                          std::string_view name) {
  size_t bytes = 0;
  const KeyRange range = keys_of(ino);
  TransactionScan scan = transaction.transaction().scan(transaction.tables().xattrs, range);
  while (true) {
    auto page = co_await scan.next();
    if (!page) co_return transaction.failed(std::move(page.error()));
    if (page->empty()) co_return bytes;
    for (const RecordRef record : *page) {
      if (record.key.substr(8) != name) bytes += record.value.size();
    }
  }
}

}  // namespace

Task<PosixStatus> Xattrs::set(Caller caller, Ino ino, std::string name, std::string value,
                              XattrMode mode) {
  PMSTORE_CO_TRY_STATUS(check_xattr_name(name));
  if (value.size() > kMaxXattrBytes) co_return PosixError(E2BIG);
  PMSTORE_CO_TRY_STATUS(co_await core_.try_reserve());
  const auto body = [&](NamespaceTransaction& transaction) -> Task<PosixStatus> {
    PMSTORE_CO_TRY(Inode inode, co_await transaction.inode(ino));
    PMSTORE_CO_TRY_STATUS(check(caller, inode, name, Access::kWrite));
    // An inode that was deleted meanwhile would never be rid of it.
    if (core_.deleting.contains(ino)) co_return PosixError(ESTALE);
    PMSTORE_CO_TRY(const auto there, co_await transaction.xattr(ino, name));
    if (there && mode == XattrMode::kCreate) co_return PosixError(EEXIST);
    if (!there && mode == XattrMode::kReplace) co_return PosixError(ENODATA);
    if (inode.xattr_bytes > 0) {
      PMSTORE_CO_TRY(const size_t others, co_await bytes_of_others(transaction, ino, name));
      if (others + value.size() > kMaxValuesBytes) {
        co_return PosixError(ENOSPC, "the attributes of a file have at most 64 KiB of values");
      }
    }
    if (!there) inode.xattr_bytes += static_cast<uint32_t>(name.size() + 1);
    if (inode.xattr_bytes > kMaxNamesBytes) {
      co_return PosixError(ENOSPC, "the file has as many attributes as can be listed");
    }
    PMSTORE_CO_TRY_STATUS(core_.check_not_full());
    transaction.put_xattr(ino, name, value);
    inode.attributes.ctime_ns = core_.now_ns();
    ++inode.attributes.version;
    transaction.put(inode);
    co_return PosixStatus();
  };
  PosixStatus done = co_await core_.transact<void>(body);
  if (!done && done.number() == EFBIG) {
    co_return PosixError(ENOSPC, "the store's log is too small for such a value");
  }
  co_return std::move(done);
}

Task<PosixStatus> Xattrs::remove(Caller caller, Ino ino, std::string name) {
  PMSTORE_CO_TRY_STATUS(check_xattr_name(name));
  const auto body = [&](NamespaceTransaction& transaction) -> Task<PosixStatus> {
    PMSTORE_CO_TRY(Inode inode, co_await transaction.inode(ino));
    PMSTORE_CO_TRY_STATUS(check(caller, inode, name, Access::kWrite));
    if (core_.deleting.contains(ino)) co_return PosixError(ESTALE);
    PMSTORE_CO_TRY(const auto there, co_await transaction.xattr(ino, name));
    if (!there) co_return PosixError(ENODATA);
    transaction.erase_xattr(ino, name);
    inode.xattr_bytes -= static_cast<uint32_t>(name.size() + 1);
    inode.attributes.ctime_ns = core_.now_ns();
    ++inode.attributes.version;
    transaction.put(inode);
    co_return PosixStatus();
  };
  co_return co_await core_.transact<void>(body);
}

Task<PosixResult<std::vector<std::string>>> Xattrs::list(Caller caller, Ino ino) {
  using Names = std::vector<std::string>;
  const auto body = [&](NamespaceTransaction& transaction) -> Task<PosixResult<Names>> {
    PMSTORE_CO_TRY(const Inode inode, co_await transaction.inode(ino));
    Names names;
    if (inode.xattr_bytes == 0) co_return std::move(names);
    const KeyRange range = keys_of(ino);
    TransactionScan scan = transaction.transaction().scan(transaction.tables().xattrs, range);
    while (true) {
      auto page = co_await scan.next();
      if (!page) co_return transaction.failed(std::move(page.error()));
      if (page->empty()) break;
      for (const RecordRef record : *page) {
        const std::string_view name = record.key.substr(8);
        if (name.starts_with("trusted.") && caller.uid != 0) continue;
        names.emplace_back(name);
      }
    }
    co_return std::move(names);
  };
  co_return co_await core_.look<Names>(body);
}

}  // namespace pmstore::fs::internal
