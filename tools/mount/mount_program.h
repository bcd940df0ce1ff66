// MountProgram: the process that keeps a mount: into the background once it can be used, in order
// to its end.
//
// Threads: the main thread of a process that has started nothing yet, since it forks.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "fs/file_system.h"
#include "tools/mount/mount_options.h"

namespace pmstore::tools {

struct MountProgram {
  fabric::Uri uri;
  std::string directory;
  MountOptions mount;
  fs::FileSystemOptions files;
  bool foreground = false;
};

// Checks before anything is mounted: the directory is one, nothing is mounted there, and this
// process may use /dev/fuse. Io: what is wrong.
Status check_mount_point(const std::string& directory);

// Mounts, and gives the exit status when that is known: in the background when the mount can be
// used; in the foreground, and in the process in the background, at the end. The mount ends when it
// is unmounted, or by SIGTERM, SIGINT or SIGHUP. Errors are said, in one line.
int run_mount(const MountProgram& program);

}  // namespace pmstore::tools
