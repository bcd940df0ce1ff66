// OpenFiles: what the kernel has open, by the number that it was given.
//
// An operation holds what it works on, so that a release beside it takes nothing away.
// Threads: one. Lifetimes: ends before the FileSystem.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "fs/file_system.h"

namespace pmstore::tools {

struct OpenFile {
  std::unique_ptr<fs::File> file;
  // The kernel reads and writes it through its pages. When the delegation is over it still does so:
  // then it is told before each read to forget them.
  bool cached = false;
  // Of a directory: entries that were fetched and not given yet; the first one is behind
  // `page_from`.
  std::vector<fs::Namespace::Listed> page;
  uint64_t page_from = 0;
};

class OpenFiles {
 public:
  uint64_t add(std::unique_ptr<fs::File> file, bool cached = false) {
    auto opened = std::make_shared<OpenFile>();
    opened->file = std::move(file);
    opened->cached = cached;
    if (cached) ++cached_[opened->file->ino()];
    files_.emplace(++last_, std::move(opened));
    return last_;
  }
  std::shared_ptr<OpenFile> find(uint64_t number) const {
    const auto found = files_.find(number);
    PMSTORE_CHECK(found != files_.end(), "the kernel knows what it has open");
    return found->second;
  }
  std::shared_ptr<OpenFile> remove(uint64_t number) {
    auto file = find(number);
    files_.erase(number);
    if (file->cached && --cached_.at(file->file->ino()) == 0) {
      cached_.erase(file->file->ino());
      written_beside_.erase(file->file->ino());
    }
    return file;
  }
  std::vector<std::shared_ptr<OpenFile>> remove_all() {
    std::vector<std::shared_ptr<OpenFile>> all;
    for (auto& [number, file] : files_) all.push_back(std::move(file));
    files_.clear();
    cached_.clear();
    written_beside_.clear();
    return all;
  }

  // The file was written, but not through its pages: what these have of it may be old.
  void note_written_beside(fs::Ino ino) {
    if (cached_.contains(ino)) written_beside_.insert(ino);
  }
  // Since it was asked the last time.
  bool was_written_beside(fs::Ino ino) { return written_beside_.erase(ino) > 0; }

 private:
  uint64_t last_ = 0;
  std::unordered_map<fs::Ino, unsigned> cached_;  // how many open files
  std::unordered_set<fs::Ino> written_beside_;    // of those
  std::unordered_map<uint64_t, std::shared_ptr<OpenFile>> files_;
};

}  // namespace pmstore::tools
