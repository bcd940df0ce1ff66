// DelegatedFiles: which open files this client may cache, as the server has said.
//
// Invariant: a file is delegated from its first open on, or not until all its opens are closed;
// so all that are open at the same time are cached, until the delegation is recalled from all.
// Bounded by what is open. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "fs/types.h"

namespace pmstore::fs::internal {

class DelegatedFiles {
 public:
  // It is open once more; `given`: the server delegates it. True: this open may be cached.
  bool opened(const Attributes& attributes, bool given) {
    OfFile& file = files_[raw(attributes.ino)];
    if (file.opens++ == 0) {
      file.attributes = attributes;
      set(file, given);
    } else if (!given) {
      set(file, false);  // news will say so
    }
    heard(attributes);
    return file.delegated;
  }
  void closed(Ino ino) {
    const auto found = files_.find(raw(ino));
    PMSTORE_CHECK(found != files_.end(), "what is closed was open");
    if (--found->second.opens > 0) return;
    set(found->second, false);
    files_.erase(found);
  }
  void revoke(Ino ino) {
    const auto found = files_.find(raw(ino));
    if (found != files_.end()) set(found->second, false);
  }
  void revoke_all() {
    for (auto& [ino, file] : files_) set(file, false);
  }
  void heard(const Attributes& attributes) {
    const auto found = files_.find(raw(attributes.ino));
    if (found == files_.end() || attributes.version < found->second.attributes.version) return;
    found->second.attributes = attributes;
  }
  // As last heard of; nullptr: it is not delegated.
  const Attributes* find(Ino ino) const {
    const auto found = files_.find(raw(ino));
    return found != files_.end() && found->second.delegated ? &found->second.attributes : nullptr;
  }
  bool is_open(Ino ino) const { return files_.contains(raw(ino)); }
  std::vector<Ino> open_ones() const {
    std::vector<Ino> all;
    for (const auto& [ino, file] : files_) all.push_back(Ino{ino});
    return all;
  }
  bool any() const { return delegated_ > 0; }

 private:
  struct OfFile {
    unsigned opens = 0;
    bool delegated = false;
    Attributes attributes;
  };
  void set(OfFile& file, bool delegated) {
    if (file.delegated == delegated) return;
    file.delegated = delegated;
    delegated_ += delegated ? size_t{1} : ~size_t{0};
  }

  std::unordered_map<uint64_t, OfFile> files_;
  size_t delegated_ = 0;
};

}  // namespace pmstore::fs::internal
