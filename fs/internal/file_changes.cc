#include "fs/internal/file_changes.h"

#include "base/check.h"

namespace pmstore::fs::internal {

void FileChanges::begin(OpenOwner client, Ino ino) {
  const auto [at, is_new] = files_.try_emplace(ino);
  OfFile& file = at->second;
  if (is_new) {
    file.by_others = dropped_;
  } else {
    order_.erase(file.last);
    if (file.client != client) file.by_others = file.last;
  }
  file.client = client;
  file.last = ++now_;
  PMSTORE_CHECK(file.by_others < file.last, "time grows with each change");
  PMSTORE_CHECK(now_ >> kCountBits == dropped_ >> kCountBits, "no start has so many changes");
  order_.emplace(file.last, ino);
  if (files_.size() > kMost) drop_first();
  PMSTORE_CHECK(order_.size() == files_.size(), "each file has one last change");
}

void FileChanges::begin_all() {
  dropped_ = ++now_;
  files_.clear();
  order_.clear();
}

uint64_t FileChanges::last_by_others(OpenOwner client, Ino ino) const {
  const auto found = files_.find(ino);
  if (found == files_.end()) return dropped_;
  return found->second.client == client ? found->second.by_others : found->second.last;
}

void FileChanges::drop_first() {
  const auto first = order_.begin();
  dropped_ = first->first;
  files_.erase(first->second);
  order_.erase(first);
}

}  // namespace pmstore::fs::internal
