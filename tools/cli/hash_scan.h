// `pmstore kv scan` of a hash table.
//
// Threads: the client's, which outlives the task.
#pragma once

#include <cstdint>
#include <string>

#include "base/task.h"
#include "pmstore/client.h"

namespace pmstore::tools {

struct HashScanOptions {
  bool json = false;
  std::string prefix;  // only keys that begin so
  uint64_t limit = 0;  // records; 0: no limit
};

// Prints the records, each once. Where the server ends the scan because records have moved it
// begins again (ScanRepeats), unless something is printed already. Gives the exit status; an error
// is one line on standard error that begins with `what`.
base::Task<int> scan_hash(Client& client, TableId table, HashScanOptions options, std::string what);

}  // namespace pmstore::tools
