// The most common error of what a person typed.
#pragma once

#include <string>
#include <utility>

#include "base/result.h"

namespace pmstore::tools {

inline Error invalid_argument(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message));
}

}  // namespace pmstore::tools
