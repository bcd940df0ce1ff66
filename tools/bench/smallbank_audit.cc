#include <fmt/format.h>

#include <vector>

#include "pmstore/scan_repeats.h"
#include "tools/bench/smallbank_bank.h"
#include "tools/bench/smallbank_worker.h"

namespace pmstore::tools::smallbank {
namespace {

// Adds the records of one table of balances to the audit.
Task<Status> audit_balances(Client& client, TableId table, Audit& audit) {
  std::vector<bool> seen(audit.accounts, false);
  uint64_t cursor = 0;
  do {
    PMSTORE_CO_TRY(const ScanPage page, co_await client.scan(table, cursor));
    for (const RecordRef record : page.records) {
      ++audit.account_records;
      uint64_t account = 0;
      for (const char c : record.key) account = account * 10 + static_cast<uint64_t>(c - '0');
      const auto balance = decode_balance(record.value);
      if (account >= audit.accounts || record.key != account_key(account) || seen[account] ||
          !balance) {
        ++audit.bad_records;
        continue;
      }
      seen[account] = true;
      audit.actual_cents += balance->cents;
      audit.actual_writes += balance->writes;
    }
    cursor = page.cursor;
  } while (cursor != 0);
  co_return Status{};
}

Task<Status> audit_ledger(Client& client, TableId table, Audit& audit) {
  uint64_t cursor = 0;
  do {
    PMSTORE_CO_TRY(const ScanPage page, co_await client.scan(table, cursor));
    for (const RecordRef record : page.records) {
      ++audit.ledger_records;
      const auto entry = decode_ledger(record.value);
      if (!entry || !audit.ledger.emplace(record.key, *entry).second) {
        ++audit.bad_records;
        continue;
      }
      audit.ledger_transactions += entry->transactions;
      audit.ledger_net_cents += entry->net_cents;
      audit.expected_writes += entry->writes;
    }
    cursor = page.cursor;
  } while (cursor != 0);
  co_return Status{};
}

// A step of the audit. It begins again where the server has moved records amid its scan.
template <typename Step>
Task<Status> audit_patiently(Client& client, Audit& audit, Step step) {
  const Audit before = audit;
  ScanRepeats repeats(client.executor());
  Status done = co_await step();
  while (!done && done.code() == ErrorCode::kTrimmed) {
    const bool again = co_await repeats.pause();
    if (!again) break;
    audit = before;
    done = co_await step();
  }
  co_return done;
}

}  // namespace

Task<Result<Audit>> audit_bank(Client& client, Tables tables, uint64_t accounts) {
  Audit audit;
  audit.accounts = accounts;
  audit.initial_cents = 2 * static_cast<int64_t>(accounts) * kInitialCents;
  const auto ledger = [&] { return audit_ledger(client, tables.ledger, audit); };
  PMSTORE_CO_TRY_STATUS(co_await audit_patiently(client, audit, ledger));
  for (const TableId table : {tables.savings, tables.checking}) {
    const auto balances = [&] { return audit_balances(client, table, audit); };
    PMSTORE_CO_TRY_STATUS(co_await audit_patiently(client, audit, balances));
  }
  co_return audit;
}

void Audit::compare(std::string_view key, const LedgerEntry& entry, const LedgerEntry* other) {
  ++workers_compared;
  const auto found = ledger.find(key);
  const LedgerEntry stored = found == ledger.end() ? LedgerEntry{} : found->second;
  if (stored == entry || (other != nullptr && stored == *other)) return;
  if (workers_different++ > 0) return;
  first_difference = fmt::format("ledger record {} is '{}', but what was acknowledged makes '{}'",
                                 key, encode(stored), encode(entry));
}

std::string Audit::why_not() const {
  if (account_records != 2 * accounts) {
    return fmt::format("{} account records instead of {}", account_records, 2 * accounts);
  }
  if (bad_records != 0) return fmt::format("{} records are damaged or doubled", bad_records);
  if (actual_cents != expected_cents()) {
    return fmt::format("the accounts hold {} cents, but initial money and ledger make {}",
                       actual_cents, expected_cents());
  }
  if (actual_writes != expected_writes) {
    return fmt::format("the balances were written {} times, but the ledger says {}", actual_writes,
                       expected_writes);
  }
  return first_difference;
}

void compare_journal(Audit& audit, const Journal& journal) {
  for (uint32_t client = 0; client < journal.clients(); ++client) {
    for (uint32_t coroutine = 0; coroutine < journal.coroutines(); ++coroutine) {
      const LedgerEntry acknowledged = journal.acknowledged(client, coroutine);
      const LedgerEntry attempted = journal.attempted(client, coroutine);
      const bool in_flight = attempted.transactions == acknowledged.transactions + 1;
      audit.compare(ledger_key(journal.run(), client, coroutine), acknowledged,
                    in_flight ? &attempted : nullptr);
    }
  }
}

}  // namespace pmstore::tools::smallbank
