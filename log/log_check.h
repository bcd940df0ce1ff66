// Checking a pool's logs: what LogStore::open() would find, without changing anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "persist/pool.h"

namespace pmstore::log {

struct LogCheckReport {
  uint64_t epoch = 0;       // starts so far
  uint64_t area_bytes = 0;  // of the log area
  uint64_t largest_free = 0;
  uint64_t logs = 0;
  uint64_t entries = 0;  // whole ones
  // One line each: what is wrong and where. Empty: the logs are sound.
  std::vector<std::string> problems;
  bool sound() const { return problems.empty(); }
};

// Reads the directory and every entry. NotFound when the pool has no log area; BadPool when the
// directory's header cannot be read; what is wrong below it is in the report (at most
// kMaxLogProblems lines). Stores nothing.
inline constexpr size_t kMaxLogProblems = 100;
Result<LogCheckReport> check_logs(persist::Pool& pool);

// What LogStore::open() would refuse the pool for, found without changing anything: the directory,
// and logs of another format version. NotFound when the pool has no log area.
Status check_log_area(persist::Pool& pool);

}  // namespace pmstore::log
