// OpenFiles: what the kernel has open, by the number that it was given.
//
// An operation holds what it works on, so that a release beside it takes nothing away.
// Threads: one. Lifetimes: ends before the FileSystem.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "fs/file_system.h"

namespace pmstore::tools {

struct OpenFile {
  std::unique_ptr<fs::File> file;
  // Of a directory: entries that were fetched and not given yet; the first one is behind
  // `page_from`.
  std::vector<fs::Namespace::Listed> page;
  uint64_t page_from = 0;
};

class OpenFiles {
 public:
  uint64_t add(std::unique_ptr<fs::File> file) {
    auto opened = std::make_shared<OpenFile>();
    opened->file = std::move(file);
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
    return file;
  }
  std::vector<std::shared_ptr<OpenFile>> remove_all() {
    std::vector<std::shared_ptr<OpenFile>> all;
    for (auto& [number, file] : files_) all.push_back(std::move(file));
    files_.clear();
    return all;
  }

 private:
  uint64_t last_ = 0;
  std::unordered_map<uint64_t, std::shared_ptr<OpenFile>> files_;
};

}  // namespace pmstore::tools
