// Directories: list().
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "fs/internal/directories_parts.h"
#include "fs/internal/permissions.h"

namespace pmstore::fs::internal {
namespace {

constexpr uint32_t kMostListed = 4096;

Task<PosixResult<std::vector<Namespace::Listed>>> entries_behind(NamespaceTransaction& transaction,
                                                                 Ino directory, uint64_t cookie,
                                                                 uint32_t most) {
  std::vector<Namespace::Listed> listed;
  const KeyRange range = number_keys(directory, cookie);
  TransactionScan scan = transaction.transaction().scan(transaction.tables().numbers, range);
  while (listed.size() < most) {
    auto page = co_await scan.next(most - static_cast<uint32_t>(listed.size()));
    if (!page) co_return transaction.failed(std::move(page.error()));
    if (page->empty()) break;
    for (const RecordRef record : *page) {
      PMSTORE_CO_TRY(NumberedName name, decode_number(record.value));
      PMSTORE_CO_TRY(const uint64_t number, number_of_key(record.key));
      listed.push_back({{std::move(name.name), name.ino, name.type, number}, {}});
    }
  }
  co_return std::move(listed);
}

}  // namespace

Task<PosixResult<std::vector<Namespace::Listed>>> Directories::list(Caller caller, Ino directory,
                                                                    uint64_t cookie, uint32_t most,
                                                                    bool with_attributes) {
  using Entries = std::vector<Namespace::Listed>;
  if (most == 0) co_return PosixError(EINVAL, "no entry at all would mean the end");
  PMSTORE_CO_TRY(const Inode inode, co_await core_.inode(directory));
  if (!inode.is_directory()) co_return PosixError(ENOTDIR);
  PMSTORE_CO_TRY_STATUS(check_access(caller, inode.attributes, R_OK));
  const bool is_behind_all = cookie == UINT64_MAX;
  if (inode.attributes.size == 0 || is_behind_all) co_return Entries();
  const uint32_t bounded = std::min(most, kMostListed);
  const auto body = [&](NamespaceTransaction& transaction) {
    return entries_behind(transaction, directory, cookie, bounded);
  };
  PMSTORE_CO_TRY(Entries listed, co_await core_.look<Entries>(body));
  if (!with_attributes) co_return std::move(listed);
  for (Namespace::Listed& one : listed) {
    PosixResult<Inode> found = co_await core_.inode(one.entry.ino);
    if (found) {
      one.attributes = found->attributes;
      continue;
    }
    // ESTALE: removed since it was listed. EIO: damaged, and the others are listed all the same.
    const bool concerns_it_alone =
        found.number() == ESTALE || (found.number() == EIO && !core_.store_has_failed());
    if (!concerns_it_alone) co_return std::move(found.error());
  }
  co_return std::move(listed);
}

}  // namespace pmstore::fs::internal
