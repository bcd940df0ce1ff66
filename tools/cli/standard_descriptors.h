// Standard input, output and error of a program that may have been started without them.
#pragma once

namespace pmstore::tools {

// Opens the closed ones of the descriptors 0, 1 and 2 on /dev/null, so that reading or writing
// there fails. Otherwise the next file that is opened, for instance a pool, would get such a
// descriptor. A program calls this first.
void open_standard_descriptors();

}  // namespace pmstore::tools
