// DataServerRecords: the list of a file system's data servers, durable in its namespace.
//
// An index is never used again: the super record counts those that were ever added. Threads: one
// executor's. Lifetimes: the client outlives it. Errors: those of the store; Damaged.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/task.h"
#include "fs/layout/fs_layout.h"
#include "pmstore/client.h"

namespace pmstore::fs::internal {

class DataServerRecords {
 public:
  explicit DataServerRecords(Client& client) : client_(client) {}

  struct Loaded {
    uint64_t identity = 0;    // of the file system; 0: there is none yet
    uint16_t next_index = 1;  // of the next server that is added
    std::vector<DataServerEntry> servers;
  };
  base::Task<Result<Loaded>> load();
  // Durable on return. AlreadyExists: `server.index` is not the next one.
  base::Task<Status> add(DataServerEntry server);
  // The secret by which this file system owns the area: drawn, and durable on return, when there is
  // none. It is there before the area hears of it, so a crash loses no area. Full: the pool has no
  // room for it, and the message says what to do.
  base::Task<Result<ClientSecret>> secret_of(uint64_t area);
  // Whether there is one: this file system owns the area, or may have owned it, with data in it.
  base::Task<Result<bool>> has_secret_of(uint64_t area);
  // Of an area that has no owner any more: all of it is zero. Durable on return.
  base::Task<Status> forget_secret_of(uint64_t area);
  // SuperRecord::given_up becomes this; gives what it was. Durable on return.
  base::Task<Result<uint32_t>> exchange_given_up(uint32_t given_up);
  // Its record becomes this.
  base::Task<Status> change(DataServerEntry server);

 private:
  base::Task<Result<TableId>> table();

  Client& client_;
};

}  // namespace pmstore::fs::internal
