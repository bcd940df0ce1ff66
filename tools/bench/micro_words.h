// The parameters of a MicroPoint in words, for the legends and axes of pictures.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tools/bench/micro_point.h"

namespace pmstore::tools {

// The point's value of this parameter: "one-sided", "64 B", "4 clients", "no rules".
std::string parameter_words(std::string_view parameter, const MicroPoint& point);
// The title of an axis over this parameter, with its unit.
std::string parameter_axis(std::string_view parameter);
// 2048 is "2K", 1000 is "1000".
std::string short_bytes(uint64_t bytes);

}  // namespace pmstore::tools
