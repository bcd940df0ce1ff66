#include "fs/internal/searched_directories.h"

#include <unistd.h>

#include <algorithm>

#include "fs/internal/permissions.h"

namespace pmstore::fs::internal {

std::optional<Ino> SearchedDirectories::find(const Caller& caller, Ino start,
                                             std::string_view path) const {
  if (path.empty()) return std::nullopt;
  Ino at = start;
  while (!path.empty()) {
    const size_t end = std::min(path.find('/'), path.size());
    const auto directory = directories_.find(at);
    if (directory == directories_.end()) return std::nullopt;
    if (!check_access(caller, directory->second.rights, X_OK)) return std::nullopt;
    const auto name = directory->second.names.find(path.substr(0, end));
    if (name == directory->second.names.end()) return std::nullopt;
    at = name->second;
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return at;
}

void SearchedDirectories::put(Moment since, const Attributes& directory, std::string_view name,
                              Ino ino) {
  if (!is_unchanged_since(since) || is_dots(name)) return;
  PMSTORE_CHECK(directory.type == FileType::kDirectory && directory.links > 0,
                "only a directory that is there is searched");
  if (names_ >= kMostNames) {
    directories_.clear();
    names_ = 0;
  }
  Directory& there = directories_[directory.ino];
  there.rights = directory;
  names_ += there.names.insert_or_assign(std::string(name), ino).second ? 1 : 0;
  PMSTORE_CHECK(names_ <= kMostNames, "the names that are kept have a bound");
}

void SearchedDirectories::written(const Attributes& inode) {
  if (inode.type != FileType::kDirectory) return;
  const auto there = directories_.find(inode.ino);
  if (there == directories_.end()) return;
  const Attributes& rights = there->second.rights;
  const bool same = inode.mode == rights.mode && inode.uid == rights.uid && inode.gid == rights.gid;
  if (!same) directories_.erase(there);
}

void SearchedDirectories::renamed(Ino parent, std::string_view name) {
  const auto there = directories_.find(parent);
  if (there == directories_.end()) return;
  const auto found = there->second.names.find(name);
  if (found != there->second.names.end()) there->second.names.erase(found);
}

void SearchedDirectories::stop() {
  stopped_ = true;
  directories_.clear();
}

}  // namespace pmstore::fs::internal
