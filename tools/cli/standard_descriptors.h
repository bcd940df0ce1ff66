// Standard input, output and error of a program that may have been started without them.
#pragma once

#include <cstdint>

namespace pmstore::tools {

// What becomes of what is written to standard output and error, if they are closed.
enum class ClosedOutput : uint8_t { kIsAnError, kIsDiscarded };

// Opens the closed ones of the descriptors 0, 1 and 2 on /dev/null; to read from 0 is an error.
// Otherwise the next file that is opened, for instance a pool, would get such a descriptor. A
// program calls this first.
void open_standard_descriptors(ClosedOutput output);

}  // namespace pmstore::tools
