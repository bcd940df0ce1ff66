// Side: a real file system that the model test drives, and whose servers may die.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tests/scenario/fs/model/model_operation.h"
#include "tests/scenario/fs/model/reference_fs.h"

namespace pmstore::fs::model {

class Side {
 public:
  virtual ~Side() = default;
  // Empty: `operation` was interrupted, and servers and programs died. restart() follows.
  virtual std::optional<Outcome> apply(const Operation& operation, uint64_t now) = 0;
  // Whether a server died within the last apply(), and the programs lived on.
  virtual bool crashed_within() const = 0;
  // A crash between operations; `operation.flag`: of both programs, too.
  virtual void crash(const Operation& operation) = 0;
  // After an interrupted operation.
  virtual void restart() = 0;
  virtual std::string dump() = 0;
  // Lets the background work end, then: what the check of the namespace finds, and what is wrong
  // with the space. Empty: nothing.
  virtual std::string check() = 0;
  // Removes everything; then as check(): all space has to be free, and zero. The last call.
  virtual std::string finish() = 0;
};

}  // namespace pmstore::fs::model
