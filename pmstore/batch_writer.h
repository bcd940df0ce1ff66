// BatchWriter: writes many records of a table, in transactions that fill the server's redo log up
// to the bound of one transaction, whatever the size of the records.
//
//   BatchWriter writer(client, table);
//   for (const auto& [key, value] : records) {
//     Status done = co_await writer.put(key, value);   // collects, and now and then commits
//   }
//   Status done = co_await writer.flush();
//
// Each batch is one transaction: all of it is durable and visible, or nothing. Batches are written
// in the order of the records; a key that a batch has twice gets its last value. written() counts
// the first records that are durable. Behind an error the writer is empty: of the batch that it has
// tried to write it has written as many first records as written() counts, and with CommitUnknown
// perhaps more. A writer that is destroyed drops what it has collected.
// Threads: the executor's of the client. Lifetimes: the client outlives it, it outlives its tasks.
// A task that is destroyed leaves in the writer what it does not know to be written of its batch;
// the writer writes that again: the same values.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "base/task.h"
#include "pmstore/client.h"

namespace pmstore {

class BatchWriter {
 public:
  BatchWriter(Client& client, TableId table);
  ~BatchWriter();
  BatchWriter(const BatchWriter&) = delete;
  BatchWriter& operator=(const BatchWriter&) = delete;

  // Adds the record to the batch, which is written first when the record has no room in it. Key and
  // value are borrowed until the task ends. InvalidArgument, TooLarge: no record can be so; the
  // batch is as before. Other errors: those of flush(), and the record was not added.
  base::Task<Status> put(std::string_view key, std::string_view value);
  // Writes the batch: durable on success. Errors as Transaction::commit(); Conflict: other
  // transactions have kept a record locked for very long.
  base::Task<Status> flush();

  uint64_t written() const;       // records
  uint64_t transactions() const;  // that have written them

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pmstore
