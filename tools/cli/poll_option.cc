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

}  // namespace pmstore::tools
