// LockLists: the server's memory in which one session's client lists the slots that it is about to
// lock (pmstore/layout/lock_list_layout.h).
//
// Pages become resident when the client writes them; an RNIC pins all of them when it registers
// them.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "pmstore/layout/lock_list_layout.h"
#include "pmstore/types.h"

namespace pmstore::internal {

class LockLists {
 public:
  // Io when the operating system has not enough memory.
  static Result<std::unique_ptr<LockLists>> create();
  ~LockLists();
  LockLists(const LockLists&) = delete;
  LockLists& operator=(const LockLists&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }
  // The slots that the client has listed; none of them is checked. All of them when the client's
  // connection is destroyed, so that the lists do not change; before, what is there just now.
  std::vector<SlotOffset> slots() const;

 private:
  explicit LockLists(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

}  // namespace pmstore::internal
