// CHECK: an invariant that stays on in release builds. A failed CHECK is a bug in this project,
// never bad input; bad input is an Error.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace pmstore::base {

[[noreturn]] inline void check_failed(const char* file, int line, const char* expression,
                                      const char* why) {
  std::fprintf(stderr, "%s:%d: CHECK(%s) failed: %s\n", file, line, expression, why);
  std::abort();
}

}  // namespace pmstore::base

// `why` says what would go wrong if this did not hold.
#define PMSTORE_CHECK(expression, why)                                     \
  do {                                                                     \
    if (!(expression)) [[unlikely]] {                                      \
      ::pmstore::base::check_failed(__FILE__, __LINE__, #expression, why); \
    }                                                                      \
  } while (false)
