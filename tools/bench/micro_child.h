// MicroChild: a server of the remote-access benchmark in a child process: this same program with
// --serve. It ends when this process ends, for whatever reason.
#pragma once

#include <sys/types.h>

#include <memory>

#include "tools/bench/micro_service.h"

namespace pmstore::tools {

class MicroChild {
 public:
  // Io, with the child's error message, when the child does not start. Only the main thread may
  // call it: the child ends when the thread that started it ends.
  static Result<std::unique_ptr<MicroChild>> start(const MicroServiceOptions& options);
  ~MicroChild();
  const fabric::Uri& uri() const { return uri_; }

 private:
  MicroChild() = default;
  Result<fabric::Uri> wait_for_address();

  pid_t pid_ = -1;
  int output_ = -1;
  fabric::Uri uri_{fabric::Scheme::kLocal, {}, 0};
};

// The line that a server prints when it serves begins with this; the URI follows, up to a space.
inline constexpr std::string_view kServingPrefix = "pmstore bench micro: serving at ";

}  // namespace pmstore::tools
