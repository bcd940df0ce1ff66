#include "fabric/internal/region_key.h"

#include <sys/random.h>

namespace pmstore::fabric::internal {

Result<uint64_t> random_key() {
  uint64_t key = 0;
  if (getrandom(&key, sizeof key, 0) != sizeof key) {
    return make_error(ErrorCode::kIo, "no random numbers from the kernel; check getrandom(2)");
  }
  return key;
}

}  // namespace pmstore::fabric::internal
