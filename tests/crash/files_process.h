// FilesProcess: a server with a file system on the memory of a crash run, without any network: the
// store, the file area, and the namespace between them. A second pool may have the area of another
// data server, whose record and state are those of the product.
//
// Threads: one. Lifetimes: the pool outlives it. Destroying it is the death of the process.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/executor.h"
#include "base/result.h"
#include "fs/namespace.h"
#include "persist/pool.h"
#include "pmstore/client.h"
#include "pmstore/server.h"
#include "tests/crash/local_areas.h"

namespace pmstore::crash {

class FilesProcess {
 public:
  static constexpr uint16_t kOther = 1;  // index of the second data server

  // Of a pool with a store and a file area; `other`: likewise, only the area counts.
  static Result<std::unique_ptr<FilesProcess>> open(persist::Pool& pool,
                                                    persist::Pool* other = nullptr);
  ~FilesProcess();

  fs::Namespace& names() { return *names_; }
  uint64_t start_number() const { return start_; }
  // One turn of the executor; of one that has nothing to do, some time.
  void turn();

  // Of a data server: recorded, durably, and heeded. The second one is added by its first state.
  Status set_state(uint16_t server, fs::DataServerState state);
  // What is being drained; nothing: no server is.
  std::optional<uint16_t> drained() const { return drained_; }
  uint64_t used_bytes(uint16_t server) const { return space_->used_bytes(server); }
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
  Status load_states();
  void heed(uint16_t server, fs::DataServerState state);
  base::Task<Result<std::string>> content_of(fs::Ino directory, std::string path);
  base::Task<Result<std::string>> content_of_file(fs::Attributes attributes, std::string path);

  base::VirtualClock clock_;
  Executor executor_{clock_};
  std::unique_ptr<Server> server_;
  std::unique_ptr<LocalAreas> space_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<fs::Namespace> names_;
  uint64_t start_ = 0;
  bool has_other_ = false;  // it is recorded
  std::optional<uint16_t> drained_;
};

}  // namespace pmstore::crash
