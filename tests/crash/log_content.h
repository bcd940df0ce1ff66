// The content of a log area, as the oracles of the log runs compare it; and a process that starts
// on an area and continues to work.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "log/log_store.h"
#include "persist/pool.h"
#include "tests/crash/recorded_run.h"
#include "tests/unit/log/log_entries.h"

namespace pmstore::log {

inline constexpr uint64_t kScriptLogBytes = 16 * 1024;
inline constexpr uint64_t kPoolBytes = 160 * 1024;
inline constexpr uint64_t kAreaBytes = 66 * 1024;
inline constexpr size_t kMostLogs = 3;  // there is room for no more

struct LogContent {
  uint64_t id = 0;
  bool sealed = false;
  uint64_t next_index = 1;
  std::vector<TestEntry> entries;
  uint64_t identity = 0;
  bool operator==(const LogContent&) const = default;

  // Gives the new entry's payload.
  std::string append(size_t bytes);
  // Keeps the last ones.
  void trim(size_t kept) {
    entries.erase(entries.begin(), entries.end() - static_cast<ptrdiff_t>(kept));
  }
};

// Of the log that is made behind so many others; some have none, as those of earlier versions.
inline uint64_t identity_behind(uint64_t logs) {
  return logs % 3 == 2 ? 0 : 0x1d00000000000000 + logs;
}

// The content that recovery finds.
struct Content {
  bool area = false;
  std::map<std::string, LogContent> logs;
  bool operator==(const Content&) const = default;

  // crash::kNothing without an area.
  uint64_t digest() const;
  std::string text() const;
};

// Damaged when anything is.
Result<Content> content_of(const LogStore& store);
// Opens and reads. No area: an empty content. Damaged also when an earlier version would find
// damage (tests/crash/version_one.h). `new_identity`: as LogStore::open().
Result<Content> recover(persist::Pool& pool, std::unique_ptr<LogStore>& store,
                        uint64_t new_identity = 0);
// Above those of all starts before, as long as there is an area.
inline uint64_t start_of(const std::unique_ptr<LogStore>& store) {
  return store && !store->area().empty() ? store->epoch() : 0;
}
inline Status as_status(const Result<uint64_t>& result) {
  return result ? Status{} : result.error();
}
Status append_to(LogStore& store, uint64_t id, const std::vector<std::string>& payloads);
// Goes on with what was found: a new entry in each log that is not sealed, and a new log where
// there is room. Gives what must be found from then on. `highest_id`: the new log's is above.
Result<Content> work_on(LogStore& store, Content content, uint64_t highest_id = 0);

}  // namespace pmstore::log

namespace pmstore::crash {

// Recovery: all logs are read; nothing may be damaged. Work, one of these: an entry, a producer
// that comes and goes, a new log; or a log is trimmed.
class RestartedLogs final : public Restarted {
 public:
  static Result<std::unique_ptr<Restarted>> open(std::span<std::byte> memory,
                                                 persist::Domain domain, uint64_t new_identity = 0);
  std::vector<persist::Memory*> memories() override { return {&pool_->memory()}; }
  Result<uint64_t> recover() override;
  uint64_t start_number() const override { return log::start_of(store_); }
  Result<uint64_t> work() override;

 private:
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<log::LogStore> store_;
  uint64_t new_identity_ = 0;
  log::Content content_;
};

}  // namespace pmstore::crash
