// FailureLatch: remembers that a store could not make something durable.
//
// Once set it stays set: the store then acknowledges no commit until the pool is opened again.
// A failed drain of the memory sets it too, whoever called drain(). Threads: one. The memory is
// borrowed.
#pragma once

#include "base/result.h"
#include "persist/memory.h"

namespace pmstore::internal {

class FailureLatch {
 public:
  explicit FailureLatch(const persist::Memory& memory) : memory_(memory) {}

  void set() { failed_ = true; }
  bool failed() const { return failed_ || memory_.failed(); }
  // Io: the answer to calls that would have to make something durable.
  Error error() const {
    return make_error(ErrorCode::kIo,
                      "the server can no longer make anything durable; see its messages");
  }

 private:
  const persist::Memory& memory_;
  bool failed_ = false;
};

}  // namespace pmstore::internal
