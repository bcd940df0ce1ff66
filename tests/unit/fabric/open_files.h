// OpenFiles: the limit of open files while it lives.
#pragma once

#include <sys/resource.h>

#include <algorithm>

#include "base/check.h"

namespace pmstore::fabric {

class OpenFiles {
 public:
  // `most`, or the hard limit if that is lower.
  explicit OpenFiles(rlim_t most = RLIM_INFINITY) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit limit{std::min(most, before_.rlim_max), before_.rlim_max};
    PMSTORE_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0, "a soft limit follows its process");
  }
  ~OpenFiles() { setrlimit(RLIMIT_NOFILE, &before_); }
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;

  // `count`, or fewer if so many times `each` descriptors are not to be had.
  static size_t at_most(size_t count, size_t each) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    return std::min<size_t>(count, (limit.rlim_cur - limit.rlim_cur / 4) / each);
  }

 private:
  rlimit before_{};
};

}  // namespace pmstore::fabric
