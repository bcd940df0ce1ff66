// DataSession: a session of FileDataService: a client's, or that of the area's owner. Threads: the
// executor's.
#pragma once

#include <cstdint>

#include "service/session.h"

namespace pmstore::fs::internal {

struct DataSession final : service::Session {
  uint64_t instance = 0;
  bool is_owner = false;  // a namespace server elsewhere, which reaches no memory one-sided
};

}  // namespace pmstore::fs::internal
