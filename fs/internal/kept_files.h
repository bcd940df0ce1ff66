// KeptFiles: of which files this client may have kept something since it had a delegation of them.
//
// What is cached of a file was right when it was opened under the delegation that was used last. It
// still is under a new delegation, when no other client could change the file since (the server
// says when), and this client did not. A file that this client writes, past its cache, is forgotten
// with the end of each write; one whose write was given up, and may still land, is doubtful until
// it is settled, and is not kept. Invariant: times are those of a server that knows this client;
// clear() when it has forgotten it. An open counts only once the cache was used behind it: what the
// cache had before is dropped then. Bounded: kMost files, and what is open. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "fs/types.h"

namespace pmstore::fs::internal {

class KeptFiles {
 public:
  static constexpr size_t kMost = 65536;

  // An open of a file that the server delegates at its time `now`. Lifetimes: the KeptFiles
  // outlives it.
  class Opened {
   public:
    Opened(KeptFiles& kept, Ino ino, uint64_t now);
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;
    ~Opened();
    // The open has ended, and what is read from here on is cached: what is cached was right then,
    // unless the file was forgotten meanwhile.
    void use();

   private:
    friend class KeptFiles;
    KeptFiles& kept_;
    const Ino ino_;
    const uint64_t now_;
    bool may_count_ = true;  // not used, nor forgotten
  };

  // Another client could change the delegated file last at `changed`. True: what is cached of it is
  // right.
  bool is_right(Ino ino, uint64_t changed) const;
  void forget(Ino ino);
  // A write of this client may still land.
  void doubt(Ino ino);
  // How many there were.
  uint64_t doubts() const { return doubts_; }
  // None of that many writes lands any more.
  void settle(uint64_t doubts);
  // The server knows nothing of this client any more.
  void clear();
  size_t files() const { return files_.size(); }

  // A write of this client was given up.
  std::function<void(Ino)> on_doubt;

 private:
  bool is_doubtful(Ino ino) const;
  void note(Ino ino, uint64_t now);

  std::unordered_map<Ino, uint64_t> files_;
  std::unordered_multimap<Ino, Opened*> opened_;
  std::unordered_set<Ino> doubtful_;
  bool all_are_doubtful_ = false;
  uint64_t doubts_ = 0;
};

// While it lives, this client changes the file. Destroyed before it was told of an end: it was
// given up.
class OwnChange {
 public:
  OwnChange(KeptFiles& kept, Ino ino);
  OwnChange(const OwnChange&) = delete;
  OwnChange& operator=(const OwnChange&) = delete;
  ~OwnChange();
  // With this errno, or 0. A refusal is an end; behind other errors it may still happen.
  void ended(int number);

 private:
  KeptFiles& kept_;
  const Ino ino_;
  bool has_ended_ = false;
};

}  // namespace pmstore::fs::internal
