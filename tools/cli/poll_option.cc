#include "tools/cli/poll_option.h"

#include <string>

namespace pmstore::tools {

Result<base::PollMode> parse_poll(std::string_view text) {
  if (text == "adaptive") return base::PollMode::kAdaptive;
  if (text == "always") return base::PollMode::kAlways;
  if (text == "never") return base::PollMode::kNever;
  return make_error(ErrorCode::kInvalidArgument,
                    "'" + std::string(text) + "' is not adaptive, always or never");
}

Result<bool> parse_io_uring(std::string_view text) {
  if (text == "auto") return true;
  if (text == "never") return false;
  return make_error(ErrorCode::kInvalidArgument,
                    "'" + std::string(text) + "' is neither auto nor never");
}

}  // namespace pmstore::tools
