#include "pmstore/shard/session_numbers.h"

#include <algorithm>

#include "base/check.h"

namespace pmstore::internal {

Result<uint32_t> SessionNumbers::next(bool in_shard_log) {
  const uint64_t odd = in_shard_log ? 1 : 0;
  const uint64_t number = uint64_t{last_} + (last_ % 2 == odd ? 2 : 1);
  if (number > UINT32_MAX) {
    return make_error(ErrorCode::kFull,
                      "this pool has had all the sessions that it can number; "
                      "copy its records into a new pool");
  }
  if (number > catalog_.header().sessions) {
    const uint64_t through = std::min<uint64_t>(number + kBlock - 1, UINT32_MAX);
    PMSTORE_TRY_STATUS(catalog_.count_sessions(static_cast<uint32_t>(through)));
  }
  PMSTORE_CHECK(number > last_ && number <= catalog_.header().sessions,
                "a number is counted before it is given out, once");
  last_ = static_cast<uint32_t>(number);
  return last_;
}

}  // namespace pmstore::internal
