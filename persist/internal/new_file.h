// NewFile: a file that nobody sees before it is complete.
//
// It has no name until publish(), so a process that is killed before leaves nothing. A file system
// that has no such files (NFS, FAT, older overlayfs) gives it a name of its own beside the wanted
// one; a kill leaves that, which nobody opens. Threads: one.
#pragma once

#include <string>

#include "base/result.h"
#include "persist/internal/pool_file.h"

namespace pmstore::persist::internal {

class NewFile {
 public:
  enum class Kind { kUnnamed, kNamed };
  // Empty, readable and writable by its owner, to become `path`. AlreadyExists when there is
  // anything; Io. `first` is what is tried; tests ask for the other one.
  static Result<NewFile> make(const std::string& path, Kind first = Kind::kUnnamed);
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  // Removes what was not published.
  ~NewFile();

  int descriptor() const { return fd_.get(); }
  // What other code opens it by.
  const std::string& name() const { return name_; }
  // Gives it the wanted path, if there is nothing: AlreadyExists, Io. Content and name are durable
  // on return.
  Status publish();

 private:
  NewFile(FileDescriptor fd, Kind kind, std::string name, std::string path);
  FileDescriptor fd_;
  Kind kind_;
  std::string name_;  // empty once there is nothing to remove
  std::string path_;
};

}  // namespace pmstore::persist::internal
