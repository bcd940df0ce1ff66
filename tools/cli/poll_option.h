// The options of an executor. --poll: how it waits when it has nothing to do (base/spin_window.h).
// --io-uring: whether it may use that (fabric/tcp/internal/socket_batch.h).
#pragma once

#include <string_view>

#include "base/result.h"
#include "base/spin_window.h"

namespace pmstore::tools {

// "adaptive", "always" or "never"; InvalidArgument otherwise.
Result<base::PollMode> parse_poll(std::string_view text);

// Whether it may be used: "auto" or "never"; InvalidArgument otherwise.
Result<bool> parse_io_uring(std::string_view text);

inline constexpr const char* kPollHelp =
    "how to wait for work: adaptive (spin while that pays, then block), always (spin, for a core "
    "of one's own), never (block at once)";

}  // namespace pmstore::tools
