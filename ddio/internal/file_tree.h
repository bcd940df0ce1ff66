// FileTree: the files of a host, below a folder that stands for its root.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace pmstore::ddio::internal {

class FileTree {
 public:
  // `root` without a slash at its end and without symbolic links; empty: the host's own root.
  explicit FileTree(std::string root) : root_(std::move(root)) {}

  std::string outside(const std::string& path) const { return root_ + path; }
  Result<std::string> read_text(const std::string& path) const;
  Result<std::vector<std::string>> list(const std::string& path) const;
  Result<std::string> resolve(const std::string& path) const;
  // Why the system refused (errno `error`) what the message begins with, and what to do: not root,
  // or locked down.
  Error refused(const std::string& what, int error) const;
  // The same of a write to an MSR, which a setting of the kernel may forbid, too.
  Error refused_msr_write(const std::string& what, int error) const;

 private:
  std::string root_;
};

}  // namespace pmstore::ddio::internal
