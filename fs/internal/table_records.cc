#include "fs/internal/table_records.h"

#include <map>
#include <string>
#include <utility>

#include "pmstore/scan_repeats.h"

namespace pmstore::fs::internal {
namespace {

// What a scan in order cannot pass, one without order does.
Task<Result<uint64_t>> see_around_damage(Client& client, TableId table, std::string from,
                                         const std::function<void(const RecordRef&)>& see) {
  constexpr uint32_t kPageBytes = 256 * 1024;
  std::map<std::string, std::string> records;
  uint64_t damaged = 0;
  uint64_t cursor = 0;
  ScanRepeats repeats(client.executor());
  do {
    auto page = co_await client.scan(table, cursor, kPageBytes, DamagedRecords::kSkip);
    if (!page && page.code() == ErrorCode::kTrimmed) {
      const bool again = co_await repeats.pause();
      if (!again) co_return page.error();
      records.clear();
      damaged = 0;
      page = co_await client.scan(table, 0, kPageBytes, DamagedRecords::kSkip);
    }
    if (!page) co_return page.error();
    for (const RecordRef record : page->records) {
      if (record.key >= from) records.insert_or_assign(std::string(record.key), record.value);
    }
    damaged += page->damaged;
    cursor = page->cursor;
  } while (cursor != 0);
  for (const auto& [key, value] : records) see(RecordRef{key, value});
  co_return damaged;
}

}  // namespace

Task<Result<uint64_t>> see_records(Client& client, TableId table,
                                   std::function<void(const RecordRef&)> see) {
  std::string from;
  while (true) {
    Transaction transaction = client.begin();
    const KeyRange range{from, {}};
    TransactionScan scan = transaction.scan(table, range);
    auto page = co_await scan.next();
    if (!page && page.code() == ErrorCode::kConflict) continue;
    if (!page && page.code() == ErrorCode::kDamaged) {
      co_return co_await see_around_damage(client, table, std::move(from), see);
    }
    if (!page) co_return page.error();
    if (page->empty()) co_return uint64_t{0};
    for (const RecordRef record : *page) see(record);
    from = std::string(page->back().key) + '\0';
  }
}

}  // namespace pmstore::fs::internal
