#include "tools/cli/hash_scan.h"

#include <utility>

#include "pmstore/scan_repeats.h"
#include "tools/cli/commands.h"
#include "tools/cli/scan_printer.h"

namespace pmstore::tools {
namespace {

constexpr uint32_t kScanPageBytes = 256 * 1024;

}  // namespace

base::Task<int> scan_hash(Client& client, TableId table, HashScanOptions options,
                          std::string what) {
  ScanPrinter printer(options.json);
  uint64_t cursor = 0;
  uint64_t damaged = 0;
  ScanRepeats repeats(client.executor());
  do {
    auto page = co_await client.scan(table, cursor, kScanPageBytes, DamagedRecords::kSkip);
    if (!page && page.code() == ErrorCode::kTrimmed && printer.begin_again()) {
      const bool again = co_await repeats.pause();
      if (!again) co_return fail(kProgram, what, page.error());
      damaged = 0;
      page = co_await client.scan(table, 0, kScanPageBytes, DamagedRecords::kSkip);
    }
    if (!page) co_return fail(kProgram, what, page.error());
    damaged += page->damaged;
    for (const RecordRef record : page->records) {
      if (!record.key.starts_with(options.prefix)) continue;
      if (options.limit != 0 && printer.count() == options.limit) {
        printer.end(false);
        co_return kDone;
      }
      printer.record(record);
    }
    cursor = page->cursor;
  } while (cursor != 0);
  printer.end(true);
  if (damaged == 0) co_return kDone;
  co_return fail(kProgram, what,
                 make_error(ErrorCode::kDamaged,
                            std::to_string(damaged) +
                                " records are damaged and were left out, perhaps of other tables: "
                                "the medium has changed them; restore the pool from a backup, or "
                                "start the server again to go on without them"));
}

}  // namespace pmstore::tools
