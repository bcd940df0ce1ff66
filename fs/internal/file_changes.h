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

#include "base/check.h"
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
  void begin(OpenOwner client, Ino ino) {
    const auto [at, is_new] = files_.try_emplace(ino);
    OfFile& file = at->second;
    if (is_new) {
      file.by_others = dropped_;
    } else {
      order_.erase(file.last);
      if (file.client != client) file.by_others = file.last;
    }
    file.client = client;
    file.last = ++now_;
    PMSTORE_CHECK(file.by_others < file.last, "time grows with each change");
    PMSTORE_CHECK(now_ >> kCountBits == dropped_ >> kCountBits, "no start has so many changes");
    order_.emplace(file.last, ino);
    if (files_.size() > kMost) drop_first();
  }
  // Any file may have changed.
  void begin_all() {
    dropped_ = ++now_;
    files_.clear();
    order_.clear();
  }
  // What began by other clients than this one, and has ended when the file is delegated; but for a
  // write that was given up (Delegations::changed_by_others()).
  uint64_t last_by_others(OpenOwner client, Ino ino) const {
    const auto found = files_.find(ino);
    if (found == files_.end()) return dropped_;
    return found->second.client == client ? found->second.by_others : found->second.last;
  }
  size_t files() const { return files_.size(); }

 private:
  struct OfFile {
    OpenOwner client{};  // of the last change
    uint64_t last = 0;
    uint64_t by_others = 0;  // the last one of another client
  };
  void drop_first() {
    const auto first = order_.begin();
    dropped_ = first->first;
    files_.erase(first->second);
    order_.erase(first);
  }

  static constexpr unsigned kCountBits = 40;

  uint64_t now_;
  uint64_t dropped_;
  std::unordered_map<Ino, OfFile> files_;
  std::map<uint64_t, Ino> order_;  // by the last change
};

}  // namespace pmstore::fs::internal
