// The address of a pool's server: the daemon answers, and commands that find the pool in use ask.
//
// The daemon listens on a Unix socket in the abstract namespace whose name is made of the pool's
// device and inode (of the device's number, for DAX). The kernel removes it with the process, so
// nothing is left by a crash, and nothing is written beside the pool. Both must be in one network
// namespace. An answer counts only when it comes from root, from the caller's user or from the
// pool's owner. Threads: one. Neither side ever waits for the other but in find_server(), which
// gives up after two seconds.
#pragma once

#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/result.h"
#include "fabric/uri.h"

namespace pmstore::tools {

struct ServedAt {
  int pid = 0;
  std::vector<std::string> listen;  // URIs
};

class ServedPool {
 public:
  // Io: another process has the name, or the pool cannot be looked at; the pool is served all the
  // same, and cannot be found by its path.
  static Result<ServedPool> announce(const std::string& pool,
                                     const std::vector<fabric::Uri>& listen);
  // Answers all who have asked since; never blocks. False: this process has no descriptor left for
  // the next one, who waits.
  bool answer();
  // Readable while somebody waits for an answer.
  int descriptor() const { return socket_.get(); }

 private:
  base::FileDescriptor socket_;
  std::string text_;
};

// NotFound when no server answers for that pool.
Result<ServedAt> find_server(const std::string& pool);

}  // namespace pmstore::tools
