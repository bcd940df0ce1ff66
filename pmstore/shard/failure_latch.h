// FailureLatch: remembers that a store could not make something durable.
//
// Once set it stays set: the store then acknowledges no commit until the pool is opened again.
// Threads: one.
#pragma once

#include "base/result.h"

namespace pmstore::internal {

class FailureLatch {
 public:
  void set() { failed_ = true; }
  bool failed() const { return failed_; }
  // Io: the answer to calls that would have to make something durable.
  Error error() const {
    return make_error(ErrorCode::kIo,
                      "the server can no longer make anything durable; see its messages");
  }

 private:
  bool failed_ = false;
};

}  // namespace pmstore::internal
