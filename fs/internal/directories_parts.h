// What the sources of Directories share.
#pragma once

#include <cstdint>
#include <optional>

#include "fs/internal/directories.h"

namespace pmstore::fs::internal {

// ctime and version.
void changed(Inode& inode, uint64_t now_ns);
// mtime, too.
void entries_changed(Inode& directory, uint64_t now_ns);

// What became of an inode that has lost a name.
struct Directories::Removal {
  enum class Fate : uint8_t {
    kLives,   // it has other names
    kErased,  // nothing is left of it
    kOrphan,  // it has no name, but openers or data
  };
  Ino ino{};
  Fate fate = Fate::kLives;
};

// A rename, as its transaction has found the place. Invariant: `to` is empty exactly when both
// directories are the same one.
struct Directories::Move {
  Inode from;
  std::optional<Inode> to;
  Entry source;
  std::optional<Entry> target;
  Inode source_inode;
  std::optional<Inode> target_inode;

  // Both names are of one inode; then the inodes were not looked at.
  bool is_of_one_inode() const { return target && target->ino == source.ino; }
  Inode& target_directory() { return to ? *to : from; }
  const Inode& target_directory() const { return to ? *to : from; }
};

}  // namespace pmstore::fs::internal
