// KeptFiles: of which files this client may have kept something since it had a delegation of them.
//
// What is cached of a file was right when the file was delegated last. It still is under a new
// delegation, when no other client could change the file since (the server says when), and this
// client did not. A file that this client writes, past its cache, is forgotten with the end of each
// write; one whose write was given up, and may still land, is never kept again.
// Invariant: times are those of a server that knows this client; clear() when it has forgotten it.
// Bounded: kMost files. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>

#include "fs/types.h"

namespace pmstore::fs::internal {

class KeptFiles {
 public:
  static constexpr size_t kMost = 65536;

  // The server delegates the file at its time `now`; another client could change it last at
  // `changed`. True: what is cached of it is right.
  bool delegated(Ino ino, uint64_t now, uint64_t changed) {
    if (all_are_doubtful_ || doubtful_.contains(ino)) return false;
    const auto found = files_.find(ino);
    const bool is_right = found != files_.end() && changed <= found->second;
    if (files_.size() >= kMost && found == files_.end()) files_.clear();
    files_[ino] = now;
    return is_right;
  }
  void forget(Ino ino) { files_.erase(ino); }
  // A write of this client may still land.
  void doubt(Ino ino) {
    forget(ino);
    if (doubtful_.size() < kMost) {
      doubtful_.insert(ino);
    } else {
      all_are_doubtful_ = true;
    }
  }
  void clear() { files_.clear(); }
  size_t files() const { return files_.size(); }

 private:
  std::unordered_map<Ino, uint64_t> files_;
  std::unordered_set<Ino> doubtful_;
  bool all_are_doubtful_ = false;
};

// While it lives, this client changes the file. Destroyed before it was told of an end: it was
// given up.
class OwnChange {
 public:
  OwnChange(KeptFiles& kept, Ino ino) : kept_(kept), ino_(ino) { kept_.forget(ino_); }
  OwnChange(const OwnChange&) = delete;
  OwnChange& operator=(const OwnChange&) = delete;
  ~OwnChange() { ended_ ? kept_.forget(ino_) : kept_.doubt(ino_); }
  void ended() { ended_ = true; }

 private:
  KeptFiles& kept_;
  const Ino ino_;
  bool ended_ = false;
};

}  // namespace pmstore::fs::internal
