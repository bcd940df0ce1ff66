// SearchedDirectories: directories through which paths were walked lately, in DRAM: who may search
// each of them, and which directories its names lead to. A path of which all of that is here is
// walked without a look at the store.
//
// It also says whether the namespace may have changed since a moment: each transaction that writes
// is a Change, from before its first write until its commit has ended. A write takes out what it
// makes wrong, and nothing is put in while a change is under way, nor what was read before the last
// change has ended. So what is here is what the store has, and no transaction under way changes it.
// Invariants: each directory is here with the rights that its record has, or was removed, and then
// no name is here; names lead to directories; there are at most kMostNames.
// Threads: one executor's. Lifetimes: outlives its changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/check.h"
#include "fs/types.h"

namespace pmstore::fs::internal {

class SearchedDirectories {
 public:
  static constexpr size_t kMostNames = 4096;
  // How many changes have ended.
  enum class Moment : uint64_t {};

  class Change {
   public:
    explicit Change(SearchedDirectories& searched) : searched_(searched) { ++searched_.under_way_; }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;
    ~Change() {
      PMSTORE_CHECK(searched_.under_way_ > 0, "each change is counted once");
      --searched_.under_way_;
      ++searched_.ended_;
    }

   private:
    SearchedDirectories& searched_;
  };

  Moment now() const { return Moment{ended_}; }
  // No transaction has written anything since, and none is about to.
  bool is_unchanged_since(Moment moment) const {
    return !stopped_ && under_way_ == 0 && moment == now();
  }

  // The directory to which `path` leads from `start`. nullopt: it is not all here, or the caller
  // may not search on the way.
  std::optional<Ino> find(const Caller& caller, Ino start, std::string_view path) const;
  // What was read since `since`: `name` in `directory` leads to the directory `ino`.
  void put(Moment since, const Attributes& directory, std::string_view name, Ino ino);

  // ---- for changes ----

  // A record is written.
  void written(const Attributes& inode);
  // What a name leads to is written or erased.
  void renamed(Ino parent, std::string_view name);
  // A transaction may take effect at any time: nothing is here, or certain, from now on.
  void stop();

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  struct Directory {
    Attributes rights;  // of these only what check_access() looks at
    std::unordered_map<std::string, Ino, Hash, std::equal_to<>> names;
  };

  std::unordered_map<Ino, Directory> directories_;
  size_t names_ = 0;  // at least as many as there are
  size_t under_way_ = 0;
  uint64_t ended_ = 0;
  bool stopped_ = false;
};

}  // namespace pmstore::fs::internal
