// LockLists: the server's memory for what one session's client says that it locks; the layout is in
// pmstore/layout/lock_list_layout.h. Pages are touched when a client writes them (an RNIC pins
// all).
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
  // What a peer has written, as it is: nothing of it is checked. Only when the peer's connection is
  // destroyed.
  std::vector<SlotOffset> slots() const;

 private:
  explicit LockLists(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

}  // namespace pmstore::internal
