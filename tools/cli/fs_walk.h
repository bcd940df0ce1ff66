// Walks through a file system from inside: directories by their inodes, page by page.
#pragma once

#include <string>
#include <vector>

#include "fs/file_system.h"
#include "tools/cli/fs_session.h"

namespace pmstore::tools {

struct WalkedFile {
  std::string path;
  fs::Ino parent{};  // its directory
  std::string name;  // in that
  fs::Attributes attributes;
};

struct WalkedDirectory {
  struct Unreadable {
    std::string path;
    std::string name;
    fs::PosixError why;
  };
  std::vector<WalkedFile> files;
  std::vector<Unreadable> unreadable;  // entries whose inode is damaged
};
// All entries of a directory, with attributes, in the order in which they were made. Entries that
// vanish meanwhile are left out.
base::Task<fs::PosixResult<WalkedDirectory>> entries_of(fs::FileSystem& files,
                                                        const fs::Caller& caller, fs::Ino directory,
                                                        const std::string& path);
// The same; `failures` hears of each entry that is damaged, and of the directory if it cannot be
// listed.
base::Task<std::vector<WalkedFile>> readable_entries(fs::FileSystem& files,
                                                     const fs::Caller& caller, fs::Ino directory,
                                                     const std::string& path, Failures& failures);

// Visits a tree without recursion, so that its depth is no matter.
class Walk {
 public:
  Walk(fs::FileSystem& files, fs::Caller caller, WalkedFile root)
      : files_(files), caller_(std::move(caller)) {
    waiting_.push_back(std::move(root));
  }
  // The next one, each directory before what is in it. Nothing: the end.
  bool done() const { return waiting_.empty(); }
  WalkedFile next() {
    WalkedFile file = std::move(waiting_.back());
    waiting_.pop_back();
    return file;
  }
  // Will visit what is in `directory`, in the order of the names, before everything else.
  // `failures` as readable_entries().
  base::Task<void> enter(const WalkedFile& directory, Failures& failures);

 private:
  fs::FileSystem& files_;
  const fs::Caller caller_;
  std::vector<WalkedFile> waiting_;
};

}  // namespace pmstore::tools
