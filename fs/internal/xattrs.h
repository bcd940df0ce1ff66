// Xattrs: extended attributes.
//
// user.* needs the permission to read or write the file, and exists for files and directories only;
// trusted.* is root's; security.* is read by everybody and set by root. Other classes are
// EOPNOTSUPP.
// Threads, errors: as Namespace. Lifetimes: the core outlives it.
#pragma once

#include <string>
#include <vector>

#include "base/task.h"
#include "fs/internal/namespace_core.h"

namespace pmstore::fs::internal {

class Xattrs {
 public:
  explicit Xattrs(NamespaceCore& core) : core_(core) {}

  base::Task<PosixResult<std::vector<std::byte>>> get(Caller caller, Ino ino, std::string name);
  base::Task<PosixStatus> set(Caller caller, Ino ino, std::string name, std::string value,
                              XattrMode mode);
  base::Task<PosixStatus> remove(Caller caller, Ino ino, std::string name);
  base::Task<PosixResult<std::vector<std::string>>> list(Caller caller, Ino ino);

 private:
  NamespaceCore& core_;
};

}  // namespace pmstore::fs::internal
