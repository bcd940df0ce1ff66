// FilesProcess: a server with a file system on the memory of a crash run, without any network: the
// store, the file area, and the namespace between them.
//
// Threads: one. Lifetimes: the pool outlives it. Destroying it is the death of the process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/executor.h"
#include "base/result.h"
#include "fs/local_data_space.h"
#include "fs/namespace.h"
#include "persist/pool.h"
#include "pmstore/client.h"
#include "pmstore/server.h"

namespace pmstore::crash {

class FilesProcess {
 public:
  // Of a pool with a store and a file area.
  static Result<std::unique_ptr<FilesProcess>> open(persist::Pool& pool);
  ~FilesProcess();

  fs::Namespace& names() { return *names_; }
  uint64_t start_number() const { return space_->area().start(); }
  template <typename T>
  T run(base::Task<T> task) {
    return executor_.run(std::move(task));
  }

  // Names, attributes without times, and data: all that must survive.
  Result<std::string> content();
  // Lets the work in the background end, then: check_namespace() finds nothing, what no file has is
  // free, and what is free is zero.
  Status check();

 private:
  FilesProcess() = default;
  base::Task<Result<std::string>> content_of(fs::Ino directory, std::string path);
  base::Task<Result<std::string>> content_of_file(fs::Attributes attributes, std::string path);

  base::VirtualClock clock_;
  Executor executor_{clock_};
  std::unique_ptr<Server> server_;
  std::unique_ptr<fs::LocalDataSpace> space_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<fs::Namespace> names_;
};

}  // namespace pmstore::crash
