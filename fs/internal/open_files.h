// OpenFiles: who has which inode open. In memory only: after a restart, clients open again what
// they had open.
//
// Invariant: both maps have the same pairs; an inode or an owner without any is in neither.
// Threads: one executor's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "base/executor.h"
#include "base/task.h"
#include "fs/namespace.h"
#include "fs/types.h"

namespace pmstore::fs::internal {

class OpenFiles {
 public:
  // While it lives, a call of `owner` may still add something.
  class Opening {
   public:
    Opening(OpenFiles& files, OpenOwner owner) : files_(files), owner_(owner) {
      ++files_.opening_[owner_];
    }
    Opening(const Opening&) = delete;
    Opening& operator=(const Opening&) = delete;
    ~Opening() {
      const auto mine = files_.opening_.find(owner_);
      if (--mine->second == 0) files_.opening_.erase(mine);
      files_.opened_.notify_all();
    }

   private:
    OpenFiles& files_;
    const OpenOwner owner_;
  };

  OpenFiles(Executor& executor, size_t most) : most_(most), opened_(executor) {}

  // Waits until no call of the owner adds anything any more.
  base::Task<void> opens_have_ended(OpenOwner owner) {
    while (opening_.contains(owner)) co_await opened_.wait();
  }

  // False: the bound is reached.
  bool add(Ino ino, OpenOwner owner) {
    uint32_t& opens = by_owner_[owner][ino];
    if (opens == 0 && pairs_ == most_) {
      forget_if_unused(ino, owner);
      return false;
    }
    if (opens++ == 0) {
      ++pairs_;
      ++owners_of_[ino];
    }
    return true;
  }
  // False: this owner does not have it open.
  bool remove(Ino ino, OpenOwner owner) {
    const auto of_owner = by_owner_.find(owner);
    if (of_owner == by_owner_.end()) return false;
    const auto opens = of_owner->second.find(ino);
    if (opens == of_owner->second.end()) return false;
    PMSTORE_CHECK(opens->second > 0, "an open file is counted");
    if (--opens->second == 0) {
      --pairs_;
      const auto owners = owners_of_.find(ino);
      PMSTORE_CHECK(owners != owners_of_.end(), "an open file has an owner");
      if (--owners->second == 0) owners_of_.erase(owners);
      forget_if_unused(ino, owner);
    }
    return true;
  }
  // All that the owner has open, and from now on has not.
  std::vector<Ino> remove_all(OpenOwner owner) {
    std::vector<Ino> closed;
    const auto of_owner = by_owner_.find(owner);
    if (of_owner == by_owner_.end()) return closed;
    for (const auto& [ino, opens] : of_owner->second) closed.push_back(ino);
    for (const Ino ino : closed) {
      const auto owners = owners_of_.find(ino);
      PMSTORE_CHECK(owners != owners_of_.end(), "an open file has an owner");
      if (--owners->second == 0) owners_of_.erase(owners);
    }
    pairs_ -= closed.size();
    by_owner_.erase(of_owner);
    return closed;
  }
  bool is_open(Ino ino) const { return owners_of_.contains(ino); }
  size_t size() const { return pairs_; }

 private:
  void forget_if_unused(Ino ino, OpenOwner owner) {
    const auto of_owner = by_owner_.find(owner);
    of_owner->second.erase(ino);
    if (of_owner->second.empty()) by_owner_.erase(of_owner);
  }

  const size_t most_;
  size_t pairs_ = 0;
  std::unordered_map<OpenOwner, std::map<Ino, uint32_t>> by_owner_;
  std::unordered_map<Ino, uint32_t> owners_of_;
  std::unordered_map<OpenOwner, uint32_t> opening_;  // how many calls
  base::WaitList opened_;
};

}  // namespace pmstore::fs::internal
