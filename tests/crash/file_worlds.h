// FileWorlds: which contents a few files may have, while several changes of them are under way.
//
// A world is the content of all files, and which of the changes under way have happened in it.
// Changes happen in any order, each as a whole. An acknowledged change has happened in each world
// that is left; one whose program has died may have happened, or may happen yet. Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace pmstore::crash {

using FileContents = std::map<std::string, std::string>;  // by name

struct FileChange {
  enum class Kind : uint8_t { kWrite, kAppend, kTruncate };
  Kind kind = Kind::kWrite;
  std::string file;
  uint64_t offset = 0;  // of a write; the new size of a truncation
  std::string data = {};
};

class FileWorlds {
 public:
  explicit FileWorlds(FileContents contents) { worlds_.insert({std::move(contents), {}}); }

  // Gives its number.
  uint64_t begin(FileChange change);
  void acknowledged(uint64_t number);
  // The files are so now, and nothing is under way any more. False: no world is so.
  bool settle(const FileContents& found);
  std::vector<FileContents> contents() const;

 private:
  using World = std::pair<FileContents, std::set<uint64_t>>;
  void close();  // each change under way may happen in each world

  std::set<World> worlds_;
  std::map<uint64_t, FileChange> under_way_;
  uint64_t last_ = 0;
};

}  // namespace pmstore::crash
