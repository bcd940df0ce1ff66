// Reserve: records without a use, whose slots are given up when the pool is full, so that files can
// still be removed: to take something away writes a few small records first.
//
// Invariant: while it is spent, nothing new is made. Its records are as large as those of freed
// ranges and of orphans, so they free slots of the right size.
// Threads: one executor's. Lifetimes: client and tables outlive it.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/task.h"
#include "fs/internal/namespace_tables.h"
#include "pmstore/client.h"

namespace pmstore::fs::internal {

class Reserve {
 public:
  Reserve(Client& client, const NamespaceTables& tables) : client_(client), tables_(tables) {}

  bool is_spent() const { return is_spent_; }
  // Erases the records. Errors of the store.
  base::Task<Status> spend();
  // Writes those that are missing. Full: there is no room for them.
  base::Task<Status> restore();

  // As many as the largest transaction that frees something writes, and some.
  static constexpr unsigned kRecords = 96;

 private:
  Client& client_;
  const NamespaceTables& tables_;
  bool is_spent_ = true;  // until restore() was called
  uint64_t spends_ = 0;   // begun and ended
};

}  // namespace pmstore::fs::internal
