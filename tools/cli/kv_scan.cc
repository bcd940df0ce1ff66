// pmstore kv scan
#include <memory>
#include <string>
#include <vector>

#include "tools/cli/command_line.h"
#include "tools/cli/hash_scan.h"
#include "tools/cli/kv_session.h"
#include "tools/cli/scan_printer.h"

namespace pmstore::tools {

KeyRange range_of(const KvOptions& options) {
  KeyRange range = KeyRange::with_prefix(options.prefix);
  if (options.from > range.from) range.from = options.from;
  if (!options.to.empty() && (range.to.empty() || options.to < range.to)) range.to = options.to;
  return range;
}

namespace {

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
  HashScanOptions of_hash{options.session.json, options.prefix, options.limit};
  co_return co_await scan_hash(client, *table, std::move(of_hash), std::move(what));
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
