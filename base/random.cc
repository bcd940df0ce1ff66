#include "base/random.h"

#include <sys/random.h>

namespace pmstore::base {

uint64_t random_identity() {
  uint64_t identity = 0;
  while (identity == 0) {
    if (getrandom(&identity, sizeof(identity), 0) != sizeof(identity)) identity = 0;
  }
  return identity;
}

}  // namespace pmstore::base
