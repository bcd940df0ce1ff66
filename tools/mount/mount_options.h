// MountOptions: what -o says, in the words of mount(8), and what the kernel is told of it.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "fs/types.h"

namespace pmstore::tools {

struct MountOptions {
  // For the kernel, as they were given: ro, nosuid, allow_other and so on.
  std::vector<std::string> kernel;
  // Only this mount changes the file system: the kernel may cache as long as it likes.
  bool single = false;
  // When the server is away. true: calls wait for it; false: they fail with EIO after
  // `soft_seconds`.
  bool hard = true;
  double soft_seconds = 10;
  // How long the kernel may believe attributes and names without asking.
  double attribute_seconds = 0;
  double entry_seconds = 0;
  // Reads change times of access, as relatime says.
  bool atime = true;
  // When what write() has written is durable, and whether it happens as a whole.
  fs::DataSync sync = fs::DataSync::kAlways;
  bool atomic = false;

  // Pages of files are kept while the server delegates them. Not when the kernel does not ask
  // before it uses them.
  bool uses_delegations() const { return !single && attribute_seconds == 0; }
};

// "ro,hard,attr_timeout=1". Options that only mount(8) and /etc/fstab care for (defaults, _netdev,
// nofail, x-...) are accepted and mean nothing here. InvalidArgument: names the option.
Result<MountOptions> parse_mount_options(std::string_view text);

}  // namespace pmstore::tools
