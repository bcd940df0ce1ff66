// pmstore kv scan
#include <memory>
#include <string>
#include <vector>

#include "pmstore/scan_repeats.h"
#include "tools/cli/bytes_text.h"
#include "tools/cli/command_line.h"
#include "tools/cli/kv_session.h"

namespace pmstore::tools {

KeyRange range_of(const KvOptions& options) {
  KeyRange range = KeyRange::with_prefix(options.prefix);
  if (options.from > range.from) range.from = options.from;
  if (!options.to.empty() && (range.to.empty() || options.to < range.to)) range.to = options.to;
  return range;
}

namespace {

// Prints records as they arrive; JSON is one object, so its records are collected.
class ScanPrinter {
 public:
  explicit ScanPrinter(bool json) : json_(json) {}
  void record(RecordRef record) {
    ++count_;
    if (json_) {
      records_.push_back({{"key", json_bytes(record.key)}, {"value", json_bytes(record.value)}});
    } else {
      print_text(printable(record.key) + "\t" + printable(record.value) + "\n");
    }
  }
  void end(bool complete) {
    if (json_) print_json({{"records", records_}, {"complete", complete}});
  }
  uint64_t count() const { return count_; }
  // Forgets all records, if none is printed yet.
  bool begin_again() {
    if (!json_ && count_ > 0) return false;
    records_.clear();
    count_ = 0;
    return true;
  }

 private:
  bool json_;
  uint64_t count_ = 0;
  nlohmann::ordered_json records_ = nlohmann::ordered_json::array();
};

constexpr uint32_t kScanPageBytes = 256 * 1024;

base::Task<int> scan_hash(Client& client, TableId table, const KvOptions& options,
                          std::string what) {
  ScanPrinter printer(options.session.json);
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

// One record more than the limit tells whether the range ends there.
base::Task<Status> read_range(Transaction& transaction, TableId table, const KvOptions& options,
                              RecordPage& records) {
  const auto direction = options.reverse ? ScanDirection::kBackward : ScanDirection::kForward;
  TransactionScan scan = transaction.scan(table, range_of(options), direction);
  const uint64_t enough = options.limit == 0 ? UINT64_MAX : options.limit + 1;
  records.clear();
  while (records.size() < enough) {
    const auto most = std::min<uint64_t>(enough - records.size(), UINT32_MAX);
    PMSTORE_CO_TRY(const RecordPage page, co_await scan.next(static_cast<uint32_t>(most)));
    if (page.empty()) break;
    for (const RecordRef record : page) records.add(record.key, record.value);
  }
  co_return Status{};
}

// All of one moment: nothing is printed before it is validated.
base::Task<int> scan_ordered(Client& client, TableId table, const KvOptions& options,
                             std::string what) {
  RecordPage records;
  const Status done = co_await retry(client, [&](Transaction& transaction) {
    return read_range(transaction, table, options, records);
  });
  if (!done) co_return fail(kProgram, what, done.error());
  ScanPrinter printer(options.session.json);
  const bool complete = options.limit == 0 || records.size() <= options.limit;
  if (!complete) records.truncate(records.size() - 1);
  for (const RecordRef record : records) printer.record(record);
  printer.end(complete);
  co_return kDone;
}

base::Task<int> scan(Client& client, const KvOptions& options) {
  std::string what = "kv scan of table '" + options.table + "'";
  const auto table = co_await client.open_table(options.table);
  if (!table) co_return fail(kProgram, what, table.error());
  if (is_ordered(*table)) {
    co_return co_await scan_ordered(client, *table, options, std::move(what));
  }
  if (!options.from.empty() || !options.to.empty() || options.reverse) {
    co_return fail(kProgram, what,
                   "a hash table has no order; --from, --to and --reverse need a table made with "
                   "`pmstore table create --ordered`");
  }
  co_return co_await scan_hash(client, *table, options, std::move(what));
}

}  // namespace

void add_kv_scan(CLI::App& kv, Invocation& invocation) {
  auto options = std::make_shared<KvOptions>();
  CLI::App* const command =
      kv.add_subcommand("scan", "print the records of a table, or of a range of an ordered one");
  command->callback([=, &invocation] {
    invocation.run = [=] { return with_client(*options, "kv scan", scan); };
  });
  options->session.add_to(*command);
  command->add_option("--table", options->table, "which table")->capture_default_str();
  command->add_option("--limit", options->limit, "at most so many records (default: all)")
      ->check(a_limit());
  command->add_option("--prefix", options->prefix, "only keys that start so");
  command->add_option("--from", options->from, "ordered tables: from this key on");
  command->add_option("--to", options->to, "ordered tables: up to this key, and without it");
  command->add_flag("--reverse", options->reverse, "ordered tables: the greatest key first");
  command->footer(
      "Prints KEY<tab>VALUE a line; what cannot be printed is \\xHH. An ordered table's records "
      "come\n"
      "in the order of their keys and are all of one moment; a hash table's in no order.\n"
      "example: pmstore kv scan --uri tcp://127.0.0.1:7000 --table accounts --limit 10\n"
      "         pmstore kv scan --uri tcp://127.0.0.1:7000 --table events --from 2026-11 "
      "--reverse");
}

}  // namespace pmstore::tools
