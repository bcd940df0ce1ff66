#include "tools/cli/standard_descriptors.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace pmstore::tools {

void open_standard_descriptors(ClosedOutput output) {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    // open() gives the lowest free descriptor, which is this one.
    const bool writes = descriptor == STDIN_FILENO || output == ClosedOutput::kIsDiscarded;
    const int access = writes ? O_WRONLY : O_RDONLY;
    if (::open("/dev/null", access) != descriptor) std::_Exit(1);  // nowhere to say why
  }
}

}  // namespace pmstore::tools
