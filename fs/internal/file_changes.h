// FileChanges: when a file may have been changed last by another client than the one who asks.
//
// A client that closes a delegated file may keep what it has cached of it. Under its next
// delegation that is still right when no other client could change the file between. Time is a
// number that grows with each change that may begin, and with each start of the server.
// Invariant: a file that is not remembered counts as changed when the last one was dropped.
// Bounded: kMost files. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>

#include "fs/namespace.h"
#include "fs/types.h"

namespace pmstore::fs::internal {

class FileChanges {
 public:
  static constexpr size_t kMost = 65536;

  // `starts`: of the server, this one counted. What was before it is unknown.
  explicit FileChanges(uint64_t starts) : now_(starts << kCountBits), dropped_(now_) {}
  uint64_t now() const { return now_; }
  // The client may change the file from now on: it opens it for writing, say.
  void begin(OpenOwner client, Ino ino);
  // Any file may have changed.
  void begin_all();
  // What began by other clients than this one, and has ended when the file is delegated; but for a
  // write that was given up (Delegations::changed_by_others()).
  uint64_t last_by_others(OpenOwner client, Ino ino) const;
  size_t files() const { return files_.size(); }

 private:
  struct OfFile {
    OpenOwner client{};  // of the last change
    uint64_t last = 0;
    uint64_t by_others = 0;  // the last one of another client
  };
  void drop_first();

  static constexpr unsigned kCountBits = 40;

  uint64_t now_;
  uint64_t dropped_;
  std::unordered_map<Ino, OfFile> files_;
  std::map<uint64_t, Ino> order_;  // by the last change
};

}  // namespace pmstore::fs::internal
