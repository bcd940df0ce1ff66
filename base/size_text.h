// Sizes as people read them: "1 byte", "4096 bytes", "64 MiB (67108864 bytes)",
// "31.7 MiB (33226752 bytes)". Threads: values, no sharing.
#pragma once

#include <cstdint>
#include <string>

namespace pmstore::base {

// From 1 MiB on with the size in MiB, GiB or TiB before the bytes, rounded to a tenth.
std::string size_text(uint64_t bytes);

}  // namespace pmstore::base
