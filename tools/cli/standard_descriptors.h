// Standard input, output and error of a program that may have been started without them.
#pragma once

namespace pmstore::tools {

// Opens those of the descriptors 0, 1 and 2 that are closed on /dev/null; else the next file that
// is opened, for instance a pool, would take their place. The first thing a program does.
void open_standard_descriptors();

}  // namespace pmstore::tools
