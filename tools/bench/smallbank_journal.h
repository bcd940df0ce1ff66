// Journal: the answers that a SmallBank process got, in a memory-mapped file that survives a kill
// of the process (not a crash of the machine). With the journal, an audit after the kill can tell
// whether an acknowledged transaction was lost, which the store alone cannot know.
//
// Threads: each worker's entry is written by one thread; read by another process after the writer's
// death. Before each commit a worker notes the ledger entry that the commit would leave
// (attempted); after the acknowledgement it notes it as acknowledged. So the store's ledger entry
// must be the acknowledged one, or, when the process died in between, the attempted one.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "tools/bench/smallbank.h"

namespace pmstore::tools::smallbank {

struct JournalHeader;
struct JournalEntry;

class Journal {
 public:
  // A new file. AlreadyExists: nothing that is there is replaced; Io.
  static Result<std::unique_ptr<Journal>> create(const std::string& path, uint64_t run,
                                                 uint32_t clients, uint32_t coroutines);
  // Io; InvalidArgument when it is not a journal.
  static Result<std::unique_ptr<Journal>> open(const std::string& path);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  uint64_t run() const;
  uint32_t clients() const;
  uint32_t coroutines() const;

  void note_attempted(uint32_t client, uint32_t coroutine, const LedgerEntry& entry);
  void note_acknowledged(uint32_t client, uint32_t coroutine, const LedgerEntry& entry);
  LedgerEntry acknowledged(uint32_t client, uint32_t coroutine) const;
  LedgerEntry attempted(uint32_t client, uint32_t coroutine) const;

 private:
  Journal(void* memory, size_t bytes) : memory_(memory), bytes_(bytes) {}
  static Result<std::unique_ptr<Journal>> map(const std::string& path, int file, size_t bytes);
  JournalHeader& header() const;
  JournalEntry& entry(uint32_t client, uint32_t coroutine) const;
  void* memory_;
  size_t bytes_;
};

}  // namespace pmstore::tools::smallbank
