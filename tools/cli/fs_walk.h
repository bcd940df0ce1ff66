// Walks through a file system from inside: directories by their inodes, page by page.
#pragma once

#include <string>
#include <vector>

#include "fs/file_system.h"

namespace pmstore::tools {

struct WalkedFile {
  std::string path;
  fs::Ino parent{};  // its directory
  std::string name;  // in that
  fs::Attributes attributes;
};

// All entries of a directory, with attributes, in the order in which they were made. Entries that
// vanish meanwhile are left out.
base::Task<fs::PosixResult<std::vector<WalkedFile>>> entries_of(fs::FileSystem& files,
                                                                const fs::Caller& caller,
                                                                fs::Ino directory,
                                                                const std::string& path);

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
  base::Task<fs::PosixStatus> enter(const WalkedFile& directory);

 private:
  fs::FileSystem& files_;
  const fs::Caller caller_;
  std::vector<WalkedFile> waiting_;
};

}  // namespace pmstore::tools
