// NoDescriptors: while it lives, this process gets no new descriptor (EMFILE), unless it closes one
// that it had. For tests without other threads that open some.
#pragma once

#include <sys/eventfd.h>
#include <sys/resource.h>

#include "base/check.h"
#include "base/file_descriptor.h"

namespace pmstore::harness {

class NoDescriptors {
 public:
  NoDescriptors() {
    const base::FileDescriptor lowest_free(eventfd(0, EFD_CLOEXEC));
    PMSTORE_CHECK(lowest_free && getrlimit(RLIMIT_NOFILE, &before_) == 0,
                  "there were descriptors until now");
    const rlimit none{static_cast<rlim_t>(lowest_free.get()), before_.rlim_max};
    PMSTORE_CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0, "a limit may be lowered");
  }
  ~NoDescriptors() {
    PMSTORE_CHECK(setrlimit(RLIMIT_NOFILE, &before_) == 0, "the hard limit was not changed");
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace pmstore::harness
