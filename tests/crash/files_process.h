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
#include "fs/file_area.h"
#include "fs/file_data_service.h"
#include "fs/internal/area_keeper.h"
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
  // `growth`: the area of the first pool takes more of it by need, and gives it back.
  using Growth = std::optional<fs::internal::AreaKeeperOptions>;
  static Result<std::unique_ptr<FilesProcess>> open(persist::Pool& pool,
                                                    persist::Pool* other = nullptr,
                                                    const Growth& growth = {});
  ~FilesProcess();

  fs::Namespace& names() { return *names_; }
  uint64_t start_number() const { return start_; }
  // One turn of the executor; of one that has nothing to do, some time.
  void turn();
  // So much time, for what waits for it.
  void pass(uint64_t ns);

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
  // free, and what is free is zero. Each extent of the pool has one owner, and each map lies in
  // sections that the area has.
  Status check();
  // Damaged: a later section of the area has no unit in use, and is there all the same.
  Status check_none_is_empty() const;
  const fs::FileArea& area() const { return *area_; }
  base::Executor& executor() { return executor_; }
  const fabric::Uri& address() const { return address_; }

 private:
  FilesProcess() = default;
  Status start(persist::Pool& pool, persist::Pool* other, const Growth& growth);
  Status load_states();
  Status check_extents() const;
  Status check_free_units();
  void heed(uint16_t server, fs::DataServerState state);
  base::Task<Result<std::string>> content_of(fs::Ino directory, std::string path);
  base::Task<Result<std::string>> content_of_file(fs::Attributes attributes, std::string path);

  base::VirtualClock clock_;
  Executor executor_{clock_};
  persist::Pool* pool_ = nullptr;  // the first one
  fabric::Uri address_{fabric::Scheme::kLocal, {}, 0};
  std::unique_ptr<Server> server_;
  std::optional<fs::FileArea> area_;
  std::unique_ptr<LocalAreas> space_;
  // Where the area grows: what devices can reach of it.
  std::unique_ptr<fs::FileDataService> data_;
  std::unique_ptr<fs::internal::AreaKeeper> keeper_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<fs::Namespace> names_;
  uint64_t start_ = 0;
  bool has_other_ = false;  // it is recorded
  std::optional<uint16_t> drained_;
  std::string damage_;  // the first that the namespace has found at its start
};

}  // namespace pmstore::crash
