#include "base/size_text.h"

#include <cstdio>

namespace pmstore::base {

std::string size_text(uint64_t bytes) {
  const std::string exact = std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
  const char* unit = "MiB";
  unsigned shift = 20;
  if (bytes >> 40 != 0) {
    unit = "TiB";
    shift = 40;
  } else if (bytes >> 30 != 0) {
    unit = "GiB";
    shift = 30;
  } else if (bytes >> 20 == 0) {
    return exact;
  }
  const bool whole = bytes % (uint64_t{1} << shift) == 0;
  char rounded[40];
  std::snprintf(rounded, sizeof rounded, "%.*f %s", whole ? 0 : 1,
                static_cast<double>(bytes) / static_cast<double>(uint64_t{1} << shift), unit);
  return std::string(rounded) + " (" + exact + ")";
}

}  // namespace pmstore::base
